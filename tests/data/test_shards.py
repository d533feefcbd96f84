"""Shards: reading returns the written rows, equal rows give equal bytes, and every kind of damage has its
message."""

import contextlib
import hashlib
import json
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.data import shard_writer as module
from pipeline.data.shard_writer import ShardWriter
from pipeline.data.shards import Shards
from pipeline.runtime.digest import sha256_of
from pipeline.runtime.errors import UserError


def payload(row: int) -> bytes:
    return np.random.default_rng(row).bytes(20 + row * 7 % 300)


def write(directory: Path, rows: int = 700, shard_bytes: int = 2**20) -> Path:
    directory.mkdir(parents=True)
    names = ["ant", "bee", "cow"]
    with ShardWriter(directory, names, shard_bytes) as writer:
        for row in range(rows):
            label = row * 3 // rows
            split = "train" if label < 2 else "test"
            writer.add(
                payload(row),
                label,
                split,
                f"{names[label]}/{row:04d}.jpg",
                10 + row % 5,
                20 + row % 7,
                is_query=row % 2 == 0,
            )
        writer.finish({"dataset": "animals", "ingest": {"resize": None}})
    return directory


@pytest.fixture(scope="module")
def shard_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("shards") / "animals")


def test_reads_every_written_row(shard_directory: Path) -> None:
    shards = Shards(shard_directory, verify=True)
    assert len(shards) == 700
    for row in range(700):
        assert shards.image(row).tobytes() == payload(row)
    assert shards.class_names == ["ant", "bee", "cow"]
    assert shards.labels.dtype == np.int64
    assert shards.labels.tolist() == [row * 3 // 700 for row in range(700)]
    assert shards.splits[466] == "train"
    assert shards.splits[467] == "test"
    assert shards.sources[699] == "cow/0699.jpg"
    assert shards.sizes.dtype == np.int32
    assert shards.sizes[8].tolist() == [13, 21]
    assert shards.rows("test").tolist() == list(range(467, 700))
    assert shards.rows("train").dtype == np.int64
    assert shards.is_query.tolist() == [row % 2 == 0 for row in range(700)]
    assert shards.is_gallery.all()


def test_the_arrow_files_follow_the_contract(shard_directory: Path) -> None:
    reader = pa.ipc.open_file(pa.memory_map(str(shard_directory / "shard-00000.arrow")))
    assert [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)] == [256, 256, 188]
    assert reader.schema.names == ["row_id", "image", "label", "split", "source"]
    assert reader.schema.field("image").type == pa.large_binary()
    allocated = pa.total_allocated_bytes()
    batch = reader.get_batch(1)
    assert pa.total_allocated_bytes() == allocated, "an uncompressed batch is read without a copy"
    assert batch.column("row_id").to_pylist() == list(range(256, 512))
    assert batch.column("image")[3].as_py() == payload(259)
    index = pq.read_table(shard_directory / "index.parquet").to_pylist()
    assert index[300] == {
        "row_id": 300,
        "label": 1,
        "class_name": "bee",
        "split": "train",
        "source": "bee/0300.jpg",
        "sha256": hashlib.sha256(payload(300)).hexdigest(),
        "width": 10,
        "height": 26,
        "shard": 0,
        "batch": 1,
        "offset": 44,
        "is_query": True,
        "is_gallery": True,
    }
    manifest = json.loads((shard_directory / "manifest.json").read_text())
    assert manifest["schema_version"] == 1
    assert manifest["dataset"] == "animals"
    assert manifest["counts"] == {
        "train": {"images": 467, "classes": 2},
        "test": {"images": 233, "classes": 1},
    }
    assert manifest["shards"] == {
        "shard-00000.arrow": hashlib.sha256((shard_directory / "shard-00000.arrow").read_bytes()).hexdigest()
    }


def test_an_image_is_a_read_only_view_of_the_file(shard_directory: Path) -> None:
    shards = Shards(shard_directory)
    view = shards.image(5)
    assert view.dtype == np.uint8
    assert not view.flags.owndata
    assert not view.flags.writeable
    same_image = shards.image(5)
    assert view.__array_interface__["data"] == same_image.__array_interface__["data"]


