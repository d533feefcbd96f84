"""Stored vectors, and catalogs that are written from them and read in parts."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.vectors import gaussian, unit
from unseen.evaluation.index.kinds import Flat, Hnsw, IvfPq, Setting
from unseen.frozen import store as storing
from unseen.frozen.pictures import Listed, Stamp
from unseen.frozen.store import StoredVectors, write_vectors
from unseen.runtime.errors import UserError
from unseen_search.catalog import catalog as reading
from unseen_search.catalog import write as writing
from unseen_search.catalog.catalog import Catalog
from unseen_search.catalog.write import FLAT_BELOW, Contents, Model, default_setting, write_catalog

VECTORS = unit(gaussian(600, 16, seed=5)).astype(np.float32)
DIGESTS = [f"{row:064x}" for row in range(len(VECTORS))]


def catalog_of(directory: Path, setting: Setting, labels: list[str | None] | None = None) -> Path:
    paths = [f"{row:03d}.jpg" for row in range(len(VECTORS))]
    pictures = Listed(paths, DIGESTS, [Stamp(row, row) for row in range(len(VECTORS))], {})
    vectors = StoredVectors()
    vectors.add(DIGESTS, lambda rows: VECTORS[rows])
    contents = Contents(
        directory, pictures, labels or [None] * len(VECTORS), "none", Model("m", "f", 16, [], "float32")
    )
    write_catalog(directory / "catalog", contents, vectors, setting)
    return directory / "catalog"


def test_reads_vectors_from_several_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "_OPEN", 1)
    for start in (0, 100, 200):
        write_vectors(
            tmp_path / f"{start}.parquet", DIGESTS[start : start + 100], VECTORS[start : start + 100]
        )
    vectors = StoredVectors()
    vectors.add(DIGESTS[250:400], lambda rows: VECTORS[250:400][rows])
    vectors.add_files(tmp_path, 16)
    assert DIGESTS[399] in vectors
    assert DIGESTS[400] not in vectors
    rows = np.random.default_rng(0).permutation(400)
    assert np.array_equal(vectors.vectors([DIGESTS[row] for row in rows]), VECTORS[rows])
    with pytest.raises(KeyError):
        vectors.vectors([DIGESTS[400]])


def _junk(path: Path) -> None:
    path.write_bytes(b"junk")


def _other_table(path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), path)


def _other_dim(path: Path) -> None:
    write_vectors(path, DIGESTS[:2], VECTORS[:2, :8])


def _no_digest(path: Path) -> None:
    write_vectors(path, DIGESTS[:2], VECTORS[:2])
    table = pq.read_table(path)
    pq.write_table(table.set_column(0, table.schema.field(0), pa.array([DIGESTS[0], None])), path)


def _flipped_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(VECTORS[0].tobytes()) + 5] ^= 1
    path.write_bytes(content)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "damage", [_junk, _other_table, _other_dim, _no_digest, _flipped_bit, _directory, _pipe]
)
def test_a_damaged_file_of_vectors_is_removed(
    tmp_path: Path, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    for start in (0, 100):
        write_vectors(
            tmp_path / f"{start}.parquet", DIGESTS[start : start + 100], VECTORS[start : start + 100]
        )
    damage(tmp_path / "0.parquet")
    vectors = StoredVectors()
    vectors.add_files(tmp_path, 16)
    assert [digest in vectors for digest in (DIGESTS[0], DIGESTS[100])] == [False, True]
    assert [path.name for path in tmp_path.iterdir()] == ["100.parquet"]
    assert f"{tmp_path / '0.parquet'} is damaged and computed again: " in capsys.readouterr().err
    write_vectors(tmp_path / "0.parquet", DIGESTS[:100], VECTORS[:100])
    vectors.add_files(tmp_path, 16)
    assert np.array_equal(vectors.vectors(DIGESTS[:200]), VECTORS[:200])


def test_a_later_source_replaces_an_earlier_one() -> None:
    vectors = StoredVectors()
    vectors.add(DIGESTS[:2], lambda rows: VECTORS[rows])
    vectors.add(DIGESTS[1:2], lambda rows: VECTORS[[7]][rows])
    assert np.array_equal(vectors.vectors(DIGESTS[:2]), VECTORS[[0, 7]])


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
    assert np.array_equal(catalog.vectors(), VECTORS)
    assert sorted(path.name for path in catalog.directory.iterdir()) == [
        *("catalog.json", "index.faiss", "model", "pictures.parquet", "rivals.parquet")
    ]


def test_a_search_reads_the_row_groups_of_its_matches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "ROWS", 100)
    labels: list[str | None] = [f"product {row // 2}" for row in range(len(VECTORS))]
    catalog = Catalog(catalog_of(tmp_path, Flat(), labels))
    monkeypatch.setattr(
        Catalog, "embedder", property(lambda _: lambda rows: VECTORS[[int(row) for row in rows]])
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
