"""Similarity histograms: exact on small sets, unbiased when sampled, the same for the same seed."""

import math

import numpy as np
import pytest

from tests.oracles import generalization as oracle
from unseen.evaluation.analysis.similarity import _positive_pairs, negative_pairs, similarities


def sample(n: int = 60, dim: int = 5, classes: int = 7, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, n) * 3
    x = generator.normal(size=(n, dim)) + labels[:, None] * generator.normal(size=dim)
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), labels


@pytest.mark.parametrize("block", [2**22, 64])
def test_all_pairs_of_a_small_set(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unseen.evaluation.analysis.similarity._BLOCK", block)
    embeddings, labels = sample()
    positive, negative = oracle.pair_similarities(embeddings.astype(np.float64), labels)
    histograms = similarities(embeddings, labels, bins=20, limit=10_000)
    for histogram, expected in ((histograms.positive, positive), (histograms.negative, negative)):
        counts = np.histogram(expected, bins=20, range=(-1, 1))[0]
        # float32 may move a value that lies on an edge
        assert np.abs(histogram.share * len(expected) - counts).sum() <= 2
        assert (histogram.pairs, histogram.of) == (len(expected), len(expected))
        assert histogram.mean == pytest.approx(np.mean(expected), abs=1e-6)
        assert histogram.std == pytest.approx(np.std(expected), abs=1e-6)


def test_sampled_pairs_approximate_all_pairs_and_depend_on_the_seed() -> None:
    embeddings, labels = sample(n=400, classes=9)
    exact = similarities(embeddings, labels, bins=10, limit=10**9)
    sampled = similarities(embeddings, labels, bins=10, limit=4000, seed=1)
    assert sampled.positive.pairs == sampled.negative.pairs == 4000
    assert sampled.positive.of == exact.positive.pairs
    assert np.abs(sampled.positive.share - exact.positive.share).max() < 0.03
    assert np.abs(sampled.negative.share - exact.negative.share).max() < 0.03
    repeated, other_seed = (
        similarities(embeddings, labels, 10, 4000, seed=1),
        similarities(embeddings, labels, 10, 4000, seed=2),
    )
    assert np.array_equal(sampled.positive.share, repeated.positive.share)
    assert not np.array_equal(sampled.positive.share, other_seed.positive.share)


def test_drawn_pairs_are_uniform_over_the_pairs_of_their_kind() -> None:
    counts = np.array([1, 2, 3, 4])
    starts = np.array([0, 1, 3, 6])
    label = np.repeat(np.arange(4), counts)
    for draw, same_class in ((_positive_pairs, True), (negative_pairs, False)):
        first_rows, second_rows = draw(np.random.default_rng(0), starts, counts, 200_000)
        assert ((label[first_rows] == label[second_rows]) == same_class).all()
        assert (first_rows != second_rows).all()
        tally = np.bincount(
            np.minimum(first_rows, second_rows) * 10 + np.maximum(first_rows, second_rows), minlength=100
        )
        pairs = [
            i * 10 + j for i in range(10) for j in range(i + 1, 10) if (label[i] == label[j]) == same_class
        ]
        expected = 200_000 / len(pairs)
        assert np.abs(tally[pairs] - expected).max() < 6 * math.sqrt(expected)
        assert tally.sum() == tally[pairs].sum()


def test_overlap_is_zero_for_separated_and_one_for_equal_classes() -> None:
    separated = np.repeat(np.eye(2, dtype=np.float32), 3, axis=0)
    histograms = similarities(separated, np.repeat([0, 1], 3), bins=100, limit=1000)
    assert histograms.overlap == 0
    assert histograms.positive.share[-1] == 1  # cosine 1 falls into the last bin
    equal_vectors = similarities(
        np.ones((4, 2), dtype=np.float32), np.array([0, 0, 1, 1]), bins=100, limit=1000
    )
    assert equal_vectors.overlap == 1


def test_no_pairs_give_no_histogram() -> None:
    lone_images = similarities(np.eye(3, dtype=np.float32), np.arange(3), bins=10, limit=10)
    assert (lone_images.positive.pairs, lone_images.negative.pairs) == (0, 3)
    assert math.isnan(lone_images.positive.mean)
    assert lone_images.positive.share.sum() == 0
    one_class = similarities(np.eye(3, dtype=np.float32), np.zeros(3, dtype=int), bins=10, limit=10)
    assert (one_class.positive.pairs, one_class.negative.pairs) == (3, 0)
