"""Similarity histograms: exact on small sets, unbiased when sampled, the same for the same seed."""

import math

import numpy as np
import pytest

from pipeline.analysis.similarity import _negative_pairs, _positive_pairs, similarities
from tests.oracles import generalization as oracle


def sample(n: int = 60, dim: int = 5, classes: int = 7, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, n) * 3
    x = generator.normal(size=(n, dim)) + labels[:, None] * generator.normal(size=dim)
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), labels


@pytest.mark.parametrize("block", [2**22, 64])
def test_all_pairs_of_a_small_set(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.analysis.similarity._BLOCK", block)
    embeddings, labels = sample()
    positive, negative = oracle.pair_similarities(embeddings.astype(np.float64), labels)
    found = similarities(embeddings, labels, bins=20, limit=10_000)
    for mine, theirs in ((found.positive, positive), (found.negative, negative)):
        counts = np.histogram(theirs, bins=20, range=(-1, 1))[0]
        assert (
            np.abs(mine.share * len(theirs) - counts).sum() <= 2
        )  # float32 may move a value that lies on an edge
        assert (mine.pairs, mine.of) == (len(theirs), len(theirs))
        assert mine.mean == pytest.approx(np.mean(theirs), abs=1e-6)
        assert mine.std == pytest.approx(np.std(theirs), abs=1e-6)


def test_sampled_pairs_come_near_and_are_seeded() -> None:
    embeddings, labels = sample(n=400, classes=9)
    exact = similarities(embeddings, labels, bins=10, limit=10**9)
    drawn = similarities(embeddings, labels, bins=10, limit=4000, seed=1)
    assert drawn.positive.pairs == drawn.negative.pairs == 4000
    assert drawn.positive.of == exact.positive.pairs
    assert np.abs(drawn.positive.share - exact.positive.share).max() < 0.03
    assert np.abs(drawn.negative.share - exact.negative.share).max() < 0.03
    again, other = (
        similarities(embeddings, labels, 10, 4000, seed=1),
        similarities(embeddings, labels, 10, 4000, seed=2),
    )
    assert np.array_equal(drawn.positive.share, again.positive.share)
    assert not np.array_equal(drawn.positive.share, other.positive.share)


def test_drawn_pairs_are_uniform_over_the_pairs_of_their_kind() -> None:
    counts = np.array([1, 2, 3, 4])
    starts = np.array([0, 1, 3, 6])
    label = np.repeat(np.arange(4), counts)
    for draw, same in ((_positive_pairs, True), (_negative_pairs, False)):
        left, right = draw(np.random.default_rng(0), starts, counts, 200_000)
        assert ((label[left] == label[right]) == same).all()
        assert (left != right).all()
        tally = np.bincount(np.minimum(left, right) * 10 + np.maximum(left, right), minlength=100)
        wanted = [i * 10 + j for i in range(10) for j in range(i + 1, 10) if (label[i] == label[j]) == same]
        expected = 200_000 / len(wanted)
        assert np.abs(tally[wanted] - expected).max() < 6 * math.sqrt(expected)
        assert tally.sum() == tally[wanted].sum()


def test_overlap_separates() -> None:
    apart = np.repeat(np.eye(2, dtype=np.float32), 3, axis=0)
    found = similarities(apart, np.repeat([0, 1], 3), bins=100, limit=1000)
    assert found.overlap == 0
    assert found.positive.share[-1] == 1  # cosine 1 falls into the last bin
    same = similarities(np.ones((4, 2), dtype=np.float32), np.array([0, 0, 1, 1]), bins=100, limit=1000)
    assert same.overlap == 1


def test_without_pairs_there_is_no_histogram() -> None:
    found = similarities(np.eye(3, dtype=np.float32), np.arange(3), bins=10, limit=10)
    assert (found.positive.pairs, found.negative.pairs) == (0, 3)
    assert math.isnan(found.positive.mean)
    assert found.positive.share.sum() == 0
    one = similarities(np.eye(3, dtype=np.float32), np.zeros(3, dtype=int), bins=10, limit=10)
    assert (one.positive.pairs, one.negative.pairs) == (3, 0)
