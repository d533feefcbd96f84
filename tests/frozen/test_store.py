"""Stored rows, and catalogs that are written from them and read in parts."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.vectors import gaussian, unit
from unseen.evaluation.settings import Flat, Hnsw, IvfPq, Setting
from unseen.frozen import store as storing
from unseen.frozen.pictures import Listed, Stamp
from unseen.frozen.store import MAPS, VECTORS, ArrayStore, Format
from unseen.runtime.errors import UserError
from unseen_search.catalog import files as reading
from unseen_search.catalog import write as writing
from unseen_search.catalog.catalog import Catalog
from unseen_search.catalog.write import FLAT_BELOW, Contents, Model, default_setting, write_catalog

ROWS = unit(gaussian(600, 16, seed=5)).astype(np.float32)
DIGESTS = [f"{row:064x}" for row in range(len(ROWS))]


def catalog_of(directory: Path, setting: Setting, labels: list[str | None] | None = None) -> Path:
    paths = [f"{row:03d}.jpg" for row in range(len(ROWS))]
    pictures = Listed(paths, DIGESTS, [Stamp(row, row) for row in range(len(ROWS))], {})
    vectors = ArrayStore(directory, 16, VECTORS)
    vectors.add(DIGESTS, lambda rows: ROWS[rows])
    contents = Contents(
        directory, pictures, labels or [None] * len(ROWS), "none", Model("m", "f", 16, [], "float32")
    )
    write_catalog(directory / "catalog", contents, vectors, setting)
    return directory / "catalog"


def _values(form: Format) -> np.ndarray:
    return ROWS if form is VECTORS else ROWS.astype(np.float16)


def test_reads_rows_from_several_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "_OPEN", 1)
    store = ArrayStore(tmp_path, 16, VECTORS)
    store.add(DIGESTS[250:400], lambda rows: ROWS[250:400][rows])
    for start in (0, 100, 200):
        VECTORS.write(tmp_path / f"{start}.parquet", DIGESTS[start : start + 100], ROWS[start : start + 100])
    store.refresh()
    assert DIGESTS[399] in store
    assert store.missing([DIGESTS[400], DIGESTS[399], DIGESTS[400]]) == [DIGESTS[400]]
    rows = np.random.default_rng(0).permutation(400)
    assert np.array_equal(store.rows([DIGESTS[row] for row in rows]), ROWS[rows])
    with pytest.raises(KeyError):
        store.rows([DIGESTS[400]])


@pytest.mark.parametrize("form", [VECTORS, MAPS])
def test_computes_each_picture_once_in_blocks_and_continues_after_a_killed_run(
    tmp_path: Path, form: Format
) -> None:
    values = _values(form)
    computed: list[tuple[int, ...]] = []

    def compute(paths: list[Path], start: int) -> np.ndarray:
        if len(computed) == 2:
            raise KeyboardInterrupt
        computed.append((start, *(int(path.name) for path in paths)))
        return values[[int(path.name) for path in paths]]

    path_of = {DIGESTS[row]: Path(str(row)) for row in range(8)}
    with pytest.raises(KeyboardInterrupt):
        ArrayStore(tmp_path, 16, form).fill(path_of, 3, compute)
    assert computed == [(0, 0, 1, 2), (3, 3, 4, 5)]
    computed.clear()
    store = ArrayStore(tmp_path, 16, form)
    store.refresh()
    store.fill(path_of, 3, compute)
    assert computed == [(0, 6, 7)]
    assert sorted(path.stem for path in tmp_path.iterdir()) == [DIGESTS[row] for row in (0, 3, 6)]
    stored = store.rows(DIGESTS[7::-1])
    assert stored.dtype == values.dtype
    assert np.array_equal(stored, values[7::-1])


def _junk(path: Path, form: Format) -> None:
    path.write_bytes(b"junk")


def _other_table(path: Path, form: Format) -> None:
    pq.write_table(pa.table({"x": [1]}), path)


def _other_width(path: Path, form: Format) -> None:
    form.write(path, DIGESTS[:2], _values(form)[:2, :8])


def _other_form(path: Path, form: Format) -> None:
    other = MAPS if form is VECTORS else VECTORS
    other.write(path, DIGESTS[:2], _values(other)[:2])


def _directory(path: Path, form: Format) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path, form: Format) -> None:
    path.unlink()
    os.mkfifo(path)


def _no_digest(path: Path, form: Format) -> None:
    VECTORS.write(path, DIGESTS[:2], ROWS[:2])
    table = pq.read_table(path)
    pq.write_table(table.set_column(0, table.schema.field(0), pa.array([DIGESTS[0], None])), path)


def _flipped_bit(path: Path, form: Format) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(_values(form)[0].tobytes()) + 5] ^= 1
    path.write_bytes(content)


def _two_blocks(path: Path, form: Format) -> None:
    table = pa.ipc.open_file(path.read_bytes()).read_all()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=60)


DAMAGES = [_junk, _other_table, _other_width, _other_form, _directory, _pipe]


@pytest.mark.parametrize(
    ("form", "damage"),
    [
        *((form, damage) for form in (VECTORS, MAPS) for damage in DAMAGES),
        (VECTORS, _no_digest),
        (VECTORS, _flipped_bit),
        (MAPS, _flipped_bit),
        (MAPS, _two_blocks),
    ],
)
def test_a_damaged_file_is_removed(
    tmp_path: Path, form: Format, damage: Callable[[Path, Format], None], capsys: pytest.CaptureFixture[str]
) -> None:
    values = _values(form)
    broken = tmp_path / f"0{form.suffix}"
    for start in (0, 100):
        form.write(
            tmp_path / f"{start}{form.suffix}", DIGESTS[start : start + 100], values[start : start + 100]
        )
    damage(broken, form)
    store = ArrayStore(tmp_path, 16, form)
    store.refresh()
    assert [digest in store for digest in (DIGESTS[0], DIGESTS[100])] == [False, True]
    assert [path.name for path in tmp_path.iterdir()] == [f"100{form.suffix}"]
    assert f"{broken} is damaged and computed again: " in capsys.readouterr().err
    form.write(broken, DIGESTS[:100], values[:100])
    store.refresh()
    assert np.array_equal(store.rows(DIGESTS[:200]), values[:200])


def test_a_later_source_replaces_an_earlier_one(tmp_path: Path) -> None:
    store = ArrayStore(tmp_path, 16, VECTORS)
    store.add(DIGESTS[:2], lambda rows: ROWS[rows])
    store.add(DIGESTS[1:2], lambda rows: ROWS[[7]][rows])
    assert np.array_equal(store.rows(DIGESTS[:2]), ROWS[[0, 7]])


@pytest.mark.parametrize(
    ("count", "dim", "kind"),
    [(FLAT_BELOW - 1, 512, Flat), (FLAT_BELOW, 512, IvfPq), (FLAT_BELOW, 10, Hnsw)],
)
def test_a_new_catalog_is_flat_below_a_million_pictures(count: int, dim: int, kind: type) -> None:
    assert type(default_setting(count, dim)) is kind


def test_an_approximate_catalog_states_its_recall(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exact = Catalog(catalog_of(tmp_path, Hnsw(search_width=600)))
    assert exact.about["recall"] == {"at_1": 1.0, "at_k": 1.0, "k": writing.K, "queries": writing.QUERIES}
    poor = Catalog(catalog_of(tmp_path, IvfPq(lists=15, probes=1, code_bytes=4)))
    assert 0 < poor.about["recall"]["at_k"] < 0.9
    assert f"{poor.about['recall']['at_k']:.3f} of the 10 nearest (200 queries)" in capsys.readouterr().err
    assert Catalog(catalog_of(tmp_path, Flat())).about["recall"] is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("setting", [Flat(), Hnsw()])
def test_the_catalog_contains_the_stored_vectors_in_their_order(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "BLOCK", 70)
    catalog = Catalog(catalog_of(tmp_path, setting))
    assert np.array_equal(catalog.vectors(), ROWS)
    assert sorted(path.name for path in catalog.directory.iterdir()) == [
        *("catalog.json", "index.faiss", "model", "pictures.parquet", "rivals.parquet")
    ]


def test_a_search_reads_the_row_groups_of_its_matches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "ROWS", 100)
    labels: list[str | None] = [f"product {row // 2}" for row in range(len(ROWS))]
    catalog = Catalog(catalog_of(tmp_path, Flat(), labels))
    monkeypatch.setattr(
        Catalog, "embedder", property(lambda _: lambda rows: ROWS[[int(row) for row in rows]])
    )
    groups: list[int] = []
    read = Catalog._group
    monkeypatch.setattr(Catalog, "_group", lambda self, number: groups.append(number) or read(self, number))
    (match,), (other,) = catalog.find(["250", "599"], k=1)
    assert (match.path, match.label) == ("250.jpg", "product 125")
    assert (other.path, other.label) == ("599.jpg", "product 299")
    assert groups == [2, 5]
    assert "paths" not in vars(catalog), "the column is not read"


def test_large_files_are_verified_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = catalog_of(tmp_path, Flat())
    content = bytearray((directory / "index.faiss").read_bytes())
    content[-1] ^= 1
    (directory / "index.faiss").write_bytes(content)
    with pytest.raises(UserError, match="its sha256 is not that of the build"):
        Catalog(directory)
    monkeypatch.setattr(reading, "VERIFIED", 1000)
    Catalog(directory)
    (directory / "index.faiss").write_bytes(content[:30])
    with pytest.raises(UserError, match=r"it has 30 bytes, the build wrote 38,\d\d\d"):
        Catalog(directory)
    (directory / "index.faiss").write_bytes(content)
    with pytest.raises(UserError, match="its sha256 is not that of the build"):
        Catalog(directory, verify=True)
