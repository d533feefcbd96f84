"""Pairs of classes with images that are more similar than the median within a class."""

import tracemalloc
from itertools import combinations

import numpy as np
import pytest

from unseen.report import doubtful_labels as module
from unseen.report.doubtful_labels import SimilarClasses, doubtful_labels


@pytest.mark.parametrize("block", [7, 40, 1 << 24])
@pytest.mark.parametrize("seed", range(3))
def test_equal_the_definition(monkeypatch: pytest.MonkeyPatch, block: int, seed: int) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(np.arange(5) * 3, [4, 1, 6, 3, 5]))
    vectors = generator.normal(size=(5, 4))[labels // 3] + 1.5 * generator.normal(size=(len(labels), 4))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    pairs = list(combinations(range(len(labels)), 2))
    cosine = {pair: float(vectors[pair[0]] @ vectors[pair[1]]) for pair in pairs}
    median = float(np.median([cosine[a, b] for a, b in pairs if labels[a] == labels[b]]))
    above: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for a, b in pairs:
        if labels[a] != labels[b] and cosine[a, b] > median:
            classes = sorted((int(labels[a]), int(labels[b])))
            above.setdefault((classes[0], classes[1]), []).append((a, b))
    result = doubtful_labels(vectors, labels, 3)
    assert result.median == pytest.approx(median, abs=1e-6)
    assert result.classes == len(above) > 3
    best = sorted(
        (max(group, key=lambda pair: cosine[pair]) for group in above.values()), key=lambda p: -cosine[p]
    )
    expected = [(*pair, len(next(group for group in above.values() if pair in group))) for pair in best[:3]]
    assert [(each.first, each.second, each.pairs) for each in result.similar] == expected
    assert [each.similarity for each in result.similar] == pytest.approx(
        [cosine[p] for p in best[:3]], abs=1e-6
    )


def test_separated_classes_are_not_doubtful() -> None:
    vectors = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32)
    assert doubtful_labels(vectors, np.array([0, 0, 1, 1]), 5).similar == ()
    swapped = doubtful_labels(vectors, np.array([0, 0, 1, 0]), 5)
    assert swapped.median == 0.0
    assert swapped.similar == (SimilarClasses(2, 3, 1.0, 1),)


def test_classes_of_one_image_have_no_median() -> None:
    assert doubtful_labels(np.eye(3, dtype=np.float32), np.arange(3), 5).median is None


def test_memory_does_not_grow_with_the_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two million pairs of images, and of classes, are above the median: 16 MB for the cosines alone."""
    monkeypatch.setattr(module, "_BLOCK", 1 << 14)
    vectors = np.random.default_rng(0).normal(size=(3000, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    labels = np.repeat(np.arange(1500), 2)
    tracemalloc.start()
    result = doubtful_labels(vectors, labels, 5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.classes > 500_000
    assert peak < 6 * 2**20
