"""The embedding file: bytes, round trip without a copy, and refused contents."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from unseen.data.embeddings import Embeddings, read, write
from unseen.runtime.errors import UserError


def unit(rows: int, dim: int, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((rows, dim))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def test_round_trip_without_a_copy(tmp_path: Path) -> None:
    ids, labels, vectors = np.arange(7, 107) * 3, np.arange(100) % 9, unit(100, 24)
    is_query = np.arange(100) % 2 == 0
    write(tmp_path / "test.arrow", ids, labels, vectors, is_query)
    rows = read(tmp_path / "test.arrow")
    assert rows.attributes is None
    for column, expected in zip(rows[:5], (ids, labels, vectors, is_query, np.ones(100, bool)), strict=True):
        assert column.dtype == expected.dtype
        assert np.array_equal(column, expected)
    assert not rows.embedding.flags.owndata
    assert not rows.embedding.flags.writeable
    memory = np.memmap(tmp_path / "test.arrow", np.uint8, "r")
    assert memory.tobytes().count(vectors.tobytes()) == 1  # uncompressed, one run of bytes


def test_attributes_are_an_optional_column(tmp_path: Path) -> None:
    ids, vectors = np.arange(30), unit(30, 6)
    attributes = np.random.default_rng(1).dirichlet(np.ones(4), 30).astype(np.float32)
    write(tmp_path / "with.arrow", ids, ids % 5, vectors, attributes=attributes)
    rows = read(tmp_path / "with.arrow")
    assert rows.attributes is not None
    assert np.array_equal(rows.attributes, attributes)
    assert np.array_equal(rows.embedding, vectors)
    assert not rows.attributes.flags.owndata
    write(tmp_path / "without.arrow", ids, ids % 5, vectors)
    with pa.OSFile(str(tmp_path / "without.arrow")) as source:
        assert pa.ipc.open_file(source).schema.names == [
            "row_id",
            "label",
            "embedding",
            "is_query",
            "is_gallery",
        ]
    attributes[7, 2] = np.inf
    with pytest.raises(UserError, match=r"attributes of row id 7 are not finite"):
        write(tmp_path / "with.arrow", ids, ids % 5, vectors, attributes=attributes)


def test_same_rows_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, np.arange(50), np.arange(50), unit(50, 5))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize(
    ("value", "message"), [(np.nan, "norm nan"), (np.inf, "norm inf"), (0.0, "norm 0,"), (1.01, "norm 1.01")]
)
def test_refuses_a_vector_without_unit_length(tmp_path: Path, value: float, message: str) -> None:
    vectors = unit(10, 4)
    vectors[6] = [value, 0, 0, 0]
    with pytest.raises(UserError, match=rf"row id 26 has {message}.*1 of 10 rows"):
        write(tmp_path / "test.arrow", np.arange(20, 30), np.zeros(10, np.int64), vectors)
    assert not list(tmp_path.iterdir())


def test_refuses_a_file_with_a_changed_vector(tmp_path: Path) -> None:
    vectors = unit(10, 4)
    write(tmp_path / "test.arrow", np.arange(10), np.zeros(10, np.int64), vectors)
    octets = (tmp_path / "test.arrow").read_bytes()
    (tmp_path / "test.arrow").write_bytes(
        octets.replace(vectors[3].tobytes(), np.full(4, np.nan, np.float32).tobytes())
    )
    with pytest.raises(UserError, match=r"test.arrow is damaged: its values have sha256"):
        read(tmp_path / "test.arrow")


@pytest.mark.parametrize("column", ["row_id", "label", "embedding", "is_query", "is_gallery", "attributes"])
def test_refuses_one_flipped_bit_in_any_column(tmp_path: Path, column: str) -> None:
    path = tmp_path / "test.arrow"
    attributes = np.random.default_rng(1).dirichlet(np.ones(4), 30).astype(np.float32)
    write(path, np.arange(30) * 3, np.arange(30) % 5, unit(30, 6), attributes=attributes)
    with pa.memory_map(str(path)) as source:
        start = source.read_buffer(source.size()).address
        values = pa.ipc.open_file(source).get_batch(0).column(column)
        values = values.flatten() if pa.types.is_fixed_size_list(values.type) else values
        place = values.buffers()[1].address - start
    octets = bytearray(path.read_bytes())
    octets[place] ^= 1  # the lowest bit of the first value
    path.write_bytes(octets)
    with pytest.raises(UserError, match=r"test\.arrow is damaged: its values have sha256"):
        read(path)


@pytest.mark.parametrize("metadata", [{"scales": "[0.5]"}, {"training_protocol": "published"}])
def test_refuses_changed_metadata(tmp_path: Path, metadata: dict[str, str]) -> None:
    path = tmp_path / "test.arrow"
    write(path, np.arange(4), np.zeros(4, np.int64), unit(4, 8))
    batch = pa.ipc.open_file(path).get_batch(0)
    batch = batch.replace_schema_metadata(batch.schema.metadata | metadata)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(UserError, match=r"test\.arrow is damaged: its values have sha256"):
        read(path)


@pytest.mark.parametrize("ids", [[0, 2, 1], [0, 1, 1]])
def test_refuses_row_ids_that_do_not_ascend(tmp_path: Path, ids: list[int]) -> None:
    with pytest.raises(UserError, match="row id 1 is not larger"):
        write(tmp_path / "test.arrow", np.array(ids), np.zeros(3, np.int64), unit(3, 4))


def test_refuses_no_rows(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="contains no row"):
        write(tmp_path / "test.arrow", np.zeros(0, np.int64), np.zeros(0, np.int64), unit(0, 4))


def test_refuses_missing_truncated_and_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "test.arrow"
    with pytest.raises(UserError, match="is missing"):
        read(path)
    write(path, np.arange(100), np.zeros(100, np.int64), unit(100, 16))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UserError, match="cannot be read"):
        read(path)
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, pa.schema([("row_id", pa.int64())])) as writer,
    ):
        writer.write_batch(pa.record_batch([pa.array([1, 2])], names=["row_id"]))
    with pytest.raises(UserError, match="is not an embedding file: it contains 1 batches of row_id: int64"):
        read(path)
    columns = [
        pa.array([1]),
        pa.array([1]),
        pa.FixedSizeListArray.from_arrays(pa.array([1.0, 0.0]), 2),
        pa.array([True]),
        pa.array([True]),
    ]
    single = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 0.0], pa.float32()), 2)
    foreign = [
        (columns, Embeddings._fields[:5], "embedding: fixed_size_list<item: double>"),
        ([*columns[:2], single, *columns[3:], pa.array([0.5])], Embeddings._fields[:6], "attributes: double"),
        (
            [*columns[:2], single, *columns[3:], single],
            [*Embeddings._fields[:5], "extra"],
            "extra: fixed_size_list<item: float>",
        ),
    ]
    for arrays, names, message in foreign:
        batch = pa.record_batch(arrays, names=list(names))
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        with pytest.raises(UserError, match=message):
            read(path)


def test_scales_other_than_one_are_recorded(tmp_path: Path) -> None:
    path, rows = tmp_path / "test.arrow", (np.arange(4), np.zeros(4, np.int64), unit(4, 8))
    write(path, *rows)
    unscaled = path.read_bytes()
    assert b"scales" not in unscaled
    write(path, *rows, scales=(1.0,))
    assert path.read_bytes() == unscaled
    for scales in ((1.0, 2**-0.5, 0.5), (0.5,)):
        write(path, *rows, scales=scales)
        assert read(path).scales == scales
    batch = pa.ipc.open_file(path).get_batch(0)
    for stored_scales in ("[", "3", "[]", '["half"]'):
        metadata = {"schema_version": "2", "scales": stored_scales}
        with (
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, batch.schema.with_metadata(metadata)) as writer,
        ):
            writer.write_batch(batch.replace_schema_metadata(metadata))
        with pytest.raises(UserError, match="has scales"):
            read(path)


@pytest.mark.parametrize("metadata", [None, {"schema_version": "0"}])
def test_refuses_another_schema_version(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "test.arrow"
    write(path, np.arange(4), np.zeros(4, np.int64), unit(4, 8))
    batch = pa.ipc.open_file(path).get_batch(0).replace_schema_metadata(metadata)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(UserError, match=r"test\.arrow has schema version (none|0), expected 2"):
        read(path)


@pytest.mark.slow
def test_each_byte_of_the_schema_may_be_wrong(tmp_path: Path) -> None:
    write(tmp_path / "whole.arrow", np.arange(4), np.arange(4), unit(4, 4))
    whole = (tmp_path / "whole.arrow").read_bytes()
    path = tmp_path / "damaged.arrow"
    refused = 0
    for position in range(len(whole)):
        # of a number of bits: more than 64 of an integer, which Arrow does not implement
        path.write_bytes(whole[:position] + b"\x80" + whole[position + 1 :])
        try:
            read(path)
        except UserError as error:
            refused += str(path) in error.what
    assert refused > 100


@pytest.mark.parametrize(("size", "error"), [(64, MemoryError), (2**40, UserError)])
def test_a_damaged_file_requests_more_memory_than_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, error: type[Exception]
) -> None:
    def fail(source: pa.NativeFile) -> None:
        raise pa.ArrowMemoryError(f"malloc of size {size} failed")

    write(tmp_path / "test.arrow", np.arange(9), np.arange(9), unit(9, 4))
    monkeypatch.setattr(pa.ipc, "open_file", fail)
    with pytest.raises(error, match=str(size)):
        read(tmp_path / "test.arrow")
