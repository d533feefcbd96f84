"""Counted ranks equal the definition: ties, near ties, every path through a tile, all tile and block sizes,
bounded memory."""

import tracemalloc
from collections.abc import Callable

import faiss
import numpy as np
import pytest

from tests.evaluation.galleries import GALLERIES
from tests.oracles import retrieval as oracle
from tests.vectors import gaussian, unit
from unseen.evaluation import counted_gallery, rank_count
from unseen.evaluation.counted_gallery import NumpyGallery
from unseen.evaluation.rank_count import rank_blocks
from unseen.evaluation.tile_count import UNDECIDED
from unseen.runtime.errors import UserError


def count(
    queries: tuple[np.ndarray, np.ndarray, np.ndarray], gallery: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> dict[int, list[int]]:
    """(embedding, id, label) of each side -> ranks of each query that has a relevant row."""
    ranks_by_query: dict[int, list[int]] = {}
    for block in rank_blocks(*queries, *gallery):
        assert (block.ranks[:, -1] > 0).any()
        for query, ranks in zip(block.queries.tolist(), block.ranks.tolist(), strict=True):
            valid_ranks = [rank for rank in ranks if rank]
            assert ranks == valid_ranks + [0] * (len(ranks) - len(valid_ranks))
            assert query not in ranks_by_query
            ranks_by_query[query] = valid_ranks
    return ranks_by_query


def ranks_by_definition(
    queries: tuple[np.ndarray, np.ndarray, np.ndarray], gallery: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> dict[int, list[int]]:
    ranks_by_query = {}
    rows, ids, labels = (column.tolist() for column in gallery)
    for query, (vector, identity, label) in enumerate(
        zip(*(column.tolist() for column in queries), strict=True)
    ):
        ranked = oracle.ranking(vector, identity, rows, ids)
        if ranks := [rank for rank, (_, _, place) in enumerate(ranked, 1) if labels[place] == label]:
            ranks_by_query[query] = ranks
    return ranks_by_query


def table(embeddings: np.ndarray, classes: int, seed: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    ids = generator.permutation(1000)[: len(embeddings)].astype(np.int64)
    return embeddings, ids, generator.integers(0, classes, len(embeddings))


@pytest.mark.parametrize("classes", [1, 4, 40])
@pytest.mark.parametrize("name", GALLERIES)
def test_equals_the_definition(name: str, classes: int) -> None:
    rows = table(GALLERIES[name], classes)
    assert count(rows, rows) == ranks_by_definition(rows, rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", GALLERIES)
def test_every_path_through_a_tile(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each path (selected, by level, sorted, exact), forced on every tile of about 8 x 12, gives the
    definition."""
    rows = table(GALLERIES[name], 9)
    expected = ranks_by_definition(rows, rows)
    monkeypatch.setattr(NumpyGallery, "queries", 8)
    monkeypatch.setattr(NumpyGallery, "cells", 100)
    names = ("few", "by_level", "in_rows")
    ways = {name: getattr(counted_gallery, name) for name in names}
    used_paths: list[str] = []
    for way, function in ways.items():

        def forced(*arguments: object, way: str = way, function: Callable[..., object] = function) -> object:
            used_paths.append(way)
            return function(*arguments[:-1], 10**9)  # for any number of close rows

        for name in names:
            monkeypatch.setattr(counted_gallery, name, forced)
        assert count(rows, rows) == expected, way
    for name in names:
        monkeypatch.setattr(counted_gallery, name, lambda *_, name=name: UNDECIDED)
    assert count(rows, rows) == expected
    assert set(used_paths) == set(names)


@pytest.mark.parametrize("name", GALLERIES)
@pytest.mark.parametrize("last", [1, 10, 60])
def test_ranks_up_to_the_depth_equal_the_definition(
    name: str, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks up to the depth are exact, later ones exceed it, and thresholds beyond it are dropped."""
    monkeypatch.setattr(NumpyGallery, "queries", 8)
    monkeypatch.setattr(NumpyGallery, "cells", 100)
    rows = table(GALLERIES[name], 9)
    expected = ranks_by_definition(rows, rows)
    depth = np.full(len(rows[0]), last)
    for block in rank_blocks(*rows, *rows, depth):
        for query, ranks in zip(block.queries.tolist(), block.ranks.tolist(), strict=True):
            within = [rank for rank in expected[query] if rank <= last]
            assert [rank for rank in ranks if 0 < rank <= last] == within
            assert sum(rank > last for rank in ranks) == len(expected[query]) - len(within)


def test_no_tile_is_multiplied_after_all_thresholds_are_beyond_the_depth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(NumpyGallery, "cells", 600)
    embeddings = unit(np.abs(gaussian(60, 4)))
    embeddings[::2] *= -1  # the rows of a class are opposite, so that all others rank first
    rows = (embeddings, np.arange(60), np.arange(60) // 2)
    tiles = []
    members = rank_count._Block._members
    monkeypatch.setattr(
        rank_count._Block,
        "_members",
        lambda self, columns: (tiles.append(columns), members(self, columns))[1],
    )
    ranks = [block.ranks.tolist() for block in rank_blocks(*rows, *rows)]
    whole = len(tiles)
    tiles.clear()
    assert all(rank > 1 for each in ranks for (rank,) in each)
    list(rank_blocks(*rows, *rows, np.ones(60, np.int64)))
    assert 0 < len(tiles) < whole


def test_only_collapsed_tiles_are_exact() -> None:
    """A collapsed gallery is computed exactly, well spread rows never."""
    calls = []
    exact = rank_count._Block._exact
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            rank_count._Block,
            "_exact",
            lambda self, columns, own_rows: (calls.append(columns), exact(self, columns, own_rows)),
        )
        rows = table(gaussian(300, 16), 40)
        count(rows, rows)
        assert not calls
        rows = table(np.repeat(gaussian(1, 16), 300, axis=0), 40)
        count(rows, rows)
        assert calls


@pytest.mark.parametrize("seed", range(4))
def test_near_ties_are_decided_in_float64(seed: int) -> None:
    """Rows differ by a few units in the last place. Float32 products rank many of them wrongly; counted ranks
    are correct."""
    generator = np.random.default_rng(seed)
    base = gaussian(4, 48, seed)[generator.integers(4, size=80)]
    rows = table((base * (1 + generator.integers(-3, 4, base.shape) * 2.0**-23)).astype(np.float32), 8, seed)
    expected = ranks_by_definition(rows, rows)
    assert count(rows, rows) == expected
    products = rows[0] @ rows[0].T
    misranked = 0
    for query, ranks in expected.items():
        ranking = np.lexsort((rows[1], -products[query]))
        ranking = ranking[ranking != query]
        misranked += (np.flatnonzero(rows[2][ranking] == rows[2][query]) + 1).tolist() != ranks
    assert misranked > len(expected) / 2


@pytest.mark.slow
def test_ranks_do_not_depend_on_blocks_and_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings = np.concatenate(
        [gaussian(90, 8), unit(np.sign(np.random.default_rng(1).standard_normal((60, 8))))]
    )
    rows = (embeddings, np.arange(150), np.random.default_rng(2).integers(0, 20, 150))
    expected = count(rows, rows)
    for block, cells in ((1, 100), (9, 300), (500, 1 << 20), (64, 64)):
        monkeypatch.setattr(NumpyGallery, "queries", block)
        monkeypatch.setattr(NumpyGallery, "cells", cells)
        assert count(rows, rows) == expected


def test_ranks_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks keep their order, and an error in one of them is raised."""
    monkeypatch.setattr(NumpyGallery, "queries", 16)
    rows = table(gaussian(200, 12), 30)
    blocks = []
    for threads in (1, 4):
        monkeypatch.setattr(faiss, "omp_get_max_threads", lambda threads=threads: threads)
        blocks.append([(block.queries.tolist(), block.ranks.tolist()) for block in rank_blocks(*rows, *rows)])
    assert blocks[0] == blocks[1]
    assert len(blocks[0]) > 8
    monkeypatch.setattr(rank_count._Block, "_members", lambda self, columns: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        count(rows, rows)


def test_ranks_do_not_depend_on_row_order_and_rotation() -> None:
    """Permuted and mirrored axes keep every product exactly. A general rotation keeps rankings without near
    ties."""
    generator = np.random.default_rng(3)
    embeddings, labels = gaussian(250, 10), generator.integers(0, 30, 250)
    rows = (embeddings, np.arange(250), labels)
    expected = count(rows, rows)
    shuffled = generator.permutation(250)
    moved = count(rows, tuple(column[shuffled] for column in rows))
    assert moved == expected
    mirrored = np.ascontiguousarray(
        embeddings[:, generator.permutation(10)] * generator.choice(np.array([-1, 1], np.float32), 10)
    )
    assert count((mirrored, *rows[1:]), (mirrored, *rows[1:])) == expected
    turn, _ = np.linalg.qr(generator.standard_normal((10, 10)))
    turned = (embeddings @ turn).astype(np.float32)
    ranks = count((turned, *rows[1:]), (turned, *rows[1:]))
    equal_count = sum(ranks[query] == expected[query] for query in expected)
    assert equal_count > 0.97 * len(expected)


def test_two_sides() -> None:
    """Queries outside and inside the gallery, and of classes that the gallery lacks."""
    generator = np.random.default_rng(4)
    gallery = table(gaussian(120, 6, 1), 15)
    inside = generator.choice(120, 20, replace=False)
    queries = (
        np.concatenate([gallery[0][inside], gaussian(25, 6, 2)]),
        np.concatenate([gallery[1][inside], np.arange(2000, 2025)]),
        np.concatenate([gallery[2][inside], generator.integers(0, 20, 25)]),
    )
    assert count(queries, gallery) == ranks_by_definition(queries, gallery)


@pytest.mark.slow
@pytest.mark.parametrize(("classes", "mebibytes"), [(2000, 48), (2, 96)])
def test_memory_is_limited_to_a_tile(classes: int, mebibytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All 8,000 x 8,000 products take 244 MiB; two classes have 32 million ranks, 244 MiB more."""
    rows = (gaussian(8000, 32), np.arange(8000), np.random.default_rng(0).integers(0, classes, 8000))
    monkeypatch.setattr(faiss, "omp_get_max_threads", lambda: 1)
    tracemalloc.start()
    try:
        blocks = rank_blocks(*rows, *rows)
        for _ in range(3):
            assert next(blocks).ranks.size <= rank_count.THRESHOLDS
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < mebibytes * 2**20


def test_detects_arithmetic_of_lower_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = np.matmul

    def rounded(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
        honest(a, b, out=out)
        out += np.float32(1e-3)
        return out

    monkeypatch.setattr(np, "matmul", rounded)
    rows = table(gaussian(60, 8), 9)
    with pytest.raises(UserError, match=r"off by 1\.0e-03"):
        count(rows, rows)


def test_refuses_rows_that_cannot_be_ranked() -> None:
    rows = (gaussian(6, 4), np.arange(6), np.zeros(6, np.int64))
    with pytest.raises(UserError, match="Row id 3 occurs twice"):
        count(rows, (rows[0], np.array([0, 3, 2, 3, 4, 5]), rows[2]))
    with pytest.raises(UserError, match="Row id 2 has different labels as a query and in the gallery"):
        count(rows, (*rows[:2], np.array([0, 0, 1, 0, 0, 0])))
    broken = rows[0].copy()
    broken[4, 1] = np.inf
    with pytest.raises(UserError, match="gallery row id 4"):
        count(rows, (broken, *rows[1:]))
    assert count(tuple(column[:0] for column in rows), rows) == {}
