"""PCA, PCA whitening and supervised whitening: scikit-learn, definitions, files, degenerate data."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from sklearn.decomposition import PCA

from tests.oracles import reduction as oracle
from unseen.evaluation import reduction
from unseen.evaluation.reduction import Reduction, apply, fit_pca, fit_whitening, save
from unseen.runtime.errors import UserError


def embeddings(rows: int, dim: int, seed: int = 0) -> np.ndarray:
    """Unit vectors with a mean, of unequal spread, correlated."""
    generator = np.random.default_rng(seed)
    x = (
        generator.standard_normal((rows, dim))
        * np.geomspace(1, 0.05, dim)
        @ generator.standard_normal((dim, dim))
        + 0.5
    )
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("dim", [1, 5, 12])
def test_equals_scikit_learn_and_unit_length(dim: int, whiten: bool) -> None:
    train, test = embeddings(300, 12), embeddings(40, 12, 1)
    sklearn_pca = PCA(dim, whiten=whiten, svd_solver="full").fit(train.astype(np.float64))
    reduction = fit_pca(train, dim, whiten)
    assert np.abs(reduction.mean - sklearn_pca.mean_).max() < 1e-12
    reduced = apply(reduction, test)
    assert reduced.dtype == np.float32
    # including signs: the largest entry of scikit-learn is positive
    assert np.abs(reduced - unit(sklearn_pca.transform(test.astype(np.float64)))).max() < 1e-6


def test_all_dimensions_of_pca_keep_every_centred_angle() -> None:
    train, test = embeddings(100, 8), embeddings(30, 8, 1)
    reduction = fit_pca(train, 8)
    centred = unit(test - reduction.mean)
    assert np.abs(apply(reduction, test) @ apply(reduction, test).T - centred @ centred.T).max() < 1e-6


def test_whitened_training_set_has_covariance_one() -> None:
    train = embeddings(500, 10)
    reduction = fit_pca(train, 6, whiten=True)
    _, covariance = oracle.covariance((train - reduction.mean) @ reduction.projection.T)
    assert np.abs(covariance - np.eye(6)).max() < 1e-9


def matching(rows: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    x = np.repeat(embeddings(rows // 2, dim), 2, axis=0) + 0.05 * generator.standard_normal(
        (rows, dim)
    ) * np.geomspace(3, 0.3, dim)
    return unit(x).astype(np.float32), np.arange(rows).reshape(-1, 2)


def test_supervised_whitening_equals_the_definition() -> None:
    """Differences of pairs have covariance one, and projections are uncorrelated with descending variance.
    This determines P up to signs."""
    x, pairs = matching(400, 7)
    reduction = fit_whitening(x, pairs, 7)
    within = reduction.projection @ oracle.between_pairs(x, pairs) @ reduction.projection.T
    assert np.abs(within - np.eye(7)).max() < 1e-9
    assert np.abs(reduction.mean - x[pairs[:, 0]].mean(axis=0, dtype=np.float64)).max() < 1e-12
    projected = (x.astype(np.float64) - reduction.mean) @ reduction.projection.T
    spread = projected.T @ projected
    assert np.abs(spread - np.diag(np.diag(spread))).max() < 1e-9 * spread.max()
    assert (np.diff(np.diag(spread)) < 0).all()
    assert np.allclose(fit_whitening(x, pairs, 3).projection, reduction.projection[:3], atol=1e-12)


def test_supervised_whitening_suppresses_differences_within_pairs() -> None:
    """Matching images differ much in one direction in which objects do not differ. PCA keeps the direction,
    whitening removes it."""
    generator = np.random.default_rng(0)
    objects = generator.standard_normal((100, 6)) * [0, 1, 1, 1, 1, 1]
    x = (
        np.repeat(objects, 4, axis=0) + generator.standard_normal((400, 6)) * [6, 0.1, 0.1, 0.1, 0.1, 0.1]
    ).astype(np.float32)
    pairs = np.array([(4 * o + a, 4 * o + b) for o in range(100) for a in range(4) for b in range(a)])
    labels = np.repeat(np.arange(100), 4)

    def hits(reduced: np.ndarray) -> float:
        similarity = reduced @ reduced.T
        np.fill_diagonal(similarity, -2)
        return float((labels[similarity.argmax(axis=1)] == labels).mean())

    assert hits(apply(fit_whitening(x, pairs, 4), x)) > hits(apply(fit_pca(x, 4), x)) + 0.3


def test_does_not_depend_on_scale_or_order_of_the_rows() -> None:
    train, test = embeddings(200, 9), embeddings(20, 9, 1)
    expected = apply(fit_pca(train, 4), test)
    shuffled = np.random.default_rng(0).permutation(200)
    assert np.abs(apply(fit_pca(train[shuffled], 4), test) - expected).max() < 1e-6
    assert np.abs(apply(fit_pca(4 * train, 4), 4 * test) - expected).max() < 1e-6


def test_does_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    x, pairs = matching(100, 5)
    expected = [apply(fit, x) for fit in (fit_pca(x, 3), fit_whitening(x, pairs, 3))]
    monkeypatch.setattr(reduction, "BLOCK", 7)
    blocked = [apply(fit, x) for fit in (fit_pca(x, 3), fit_whitening(x, pairs, 3))]
    assert np.abs(np.array(expected) - np.array(blocked)).max() < 1e-6


def test_signs_are_deterministic() -> None:
    """Mirrored data give the same directions with the same signs."""
    train = embeddings(100, 6)
    reduction, mirrored = fit_pca(train, 6), fit_pca(-train, 6)
    assert np.allclose(reduction.projection, mirrored.projection, atol=1e-9)
    assert (reduction.projection[np.arange(6), np.abs(reduction.projection).argmax(axis=1)] > 0).all()


def test_refuses_more_dimensions_than_exist() -> None:
    embeddings_of_five = embeddings(5, 12)
    assert apply(fit_pca(embeddings_of_five, 4), embeddings(9, 12, 1)).shape == (9, 4)
    for dim in (5, 12, 13):
        with pytest.raises(
            UserError, match=f"vary in 4 of their 12 dimensions, so they cannot be reduced to {dim}"
        ):
            fit_pca(embeddings_of_five, dim)
    with pytest.raises(UserError, match="vary in 0 of their 12"):
        fit_pca(np.repeat(embeddings_of_five[:1], 50, axis=0), 1)
    flat = embeddings(100, 6) * np.array([1, 1, 1, 1, 0, 0], np.float32)
    with pytest.raises(UserError, match="vary in 4 of their 6"):
        fit_pca(flat, 5, whiten=True)


def test_refuses_too_few_pairs() -> None:
    x, pairs = matching(40, 7)
    with pytest.raises(UserError, match="6 matching pairs vary in 6 of 7 directions"):
        fit_whitening(x, pairs[:6], 3)
    with pytest.raises(UserError, match="vary in 0 of 7"):
        fit_whitening(x, np.stack([pairs[:, 0]] * 2, axis=1), 3)


def test_an_embedding_at_the_mean_has_no_direction() -> None:
    fit = Reduction(np.array([0.25, 0.5, 0.75]), np.eye(3)[:2])
    with pytest.raises(UserError, match="row 1 equals the mean"):
        apply(fit, np.array([[1, 0, 0], [0.25, 0.5, 0.75]], np.float32))
    with pytest.raises(ValueError, match="3 input dimensions, the embeddings 4"):
        apply(fit, np.ones((1, 4), np.float32))


def test_saves_mean_and_projection_with_equal_bytes(tmp_path: Path) -> None:
    fit = fit_pca(embeddings(100, 6), 4, whiten=True)
    path = tmp_path / "pca.safetensors"
    save(path, fit)
    first = path.read_bytes()
    arrays = load_file(path)
    assert arrays.keys() == {"mean", "projection"}
    assert np.array_equal(arrays["mean"], fit.mean)
    assert np.array_equal(arrays["projection"], fit.projection)
    save(path, Reduction(**arrays))
    assert path.read_bytes() == first
