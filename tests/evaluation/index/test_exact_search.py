"""Exact search equals the definition: ties, duplicates, self by id, cuts inside runs of equal similarities,
gallery order, block sizes."""

import faiss
import numpy as np
import pytest

from tests.evaluation.galleries import GALLERIES, repeated, signs
from tests.oracles import retrieval as oracle
from tests.vectors import gaussian, unit
from unseen.evaluation.index import exact
from unseen.evaluation.index.exact import exact_search, search_blocks
from unseen.runtime.errors import UserError


def ranking_by_definition(
    queries: np.ndarray, query_ids: np.ndarray, gallery: np.ndarray, gallery_ids: np.ndarray, k: int
) -> tuple[list, list]:
    ids, similarities = [], []
    for query, identity in zip(queries.tolist(), query_ids.tolist(), strict=True):
        ranked = oracle.ranking(query, identity, gallery.tolist(), gallery_ids.tolist())[:k]
        pad = k - len(ranked)
        ids.append([row[1] for row in ranked] + [-1] * pad)
        similarities.append([row[0] for row in ranked] + [-np.inf] * pad)
    return ids, similarities


@pytest.mark.parametrize("k", [1, 3, 20, 59, 70])
@pytest.mark.parametrize("name", GALLERIES)
def test_equals_the_definition(name: str, k: int) -> None:
    gallery = GALLERIES[name]
    ids = np.random.default_rng(5).permutation(1000)[: len(gallery)].astype(np.int64)
    neighbours, similarities = exact_search(gallery, ids, gallery, ids, k)
    expected, expected_similarities = ranking_by_definition(gallery, ids, gallery, ids, k)
    assert neighbours.tolist() == expected
    assert similarities.tolist() == expected_similarities


def brute_force(x: np.ndarray, k: int) -> np.ndarray:
    """Exact ranking of integer vectors: integer products, ties by position."""
    products = x.astype(np.int64) @ x.astype(np.int64).T
    np.fill_diagonal(products, -x.shape[1] - 1)
    return np.argsort(-products, axis=1, kind="stable")[:, :k]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "bits", "k"), [(2000, 8, 1), (2000, 8, 40), (1500, 16, 10), (1500, 128, 25)]
)
def test_ranks_long_runs_of_equal_codes(rows: int, bits: int, k: int) -> None:
    """Ties cross the cut in most rows, among equal and among different codes. Integer products give the exact
    ranking."""
    codes = np.sign(np.random.default_rng(bits).standard_normal((rows, bits)))
    ids = np.arange(rows)
    neighbours, _ = exact_search(unit(codes), ids, unit(codes), ids, k)
    assert np.array_equal(neighbours, brute_force(codes, k))


@pytest.mark.slow
def test_ranks_a_collapsed_gallery_by_id() -> None:
    """The ranking of every query is all other ids in ascending order."""
    rows, k = 6000, 12
    gallery = np.repeat(gaussian(1, 64), rows, axis=0)
    neighbours, similarities = exact_search(gallery, np.arange(rows), gallery, np.arange(rows), k)
    first = np.arange(k + 1)
    assert all(neighbours[q].tolist() == first[first != q][:k].tolist() for q in range(rows))
    assert len(np.unique(similarities)) == 1


def test_equal_rows_have_equal_similarities() -> None:
    gallery = repeated(3000, 96, 800)
    neighbours, similarities = exact_search(gallery, np.arange(3000), gallery, np.arange(3000), 30)
    for query in range(0, 3000, 7):
        similarity_of: dict[bytes, float] = {}
        for identity, value in zip(neighbours[query], similarities[query], strict=True):
            assert similarity_of.setdefault(gallery[identity].tobytes(), value) == value
    tied = similarities[:, 1:] == similarities[:, :-1]
    assert tied.any()
    assert (neighbours[:, 1:] > neighbours[:, :-1])[tied].all()
    assert (similarities[:, 1:] <= similarities[:, :-1]).all()


def test_a_query_is_removed_by_id_among_its_copies() -> None:
    gallery = repeated(200, 8, 5)
    ids = np.random.default_rng(0).permutation(200).astype(np.int64)
    neighbours, _ = exact_search(gallery, ids, gallery, ids, 60)
    assert not (neighbours == ids[:, None]).any()
    assert all(len(set(row)) == 60 for row in neighbours.tolist())


def test_refuses_no_neighbours_and_an_empty_gallery() -> None:
    rows, ids = gaussian(3, 2, 0), np.arange(3)
    with pytest.raises(ValueError, match="got k = 0 and 3 rows"):
        exact_search(rows, ids, rows, ids, 0)
    with pytest.raises(ValueError, match="got k = 1 and 0 rows"):
        exact_search(rows, ids, rows[:0], ids[:0], 1)


def test_queries_of_another_id_space_keep_all_rows() -> None:
    queries, gallery = gaussian(9, 6, 1), gaussian(30, 6, 2)
    neighbours, _ = exact_search(queries, np.arange(100, 109), gallery, np.arange(30), 30)
    assert np.array_equal(np.sort(neighbours, axis=1), np.tile(np.arange(30), (9, 1)))
    some, _ = exact_search(queries, np.arange(20, 29), gallery, np.arange(30), 30)
    assert all(
        -1 in row and identity not in row for identity, row in zip(range(20, 29), some.tolist(), strict=True)
    )


def test_does_not_depend_on_the_gallery_order() -> None:
    for gallery in (gaussian(900, 20), signs(900, 8), repeated(900, 16, 60)):
        ids = np.arange(900)
        shuffled = np.random.default_rng(3).permutation(900)
        expected = exact_search(gallery[:100], ids[:100], gallery, ids, 15)
        reordered = exact_search(gallery[:100], ids[:100], gallery[shuffled], ids[shuffled], 15)
        assert np.array_equal(expected[0], reordered[0])
        assert np.array_equal(expected[1], reordered[1])


