"""A gallery of torch gives the ranks of numpy and of the definition, with bounded copies to the device, full
precision, and a number of host reads that does not depend on the thresholds."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import faiss
import numpy as np
import pytest
import torch

from tests.device import pretended
from tests.vectors import gaussian, unit
from unseen.evaluation.counted_gallery import NumpyGallery, TileCounter
from unseen.evaluation.rank_count import rank_blocks
from unseen.runtime.device import counted_gallery
from unseen.runtime.device.counted_gallery import TorchBlock, TorchGallery
from unseen.runtime.errors import UserError

on_cpu = partial(TorchGallery, device="cpu")


class Rows(NamedTuple):
    embedding: np.ndarray
    row_id: np.ndarray
    label: np.ndarray


def rows_of(embeddings: np.ndarray, of_class: int) -> Rows:
    """Classes of `of_class` rows, in random order, with ids in another random order."""
    generator = np.random.default_rng(len(embeddings))
    label = generator.permutation(len(embeddings)) // of_class
    return Rows(embeddings, generator.permutation(len(embeddings)), label)


def ranks_by(
    counter: TileCounter, queries: Rows, gallery: Rows, depth: np.ndarray | None = None
) -> dict[int, list[int]]:
    return {
        query: [rank for rank in ranks if rank]
        for block in rank_blocks(*queries, *gallery, depth, counter)
        for query, ranks in zip(block.queries.tolist(), block.ranks.tolist(), strict=True)
    }


def ranks_by_definition(queries: Rows, gallery: Rows) -> dict[int, list[int]]:
    similarity = (queries.embedding.astype(np.float64) @ gallery.embedding.astype(np.float64).T).astype("f4")
    ranks = {}
    for query, values in enumerate(similarity):
        ranking = np.lexsort((gallery.row_id, -values))
        ranking = ranking[gallery.row_id[ranking] != queries.row_id[query]]
        relevant = np.flatnonzero(gallery.label[ranking] == queries.label[query]) + 1
        if len(relevant):
            ranks[query] = relevant.tolist()
    return ranks


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks and tiles, and several of them at a time."""
    for counter, queries in ((NumpyGallery, 48), (TorchGallery, 100)):
        monkeypatch.setattr(counter, "queries", queries)
        monkeypatch.setattr(counter, "cells", queries * 90)
    monkeypatch.setattr(faiss, "omp_get_max_threads", lambda: 3)


def signs(rows: int, dim: int) -> np.ndarray:
    return unit(np.sign(gaussian(rows, dim)))


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "of_class"), [(24, 2), (200, 30), (512, 2), (1024, 30), (24, 600)])
def test_ranks_of_random_rows(dim: int, of_class: int, small_tiles: None) -> None:
    """R = 1, 29 and 599, with one and several partial products."""
    rows = rows_of(gaussian(1200 if of_class == 600 else 360, dim), of_class)
    ranks = ranks_by(on_cpu, rows, rows)
    assert ranks == ranks_by_definition(rows, rows)
    assert ranks == ranks_by(NumpyGallery, rows, rows)
    assert {len(of_query) for of_query in ranks.values()} == {of_class - 1}


@pytest.mark.slow
@pytest.mark.parametrize("of_class", [2, 30])
@pytest.mark.parametrize(
    "embeddings",
    [
        np.repeat(gaussian(90, 24), 4, axis=0),
        np.repeat(gaussian(1, 24), 360, axis=0),
        signs(360, 6),
        signs(360, 200),
        unit(gaussian(1, 64) + 1e-6 * gaussian(360, 64)),
    ],
    ids=["each row four times", "one point", "6 bits", "200 bits", "nearly one point"],
)
def test_ranks_of_rows_with_equal_products(embeddings: np.ndarray, of_class: int, small_tiles: None) -> None:
    rows = rows_of(embeddings, of_class)
    ranks = ranks_by(on_cpu, rows, rows)
    assert ranks == ranks_by_definition(rows, rows)
    assert ranks == ranks_by(NumpyGallery, rows, rows)