def test_same_rows_same_bytes(shard_directory: Path, tmp_path: Path) -> None:
    twin = write(tmp_path / "animals")
    names = sorted(path.name for path in shard_directory.iterdir())
    assert names == sorted(path.name for path in twin.iterdir())
    for name in names:
        assert (shard_directory / name).read_bytes() == (twin / name).read_bytes()
    assert Shards(shard_directory).fingerprint == Shards(twin).fingerprint
    assert Shards(write(tmp_path / "fewer", rows=699)).fingerprint != Shards(twin).fingerprint


def test_small_shards_and_short_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_BYTES", 4000)
    limit = 30_000
    directory = write(tmp_path / "animals", shard_bytes=limit)
    shards = Shards(directory, verify=True)
    files = sorted(directory.glob("*.arrow"))
    assert len(files) > 4
    assert max(path.stat().st_size for path in files) <= limit
    assert all(shards.image(row).tobytes() == payload(row) for row in range(700))
    table = pq.read_table(directory / "index.parquet")
    row = 612
    place = table.slice(row, 1).to_pylist()[0]
    reader = pa.ipc.open_file(str(directory / f"shard-{place['shard']:05d}.arrow"))
    assert reader.get_batch(place["batch"]).column("image")[place["offset"]].as_py() == payload(row)


def test_reads_from_many_threads_and_after_pickling(shard_directory: Path) -> None:
    shards = pickle.loads(pickle.dumps(Shards(shard_directory)))
    with ThreadPoolExecutor(8) as pool:
        images = list(pool.map(lambda row: shards.image(row).tobytes(), range(699, -1, -1)))
    assert images == [payload(row) for row in range(699, -1, -1)]


@pytest.mark.parametrize("row", [-1, 700])
def test_refuses_an_unknown_row(shard_directory: Path, row: int) -> None:
    with pytest.raises(IndexError, match="rows 0 to 699"):
        Shards(shard_directory).image(row)


def test_refuses_an_unknown_split(shard_directory: Path) -> None:
    with pytest.raises(ValueError, match="'validation'"):
        Shards(shard_directory).rows("validation")


def test_refuses_an_image_larger_than_a_shard(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match=r"big\.jpg has 1\.0 MiB.*\n.*shard_mebibytes"),
        ShardWriter(tmp_path, ["a"], 2**20) as writer,
    ):
        writer.add(bytes(2**20), 0, "train", "big.jpg", 1, 1)


def test_refuses_a_class_in_two_splits(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, ["a"], 2**20) as writer:
        writer.add(b"1", 0, "train", "1.jpg", 1, 1)
        with pytest.raises(ValueError, match="the row has split 'test', class 0 has split 'train'"):
            writer.add(b"2", 0, "test", "2.jpg", 1, 1)


