"""Shards: reading returns the written rows, and equal rows give equal bytes."""

import hashlib
import json
import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.animals import payload, write
from unseen.data import shard_writer as module
from unseen.data.shard_writer import ShardWriter
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError


def write_many(directory: Path, rows: int = 20_000) -> Path:
    directory.mkdir()
    with ShardWriter(directory, ["ant"], 2**28) as writer:
        for row in range(rows):
            writer.add(b"%d" % row, 0, "train", f"ant/{row}.jpg", 256 + row % 500, 256)
        writer.finish({"dataset": "ants"})
    return directory


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


def test_the_index_has_the_bytes_of_a_table_of_one_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it has several groups of rows, and columns of several pages."""
    monkeypatch.setattr(module, "_CHUNK_ROWS", 1000)
    monkeypatch.setattr(module, "_GROUP_ROWS", 18_000)
    directory = write_many(tmp_path / "ants")
    index = pq.read_table(directory / "index.parquet")
    columns = [pa.array(column.to_pylist(), column.type) for column in index.columns]
    expected = tmp_path / "expected.parquet"
    pq.write_table(pa.table(columns, index.schema.names), expected, row_group_size=18_000)
    assert (directory / "index.parquet").read_bytes() == expected.read_bytes()


def test_a_writer_holds_no_python_object_per_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, digests and places of a row take 440 bytes as Python objects."""
    monkeypatch.setattr(module, "_CHUNK_ROWS", 500)
    write_many(tmp_path / "imports and caches", 1)
    tracemalloc.start()
    try:
        write_many(tmp_path / "ants", 8000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200 * 8000


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


def test_opening_creates_no_python_object_per_row(tmp_path: Path) -> None:
    """Arrays of numpy have 10 bytes per row here. A Python list has 8 more, and its numbers or strings 28."""
    directory = write_many(tmp_path / "ants")
    Shards(directory)  # imports and caches
    tracemalloc.start()
    try:
        shards = Shards(directory)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(shards) == 20_000
    assert peak < 17 * 20_000


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
