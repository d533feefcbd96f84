"""Damaged shards: every kind of damage has its message."""

import contextlib
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.animals import payload, write
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError


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
                rf"(?s)shard-00000.arrow is damaged: it has sha256 {digest}, the manifest "
                rf"lists {expected}.*dvc repro -f ingest@animals"
            ),
        ):
            Shards(shards, verify=True)

    def test_the_hash_detects_a_changed_index(self, shards: Path) -> None:
        with (shards / "index.parquet").open("ab") as file:
            file.write(b" ")
        with pytest.raises(UserError, match=r"index\.parquet is damaged: it has sha256"):
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
        with pytest.raises(
            UserError, match=r"(?s)index\.parquet is damaged: it has sha256.*dvc repro -f ingest@animals"
        ):
            Shards(shards)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("manifest.json", b"", "manifest.json is damaged: Expecting value"),
        ("manifest.json", b"\xff\xfe{", "manifest.json is damaged: 'utf-8' codec"),
        ("manifest.json", b"[1]", "manifest.json is damaged: it is not a mapping"),
        ("manifest.json", b'{"schema_version": 1}', "manifest.json is damaged: counts is not a dict"),
        ("index.parquet", b"", "index.parquet is damaged: it has sha256 e3b0c4"),
        ("index.parquet", b"PAR1 and junk PAR1", "index.parquet is damaged: it has sha256 "),
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


@pytest.mark.parametrize(
    ("error", "kind"),
    [(pa.ArrowMemoryError("malloc of size 181120 failed"), MemoryError), (OSError(5, "of a disk"), OSError)],
)
def test_a_problem_of_the_system_is_no_damage(
    shard_directory: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception]
) -> None:
    def fail(*arguments: Any, **options: Any) -> pa.Table:
        raise error

    monkeypatch.setattr(pq, "read_table", fail)
    with pytest.raises(kind) as caught:
        Shards(shard_directory)
    assert caught.value is error


@pytest.mark.parametrize("place", ["footer", "offsets"])
def test_a_damaged_layout_of_a_shard_is_one_message(tmp_path: Path, place: str) -> None:
    """Found when the first image is read: opening compares the size and the end marker only."""
    directory = write(tmp_path / "animals", rows=30)
    path = directory / "shard-00000.arrow"
    octets = bytearray(path.read_bytes())
    if place == "footer":
        octets[-200:-20] = bytes(b ^ 255 for b in octets[-200:-20])
    else:  # of the second image: the length of the first, as int64
        start = octets.index((0).to_bytes(8, "little") + len(payload(0)).to_bytes(8, "little"))
        octets[start + 8 : start + 16] = (2**40).to_bytes(8, "little")
    path.write_bytes(octets)
    with pytest.raises(UserError, match=r"(?s)shard-00000.arrow is damaged: .*dvc repro -f ingest@animals"):
        Shards(directory).image(0)
