"""The map of an embedding is its projection on the first two principal axes, with the same images always."""

import numpy as np
import pytest

from unseen.evaluation.analysis.embedding_map import CLASSES, IMAGES, embedding_map


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


ROWS = np.arange(100, 100 + 20 * 12)
LABELS = np.repeat(np.arange(12), 20) + 3
X = unit(np.random.default_rng(0).normal(size=(240, 6)) + np.eye(6)[np.repeat(np.arange(12) % 6, 20)])


def test_the_points_are_the_projections_on_the_principal_axes() -> None:
    plane = embedding_map(ROWS, LABELS, X)
    assert plane is not None
    x = X[plane.rows - 100].astype(float)
    centred = x - x.mean(0)
    variances, axes = np.linalg.eigh(centred.T @ centred)
    for axis in range(2):
        expected = centred @ axes[:, -1 - axis]
        if expected[np.abs(expected).argmax()] < 0:
            expected = -expected
        np.testing.assert_allclose(plane.points[:, axis], expected, atol=1e-6)
        assert plane.variance[axis] == pytest.approx(variances[-1 - axis] / variances.sum(), rel=1e-6)


def test_it_has_the_first_images_of_a_sample_of_the_classes() -> None:
    plane = embedding_map(ROWS, LABELS, X)
    assert plane is not None
    names, counts = np.unique(plane.labels, return_counts=True)
    assert (len(names), set(counts)) == (CLASSES, {IMAGES})
    assert plane.labels.tolist() == LABELS[plane.rows - 100].tolist()
    for name in names:
        assert plane.rows[plane.labels == name].tolist() == ROWS[name == LABELS][:IMAGES].tolist()


def test_all_methods_have_the_same_images() -> None:
    first, second = (embedding_map(ROWS, LABELS, x) for x in (X, unit(X[:, :4] + 0.3)))
    assert first is not None
    assert second is not None
    assert np.array_equal(first.rows, second.rows)
    assert not np.allclose(first.points, second.points)


@pytest.mark.parametrize(
    "x", [unit(np.ones((240, 6))), np.ones((240, 1), np.float32)], ids=["no variance", "one dimension"]
)
def test_an_embedding_without_a_plane_has_no_map(x: np.ndarray) -> None:
    assert embedding_map(ROWS, LABELS, x) is None


def test_two_images_have_no_map() -> None:
    assert embedding_map(ROWS[:2], LABELS[:2], X[:2]) is None
