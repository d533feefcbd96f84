"""The positions file: what is written is read, equal maps give equal bytes, other files are refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from unseen.data.positions import SCHEMA, Match, PositionMap, Positions, QueryMatches, read, write
from unseen.runtime.errors import UserError

REGION = (0.125, 0.0, 0.875, 1.0)
MAPS = (
    PositionMap(
        7, 2, "a/7.jpg", REGION, "contribution", np.array([[0.5, -0.25, 1]], np.float32), reference=9
    ),
    PositionMap(
        3,
        1,
        "a/3.jpg",
        REGION,
        "transported mass",
        np.array([[0.5], [0.25]], np.float32),
        prototype=np.array([[4], [0]], np.int32),
    ),
    PositionMap(
        3, 1, "a/3.jpg", REGION, "attention of point 1", np.ones((2, 2), np.float32), True, point=(0.25, 0.75)
    ),
)
QUERIES = (QueryMatches(3, Match(7, 0.5), None), QueryMatches(7, None, Match(3, -0.25)))


def same(first: PositionMap, second: PositionMap) -> bool:
    arrays = ("weights", "prototype")
    return all(
        np.array_equal(getattr(first, name), getattr(second, name))
        if name in arrays
        else getattr(first, name) == getattr(second, name)
        for name in PositionMap.__dataclass_fields__
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "positions/set/method/0.arrow"
    write(file, Positions(MAPS, QUERIES))
    return file


def test_reads_what_was_written_in_the_order_of_the_rows(path: Path) -> None:
    positions = read(path)
    assert positions.queries == QUERIES
    assert len(positions.maps) == 3
    assert all(same(*pair) for pair in zip(positions.maps, (MAPS[1], MAPS[2], MAPS[0]), strict=True))


def test_equal_maps_give_equal_bytes(path: Path) -> None:
    before = path.read_bytes()
    write(path, Positions(MAPS, QUERIES))
    assert path.read_bytes() == before


def test_a_file_without_maps_is_valid(path: Path) -> None:
    write(path, Positions((), ()))
    assert read(path) == Positions((), ())


def test_refuses_one_wrong_bit_of_every_value(path: Path) -> None:
    whole = path.read_bytes()
    for value in (MAPS[0].weights, np.array(REGION, np.float32), np.array([3, 3, 7])):
        place = whole.index(value.tobytes())
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(UserError, match="its sha256 is not that of its content"):
            read(path)
    path.write_bytes(whole.replace(b'"similarity": 0.5', b'"similarity": 0.6'))
    with pytest.raises(UserError, match="its sha256 is not that of its content"):
        read(path)


def test_refuses_weights_that_are_not_finite(tmp_path: Path) -> None:
    diverged = replace(MAPS[0], weights=np.array([[np.nan]], np.float32))
    with pytest.raises(UserError, match="the weights `contribution` of row id 7 are not finite"):
        write(tmp_path / "0.arrow", Positions((diverged,), ()))
    assert not (tmp_path / "0.arrow").exists()


def test_refuses_a_missing_and_a_truncated_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match="cannot be read"):
        read(path)
    path.unlink()
    with pytest.raises(UserError, match="is missing"):
        read(path)


@pytest.mark.parametrize(
    ("schema", "metadata", "message"),
    [
        (SCHEMA, {"schema_version": "1", "queries": "[]"}, "has schema version 1, expected 2"),
        (SCHEMA, {"queries": "[]"}, "has schema version none, expected 2"),
        (pa.schema([("row_id", pa.int64())]), {"schema_version": "2"}, "is not a positions file"),
        (SCHEMA, {"schema_version": "2", "queries": b"\xff"}, "is damaged: 'utf-8' codec"),
        (SCHEMA, {"schema_version": "2", "queries": "[]"}, "its sha256 is not that of its content"),
        (SCHEMA, {"schema_version": "2", "queries": "[]", "sha256": "0" * 64}, "its sha256 is not that"),
    ],
    ids=["earlier", "no version", "other columns", "queries", "no digest", "another digest"],
)
def test_refuses_another_format(
    tmp_path: Path, schema: pa.Schema, metadata: dict[str, str | bytes], message: str
) -> None:
    file, described = tmp_path / "0.arrow", schema.with_metadata(metadata)
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, described) as writer:
        writer.write_table(pa.table([[] for _ in schema.names], schema=described))
    with pytest.raises(UserError, match=message):
        read(file)


def test_refuses_empty_values(path: Path) -> None:
    table = pa.ipc.open_file(path.read_bytes()).read_all()
    values = [None if name == "label" else table[name] for name in table.column_names]
    arrays = [pa.nulls(3, SCHEMA.field("label").type) if each is None else each for each in values]
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(pa.table(arrays, schema=table.schema))
    with pytest.raises(UserError, match="is damaged: column label has empty values"):
        read(path)


@pytest.mark.parametrize(("size", "error"), [(64, MemoryError), (2**40, UserError)])
def test_a_damaged_file_requests_more_memory_than_its_size(
    path: Path, monkeypatch: pytest.MonkeyPatch, size: int, error: type[Exception]
) -> None:
    def fail(source: pa.NativeFile) -> None:
        raise pa.ArrowMemoryError(f"malloc of size {size} failed")

    monkeypatch.setattr(pa.ipc, "open_file", fail)
    with pytest.raises(error, match=str(size)):
        read(path)