@pytest.mark.slow
def test_does_not_depend_on_block_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    gallery, ids = signs(700, 10), np.arange(700)
    expected = exact_search(gallery, ids, gallery, ids, 9)
    for block, cells, spare, wider in (
        (7, 1 << 20, 4, 4),
        (4096, 300, 4, 4),
        (64, 1 << 12, 0, 2),
        (1, 1, 1, 50),
    ):
        for name, value in (("BLOCK", block), ("CELLS", cells), ("SPARE", spare), ("WIDER", wider)):
            monkeypatch.setattr(exact, name, value)
        blocked = exact_search(gallery, ids, gallery, ids, 9)
        assert np.array_equal(expected[0], blocked[0])
        assert np.array_equal(expected[1], blocked[1])


def test_rotation_keeps_rankings_without_near_ties() -> None:
    generator = np.random.default_rng(11)
    gallery, ids = gaussian(500, 24, 4), np.arange(500)
    turn, _ = np.linalg.qr(generator.standard_normal((24, 24)))
    neighbours, similarities = exact_search(gallery, ids, gallery, ids, 10)
    rotated, turned = exact_search(
        (gallery @ turn).astype(np.float32), ids, (gallery @ turn).astype(np.float32), ids, 10
    )
    assert np.abs(similarities - turned).max() < 5e-7
    distinct = (np.diff(similarities, axis=1) < -2e-6).all(axis=1)
    assert distinct.mean() > 0.9
    assert np.array_equal(neighbours[distinct, :9], rotated[distinct, :9])


def test_candidates_agree_with_faiss_up_to_ties() -> None:
    from faiss.contrib.evaluation import check_ref_knn_with_draws

    gallery, queries = gaussian(1500, 32, 1), gaussian(200, 32, 2)
    neighbours, similarities = exact_search(queries, np.arange(5000, 5200), gallery, np.arange(1500), 10)
    reference, positions = faiss.knn(queries, gallery, 10, metric=faiss.METRIC_INNER_PRODUCT)
    check_ref_knn_with_draws(reference, positions, similarities, neighbours)


@pytest.mark.slow
def test_blocks_are_in_query_order_and_small() -> None:
    gallery, ids = gaussian(9000, 4), np.arange(9000)
    blocks = list(search_blocks(gallery, ids, gallery, ids, 3))
    assert len(blocks) == 3
    assert np.array_equal(np.concatenate([block.queries for block in blocks]), ids)
    wide = next(iter(search_blocks(gallery, ids, gallery, ids, 5000)))
    assert wide.positions.size <= exact.CELLS


def test_refuses_values_that_are_not_finite() -> None:
    gallery = gaussian(10, 4)
    gallery[3, 2] = np.nan
    with pytest.raises(UserError, match=r"query row id 103.*1 such rows"):
        exact_search(gallery, np.arange(100, 110), gaussian(10, 4), np.arange(10), 2)
    with pytest.raises(UserError, match="gallery row id 13"):
        exact_search(gaussian(10, 4), np.arange(10), gallery, np.arange(10, 20), 2)


def test_refuses_repeated_ids() -> None:
    with pytest.raises(UserError, match="Row id 4 occurs twice"):
        exact_search(gaussian(3, 4), np.arange(3), gaussian(3, 4), np.array([4, 1, 4]), 2)


def test_detects_arithmetic_of_lower_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU build that multiplies in TF32 would omit neighbours, so its products are checked."""
    honest = exact._faiss

    def low_precision_search(gallery: np.ndarray) -> exact.Nearest:
        nearest = honest(gallery)

        def rounded(queries: np.ndarray, fetch: int) -> tuple[np.ndarray, np.ndarray]:
            values, neighbours = nearest(queries, fetch)
            return values + np.float32(1e-3), neighbours

        return rounded

    monkeypatch.setattr(exact, "_faiss", low_precision_search)
    with pytest.raises(UserError, match=r"off by 1\.0e-03"):
        exact_search(gaussian(100, 8), np.arange(100), gaussian(100, 8), np.arange(100), 2)


def test_a_gallery_on_several_devices_gives_equal_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAISS merges the results of its shards in its own order. Three CPU indexes replace three GPUs."""

    def spread(gallery: np.ndarray) -> exact.Nearest:
        index = faiss.IndexShards(gallery.shape[1], False, True)  # type: ignore[call-arg]  # not in its stubs
        for _ in range(3):
            index.add_shard(faiss.IndexFlatIP(gallery.shape[1]))
        index.add(gallery)
        return index.search

    ids = np.random.default_rng(3).permutation(1000)[:400]
    for gallery in (gaussian(400, 10), signs(400, 6), repeated(400, 5, 1)):
        expected = exact_search(gallery, ids, gallery, ids, 20)
        with monkeypatch.context() as patch:
            patch.setattr(exact, "_faiss", spread)
            actual = exact_search(gallery, ids, gallery, ids, 20)
        assert np.array_equal(actual[0], expected[0])
        assert np.array_equal(actual[1], expected[1])


@pytest.mark.gpu
@pytest.mark.skipif(faiss.get_num_gpus() == 0, reason="this FAISS has no GPU")
def test_gpu_and_cpu_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    gallery, ids = repeated(5000, 64, 3000), np.arange(5000)
    on_gpu = exact_search(gallery, ids, gallery, ids, 20)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 0)
    on_cpu = exact_search(gallery, ids, gallery, ids, 20)
    assert np.array_equal(on_gpu[0], on_cpu[0])
    assert np.array_equal(on_gpu[1], on_cpu[1])