def test_close_products_are_decided_by_definition(small_tiles: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles with some close products, but not so many that they are computed in float64."""
    numbers = []
    count = TorchBlock.count

    def counted(self: TorchBlock, *arguments: object) -> object:
        result = count(self, *arguments)
        numbers.append(None if result[1][0] is None else int(result[1][4].sum()))
        return result

    monkeypatch.setattr(TorchBlock, "count", counted)
    embeddings = gaussian(360, 24)
    embeddings[1::40] = embeddings[::40]  # equal pairs of rows
    rows = rows_of(embeddings, 12)
    assert ranks_by(on_cpu, rows, rows) == ranks_by_definition(rows, rows)
    assert None not in numbers
    assert any(numbers)


@pytest.mark.parametrize("last", [1, 20])
def test_ranks_up_to_a_depth(last: int, small_tiles: None) -> None:
    rows = rows_of(gaussian(360, 24), 12)
    expected = ranks_by_definition(rows, rows)
    ranks = ranks_by(on_cpu, rows, rows, np.full(360, last))
    for query, of_query in ranks.items():
        within = [rank for rank in expected[query] if rank <= last]
        assert of_query[: len(within)] == within
        assert len(of_query) == len(expected[query])
        assert all(rank > last for rank in of_query[len(within) :])


def test_ranks_of_queries_outside_the_gallery(small_tiles: None) -> None:
    rows = rows_of(gaussian(360, 200), 9)
    queries, gallery = Rows(*(column[:200] for column in rows)), Rows(*(column[150:] for column in rows))
    ranks = ranks_by(on_cpu, queries, gallery)
    assert ranks == ranks_by_definition(queries, gallery)
    assert len({len(of_query) for of_query in ranks.values()}) > 3


def test_ranks_of_rows_whose_small_products_are_replaced_by_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU may do so below the normal range of float32."""
    products = TorchBlock._products

    def flushed(self: TorchBlock, rows: torch.Tensor) -> torch.Tensor:
        tile = products(self, rows)
        return torch.where(tile.abs() < 2.0**-126, 0.0, tile)

    monkeypatch.setattr(TorchBlock, "_products", flushed)
    rows = rows_of(gaussian(60, 8) * np.float32(2.0**-62.5), 6)
    assert ranks_by(on_cpu, rows, rows) == ranks_by_definition(rows, rows)


def test_a_gallery_beyond_the_budget_is_copied_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(gaussian(200, 24), 8)
    for budget, place in ((rows.embedding.nbytes, "meta"), (rows.embedding.nbytes - 1, "cpu")):
        monkeypatch.setattr(counted_gallery, "RESIDENT", budget)
        assert TorchGallery(rows.embedding, "meta")._rows.device.type == place
    monkeypatch.setattr(counted_gallery, "UPLOADED", 24 * 4 * 30)
    copied: list[slice] = []
    on_device = TorchGallery.rows

    def recorded(self: TorchGallery, columns: slice) -> torch.Tensor:
        copied.append(columns)
        return on_device(self, columns)

    monkeypatch.setattr(TorchGallery, "rows", recorded)
    assert ranks_by(on_cpu, rows, rows) == ranks_by_definition(rows, rows)
    assert [(part.start, part.stop) for part in copied] == [
        (start, min(start + 30, 200)) for start in range(0, 200, 30)
    ]


def test_products_of_a_lower_precision_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    products = TorchBlock._products
    monkeypatch.setattr(TorchBlock, "_products", lambda self, rows: products(self, rows) + 1e-3)
    rows = rows_of(gaussian(60, 8), 6)
    with pytest.raises(UserError, match=r"(?s)torch returned .* off by 1\.0e-03.*NVIDIA_TF32_OVERRIDE"):
        ranks_by(on_cpu, rows, rows)


@pytest.fixture(params=["cuda.matmul", "all backends", "high", "medium"])
def lower_precision(request: pytest.FixtureRequest) -> Iterator[None]:
    """Settings of torch that allow TF32 or bfloat16 in products."""
    places = (torch.backends, *_backends())
    before = [place.fp32_precision for place in places]
    if request.param == "cuda.matmul":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    elif request.param == "all backends":
        for backend in _backends():
            backend.fp32_precision = "none"  # a precision of products would hold
        torch.backends.fp32_precision = "tf32"  # type: ignore[attr-defined]
    else:
        torch.set_float32_matmul_precision(request.param)
    yield
    torch.set_float32_matmul_precision("highest")
    for place, precision in zip(places, before, strict=True):
        place.fp32_precision = precision


def precisions() -> list[str]:
    return [backend.fp32_precision for backend in _backends()]


def _backends() -> tuple[Any, Any]:
    return torch.backends.cuda.matmul, torch.backends.mkldnn.matmul  # type: ignore[attr-defined]


def test_products_have_full_precision_in_any_setting(
    lower_precision: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, used = precisions(), []
    products = TorchBlock._products

    def recorded(self: TorchBlock, rows: torch.Tensor) -> torch.Tensor:
        used.append(precisions())
        return products(self, rows)

    monkeypatch.setattr(TorchBlock, "_products", recorded)
    rows = rows_of(gaussian(60, 8), 6)
    assert ranks_by(on_cpu, rows, rows) == ranks_by_definition(rows, rows)
    assert used == [["ieee", "ieee"]]
    assert "tf32" in before
    assert precisions() == before
    monkeypatch.setattr(TorchBlock, "_products", lambda self, rows: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ranks_by(on_cpu, rows, rows)
    assert precisions() == before


@pytest.mark.parametrize("relevant", [1, 5])
def test_products_equal_to_thresholds(relevant: int) -> None:
    """A product equal to the lower or the upper end of an interval is close, in numpy and in torch."""
    rows, queries = np.arange(12, dtype=np.float32)[:, None], np.ones((2, 1), np.float32)
    high = np.array([[9, 7, 7, 4, 1], [11, *[np.inf] * 4]], np.float32)
    low = high - np.array([[1, 0, 0, 2, 1], [3, *[0] * 4]], np.float32)
    high[0, relevant:] = low[0, relevant:] = np.inf
    results = []
    for gallery in (NumpyGallery(rows), on_cpu(rows)):
        block = gallery.block(queries, 256)
        block.compare_with(low, high, np.array([relevant, 1]))
        products, (counts, *close) = block.count(slice(0, 12), np.array([3, 4, 12]), 2, 100)
        assert products.tolist() == [3, 4]
        assert counts is not None
        pairs = [
            (row, column, level)
            for row, column, first, length in np.stack(close, axis=1).tolist()
            for level in range(first, first + length)
        ]
        results.append((counts[0, :relevant].tolist(), counts[1, 0], sorted(pairs)))
    decided = [2, 4, 4, 7, 8]
    ends = [[8, 9], [7], [7], [2], [0, 1]]  # 3 and 4 are members
    pairs = [(0, column, level) for level in range(relevant) for column in ends[level]]
    expected = (decided[:relevant], 0, sorted(pairs + [(1, column, 0) for column in (8, 9, 10, 11)]))
    assert results == [expected] * 2


def _waits_of_a_tile() -> None:
    rows, queries = gaussian(50, 16), gaussian(20, 16, 1)
    for close in (False, True):
        counts_of = []
        for levels in (1, 40):
            block = TorchGallery(rows).block(queries, 256)
            high = np.random.default_rng(0).uniform(-0.5, 0.5, (20, levels)).astype(np.float32)
            high = np.sort(high)[:, ::-1]
            block.compare_with(high - np.float32(0.1 if close else 0), high.copy(), np.full(20, levels))
            with pretended.recorded() as record:
                _, (counts, *pairs) = block.count(slice(0, 50), np.arange(3), 2, 10**6)
            assert counts is not None
            assert (len(pairs[0]) > 0) is close
            assert record.refused == []
            waits = [wait.partition(",")[0] for wait in record.waits]
            assert waits == ["_to_copy", *["nonzero"] * close]  # the masked positions go to the device
            counts_of.append((record.awaited, len(record.to_host)))
        assert counts_of == [(3 + close, 3 + close)] * 2


def test_the_number_of_waits_does_not_depend_on_the_thresholds() -> None:
    pretended.run(_waits_of_a_tile)


def _ranks_on_both() -> None:
    for embeddings, of_class in ((gaussian(360, 24), 12), (np.repeat(gaussian(60, 200), 2, axis=0), 6)):
        rows = rows_of(embeddings, of_class)
        for resident in (True, False):
            with pytest.MonkeyPatch.context() as patch, pretended.recorded() as record:
                if not resident:
                    patch.setattr(counted_gallery, "RESIDENT", 0)
                    patch.setattr(counted_gallery, "UPLOADED", 100 * embeddings[0].nbytes)
                patch.setattr(TorchGallery, "queries", 100)
                ranks = ranks_by(TorchGallery, rows, rows)
            assert ranks == ranks_by_definition(rows, rows)
            assert record.refused == []
            assert record.launches["searchsorted"] >= 4


def test_the_pretended_gpu_counts_the_ranks_of_the_definition() -> None:
    pretended.run(_ranks_on_both)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize(("dim", "of_class"), [(24, 2), (200, 30), (1024, 3), (128, 700)])
def test_a_gpu_counts_the_ranks_of_the_cpu(
    dim: int, of_class: int, resident: bool, lower_precision: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not resident:
        monkeypatch.setattr(counted_gallery, "RESIDENT", 0)
        monkeypatch.setattr(counted_gallery, "UPLOADED", 1000 * 4 * dim)
    embeddings = gaussian(4200, dim)
    embeddings[1::40] = embeddings[::40]
    rows = rows_of(embeddings, of_class)
    torch.cuda.reset_peak_memory_stats()
    assert ranks_by(TorchGallery, rows, rows) == ranks_by(NumpyGallery, rows, rows)
    tile = 20 * min(TorchGallery.cells, 4200 * (4200 if resident else 1000))
    blocks = 8 * (embeddings.nbytes + 8 * 4200 * of_class)
    others = embeddings.nbytes + (128 << 20)  # the gallery or its rows, workspace of cuBLAS, close products
    assert torch.cuda.max_memory_allocated() < tile + blocks + others