class TestGroupsBoxesAndExtras:
    @pytest.fixture
    def queries(self, tmp_path: Path) -> Path:
        directory = tmp_path / "queries"
        directory.mkdir()
        with ShardWriter(directory, ["ant", "bee"], 2**20) as writer:
            writer.add(b"0", 0, "train", "0.jpg", 9, 9, group="hymenoptera")
            writer.add(b"1", 1, "test", "1.jpg", 9, 9, box=(-0.5, 1.25, 10.0, 8.0))
            writer.add(b"2", 1, "test", "2.jpg", 9, 9, group="", box=None)
            pq.write_table(
                pa.table({"query": [1], "easy": pa.array([[2]], pa.list_(pa.int64()))}),
                directory / "ground_truth.parquet",
            )
            writer.finish(
                {
                    "dataset": "queries",
                    "extras": {"ground_truth.parquet": sha256_of(directory / "ground_truth.parquet")},
                }
            )
        return directory

    def test_reads_the_written_columns(self, queries: Path) -> None:
        shards = Shards(queries, verify=True)
        assert shards.groups == ["hymenoptera", None, ""]
        assert [shards.box(row) for row in range(3)] == [None, (-0.5, 1.25, 10.0, 8.0), None]
        assert shards.extra("ground_truth").to_pylist() == [{"query": 1, "easy": [2]}]
        index = pq.read_table(queries / "index.parquet")
        assert index.schema.field("group").type == pa.string()
        assert index["box"].to_pylist() == [None, [-0.5, 1.25, 10.0, 8.0], None]
        assert pickle.loads(pickle.dumps(shards)).box(1) == shards.box(1)

    def test_a_set_without_optional_values_has_no_such_columns(self, shard_directory: Path) -> None:
        assert not {"group", "box"} & set(pq.read_table(shard_directory / "index.parquet").column_names)
        shards = Shards(shard_directory)
        assert shards.groups == [None] * 700
        assert shards.box(699) is None
        with pytest.raises(UserError, match=r"animals has no pairs\.parquet; it has: none"):
            shards.extra("pairs")

    def test_optional_values_change_the_fingerprint(self, tmp_path: Path) -> None:
        def fingerprint(name: str, extras: dict[str, str], **optional: Any) -> str:
            (tmp_path / name).mkdir()
            with ShardWriter(tmp_path / name, ["ant"], 2**20) as writer:
                writer.add(b"0", 0, "train", "0.jpg", 9, 9, **optional)
                for file in extras:
                    (tmp_path / name / file).touch()
                writer.finish({"extras": extras} if extras else {})
            return Shards(tmp_path / name).fingerprint

        fingerprints = [
            fingerprint("plain", {}),
            fingerprint("group", {}, group="a"),
            fingerprint("other", {}, group="b"),
            fingerprint("box", {}, box=(0.0, 0.0, 1.0, 1.0)),
            fingerprint("pairs", {"pairs.parquet": "1"}),
            fingerprint("pears", {"pairs.parquet": "2"}),
        ]
        assert len(set(fingerprints)) == 6
        shard_hashes = json.loads((tmp_path / "plain" / "manifest.json").read_text())["shards"]
        assert (
            fingerprints[0] == hashlib.sha256(json.dumps(shard_hashes, sort_keys=True).encode()).hexdigest()
        )

    def test_a_changed_and_a_missing_extra(self, queries: Path) -> None:
        with (queries / "ground_truth.parquet").open("ab") as file:
            file.write(b" ")
        with pytest.raises(UserError, match=r"ground_truth\.parquet has sha256"):
            Shards(queries, verify=True)
        (queries / "ground_truth.parquet").unlink()
        with pytest.raises(UserError, match=r"(?s)ground_truth\.parquet is missing.*ingest@queries"):
            Shards(queries)


