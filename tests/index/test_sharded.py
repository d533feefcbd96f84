"""Search part by part: what exact search gives on the whole, in bounded memory, whatever engine multiplies."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import faiss
import numpy as np
import pytest

from pipeline.data.embeddings import read, write
from pipeline.index import exact
from pipeline.index.exact import exact_search
from pipeline.index.sharded import Shard, merge, sharded_search
from pipeline.runtime.errors import UserError


def unit(x: np.ndarray) -> np.ndarray:
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


GENERATOR = np.random.default_rng(0)
GALLERIES = {
    "gaussian": unit(GENERATOR.standard_normal((400, 10))),
    "signs": unit(np.sign(GENERATOR.standard_normal((400, 6)))),
    "one point": np.repeat(unit(GENERATOR.standard_normal((1, 5))), 400, axis=0),
}
IDS = GENERATOR.permutation(1000)[:400]


def cut(gallery: np.ndarray, *at: int) -> list[Shard]:
    return [Shard(ids, rows) for ids, rows in zip(np.split(IDS, at), np.split(gallery, at), strict=True)]


@pytest.mark.parametrize("name", GALLERIES)
@pytest.mark.parametrize("k", [1, 12, 399, 500])
def test_is_exact_search_of_the_whole(name: str, k: int) -> None:
    gallery = GALLERIES[name]
    expected = exact_search(gallery[:30], IDS[:30], gallery, IDS, k)
    for shards, rows in ((cut(gallery), 1 << 20), (cut(gallery, 7, 150), 1 << 20), (cut(gallery, 7, 7, 150, 400), 64), (cut(gallery), 33)):
        found = sharded_search(gallery[:30], IDS[:30], shards, k, rows)
        assert np.array_equal(found[0], expected[0])
        assert np.array_equal(found[1], expected[1])


def test_order_of_shards_changes_nothing() -> None:
    gallery = GALLERIES["signs"]
    shards = cut(gallery, 50, 200, 201)
    one, other = (sharded_search(gallery, IDS, order, 20) for order in (shards, shards[::-1]))
    assert np.array_equal(one[0], other[0])
    assert np.array_equal(one[1], other[1])


def test_files_are_read_one_after_another(tmp_path: Path) -> None:
    """A generator of mapped embedding files: the next is asked for when the last has been searched."""
    gallery, ids = GALLERIES["gaussian"], np.sort(IDS)
    for number, part in enumerate(np.split(np.arange(400), 4)):
        write(tmp_path / f"{number}.arrow", ids[part], np.zeros(len(part), np.int64), gallery[part])
    asked = []

    def shards() -> Iterator[Shard]:
        for path in sorted(tmp_path.glob("*.arrow")):
            asked.append(path.name)
            rows = read(path)
            yield Shard(rows.row_id, rows.embedding)

    found = sharded_search(gallery[:9], ids[:9], shards(), 6)
    expected = exact_search(gallery[:9], ids[:9], gallery, ids, 6)
    assert asked == ["0.arrow", "1.arrow", "2.arrow", "3.arrow"]
    assert np.array_equal(found[0], expected[0])


def test_memory_is_that_of_a_part() -> None:
    """200,000 rows made as they are asked for, 51 MB together, 1.3 MB at a time."""
    queries, rows, dim = unit(np.random.default_rng(1).standard_normal((4, 64))), 5000, 64

    def shards() -> Iterator[Shard]:
        for number in range(40):
            yield Shard(np.arange(number * rows, (number + 1) * rows), np.random.default_rng(number).standard_normal((rows, dim), dtype=np.float32))

    tracemalloc.start()
    try:
        sharded_search(queries, np.arange(-4, 0), shards(), 10)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * rows * dim * 4 + 200_000 * 8 < 40 * rows * dim * 4 / 4


@pytest.mark.parametrize("name", GALLERIES)
def test_a_gallery_spread_over_several_devices_gives_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAISS merges the results of its shards in an order of its own, three CPU indexes standing for three GPUs: the order here is the defined one."""

    def spread(gallery: np.ndarray) -> exact.Nearest:
        index = faiss.IndexShards(gallery.shape[1], False, True)
        for _ in range(3):
            index.add_shard(faiss.IndexFlatIP(gallery.shape[1]))
        index.add(gallery)
        return index.search

    gallery = GALLERIES[name]
    expected = exact_search(gallery, IDS, gallery, IDS, 20)
    monkeypatch.setattr(exact, "_faiss", spread)
    found = sharded_search(gallery, IDS, cut(gallery, 150), 20)
    assert np.array_equal(found[0], expected[0])
    assert np.array_equal(found[1], expected[1])


def test_merging_keeps_padding_last() -> None:
    ids = (np.array([[5, 2, -1]]), np.array([[1, 9, -1]]))
    similarities = (np.array([[0.5, 0.25, -np.inf]], np.float32), np.array([[0.5, 0.125, -np.inf]], np.float32))
    found, values = merge(ids, similarities, 5)
    assert found.tolist() == [[1, 5, 2, 9, -1]]
    assert values.tolist() == [[0.5, 0.5, 0.25, 0.125, -np.inf]]


def test_what_cannot_be_searched_is_named() -> None:
    gallery = GALLERIES["gaussian"]
    first, second = cut(gallery, 200)
    with pytest.raises(UserError, match=f"Row id {IDS[:200].min()} is in two shards of the gallery \\(200 such ids"):
        sharded_search(gallery[:2], IDS[:2], [first, second, first], 3)
    with pytest.raises(UserError, match="holds no image"):
        sharded_search(gallery[:2], IDS[:2], iter([]), 3)
    with pytest.raises(ValueError, match="9 dimensions, the queries have 10"):
        sharded_search(gallery[:2], IDS[:2], [Shard(first.row_id, first.embedding[:, :9])], 3)
    broken = second.embedding.copy()
    broken[3, 3] = np.nan
    with pytest.raises(UserError, match=f"row id {second.row_id[3]} holds a value that is not finite"):
        sharded_search(gallery[:2], IDS[:2], [first, Shard(second.row_id, broken)], 3)
