"""Similarities on landmark benchmarks: the pairs of the ground truth, without junk, queries and other
benchmarks."""

import numpy as np
import pyarrow as pa
import pytest

from unseen.data.embeddings import Embeddings
from unseen.evaluation.analysis.ground_truth import benchmark_similarities
from unseen.runtime.errors import UserError

# row -> cosine to the first axis; rows 10 and 11 are the queries of `a`, rows 20 of `b`
COSINES = {10: 1.0, 11: 0.8, 12: 0.6, 13: 0.5, 14: 0.0, 15: -0.6, 20: 1.0, 21: 0.9, 22: -1.0}
TRUTH = pa.table(
    {
        "benchmark": ["a", "a", "b"],
        "query": [10, 11, 20],
        "easy": [[12], [], [21]],
        "hard": [[13], [14], []],
        "junk": [[14], [15], []],
    }
)


def embeddings() -> Embeddings:
    rows = np.array(list(COSINES))
    cosines = np.array(list(COSINES.values()), np.float32)
    query = np.isin(rows, [10, 11, 20])
    return Embeddings(
        rows, (rows >= 20).astype(np.int64), np.stack([cosines, np.sqrt(1 - cosines**2)], 1), query, ~query
    )


def test_pairs_are_those_of_the_ground_truth() -> None:
    result = benchmark_similarities(embeddings(), TRUTH, 20)
    assert list(result) == ["a", "b"]
    vectors = dict(zip(COSINES, embeddings().embedding, strict=True))

    def mean(*pairs: tuple[int, int]) -> float:
        return float(np.mean([vectors[left] @ vectors[right] for left, right in pairs]))

    first, second = result["a"], result["b"]
    # easy and hard; junk 14 of query 10 is an image of query 11
    assert (first.positive.pairs, first.positive.of) == (3, 3)
    assert first.positive.mean == pytest.approx(mean((10, 12), (10, 13), (11, 14)), abs=1e-6)
    # of query 10: 15; of query 11: 12 and 13; no query, no junk, no image of `b`
    assert first.negative.pairs == 3
    assert first.negative.mean == pytest.approx(mean((10, 15), (11, 12), (11, 13)), abs=1e-6)
    assert (second.positive.mean, second.negative.mean) == (pytest.approx(0.9), pytest.approx(-1.0))
    assert first.positive.share.sum() == pytest.approx(1)
    np.testing.assert_allclose(first.edges[[0, -1]], [-1, 1])


def test_refuses_embeddings_without_a_query() -> None:
    rows = embeddings()
    without = Embeddings(*(column[1:] for column in rows[:5]))
    with pytest.raises(UserError, match="lack query 10 of the ground truth of a"):
        benchmark_similarities(without, TRUTH, 20)