class TestDamage:
    @pytest.fixture
    def shards(self, tmp_path: Path) -> Path:
        return write(tmp_path / "animals", rows=30)

    def test_no_directory(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"(?s)contains no shards.*dvc repro ingest@nothing"):
            Shards(tmp_path / "nothing")

    def test_another_schema_version(self, shards: Path) -> None:
        manifest = json.loads((shards / "manifest.json").read_text())
        (shards / "manifest.json").write_text(json.dumps({**manifest, "schema_version": 7}))
        with pytest.raises(UserError, match=r"(?s)schema version 7, expected 1.*dvc repro -f ingest@animals"):
            Shards(shards)

    def test_a_missing_shard(self, shards: Path) -> None:
        (shards / "shard-00000.arrow").unlink()
        with pytest.raises(UserError, match=r"(?s)shard-00000.arrow is missing.*dvc repro -f ingest@animals"):
            Shards(shards)

    def test_a_shortened_shard(self, shards: Path) -> None:
        path = shards / "shard-00000.arrow"
        path.write_bytes(path.read_bytes()[:-8])
        with pytest.raises(
            UserError,
            match=r"(?s)shard-00000.arrow has [\d,]+ bytes, the manifest lists [\d,]+.*ingest@animals",
        ):
            Shards(shards)

    def test_a_shard_with_another_end(self, shards: Path) -> None:
        path = shards / "shard-00000.arrow"
        path.write_bytes(path.read_bytes()[:-6] + b"123456")
        with pytest.raises(UserError, match="lacks the end marker of an Arrow file"):
            Shards(shards)

    def test_the_hash_detects_one_changed_byte(self, shards: Path) -> None:
        path = shards / "shard-00000.arrow"
        expected = hashlib.sha256(path.read_bytes()).hexdigest()
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        with pytest.raises(
            UserError,
            match=(
                rf"(?s)shard-00000.arrow has sha256 {digest}, the manifest lists {expected}.*dvc repro -f "
                r"ingest@animals"
            ),
        ):
            Shards(shards, verify=True)

    def test_the_hash_detects_a_changed_index(self, shards: Path) -> None:
        with (shards / "index.parquet").open("ab") as file:
            file.write(b" ")
        with pytest.raises(UserError, match=r"index\.parquet has sha256"):
            Shards(shards, verify=True)

    def test_one_flipped_bit_of_an_image_is_found_at_its_first_read(self, shards: Path) -> None:
        path = shards / "shard-00000.arrow"
        octets = bytearray(path.read_bytes())
        octets[octets.index(payload(7)) + 3] ^= 16
        path.write_bytes(octets)
        opened = Shards(shards)
        assert opened.image(6).tobytes() == payload(6)
        for _ in range(2):
            with pytest.raises(
                UserError,
                match=r"(?s)row 7 in .*ant/0007.jpg, is damaged: it has sha256.*dvc repro -f ingest@animals",
            ):
                opened.image(7)

    def test_one_flipped_bit_of_a_label_is_found_at_opening(self, shards: Path) -> None:
        path = shards / "index.parquet"
        group = pq.ParquetFile(path).metadata.row_group(0)
        columns = [group.column(number) for number in range(group.num_columns)]
        (label,) = [column for column in columns if column.path_in_schema == "label"]
        original, labels = path.read_bytes(), pq.read_table(path)["label"]
        for place in range(label.dictionary_page_offset, len(original)):
            octets = bytearray(original)
            octets[place] ^= 1
            path.write_bytes(octets)
            with contextlib.suppress(OSError, pa.ArrowException):
                if pq.read_table(path)["label"] != labels:
                    break
        with pytest.raises(UserError, match=r"(?s)index\.parquet has sha256.*dvc repro -f ingest@animals"):
            Shards(shards)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("manifest.json", b"", "manifest.json is damaged: Expecting value"),
        ("manifest.json", b"\xff\xfe{", "manifest.json is damaged: 'utf-8' codec"),
        ("manifest.json", b"[1]", "manifest.json is damaged: it is not a mapping"),
        ("manifest.json", b'{"schema_version": 1}', "manifest.json is damaged: counts is not a dict"),
        ("index.parquet", b"", "index.parquet is damaged: .*size is 0 bytes"),
        ("index.parquet", b"PAR1 and junk PAR1", "index.parquet is damaged: "),
    ],
)
def test_a_damaged_table_names_its_file_and_the_remedy(
    shard_directory: Path, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    shutil.copytree(shard_directory, tmp_path / "animals")
    (tmp_path / "animals" / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{message}[^$]*dvc repro -f ingest@animals"):
        Shards(tmp_path / "animals")


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_truncated_index_names_its_file(shard_directory: Path, tmp_path: Path, share: float) -> None:
    shutil.copytree(shard_directory, tmp_path / "animals")
    path = tmp_path / "animals" / "index.parquet"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(UserError, match=r"index\.parquet is damaged: "):
        Shards(tmp_path / "animals")


@pytest.mark.parametrize(
    ("key", "sizes"),
    [
        ("shard_rows", {}),
        ("shard_bytes", {"x": 1}),
        ("shard_rows", {"shard-00000.arrow": "1"}),
        ("shard_rows", {"shard-00000.arrow": -1}),
    ],
)
def test_a_manifest_without_the_size_of_a_shard_is_damaged(
    shard_directory: Path, tmp_path: Path, key: str, sizes: dict[str, int | str]
) -> None:
    shutil.copytree(shard_directory, tmp_path / "animals")
    path = tmp_path / "animals" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {key: sizes}))
    with pytest.raises(UserError, match=f"manifest.json is damaged: {key} is not a table of the shards"):
        Shards(tmp_path / "animals")


@pytest.mark.parametrize(
    ("change", "reason"), [(1, "shard_rows sum to 701, "), (0, "shard-00000.arrow has ")]
)
def test_a_manifest_with_other_numbers_of_rows_is_damaged(tmp_path: Path, change: int, reason: str) -> None:
    directory = write(tmp_path / "animals", shard_bytes=2**16)
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    rows = manifest["shard_rows"]
    assert len(rows) > 1
    rows["shard-00000.arrow"] += 1
    rows["shard-00001.arrow"] += change - 1
    path.write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=f"manifest.json is damaged: {reason}"):
        Shards(directory).image(0)
