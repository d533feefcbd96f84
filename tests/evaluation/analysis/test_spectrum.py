"""Spectral decay and PCA energy equal literals and the complete SVD. Rotation and scale do not change
them."""

import numpy as np
import pytest

from tests.oracles import generalization as oracle
from tests.oracles import released_generalization as released
from unseen.evaluation.analysis.spectrum import (
    MODES,
    decay_modes,
    dims_for,
    pca_energy,
    spectral_decay,
    spectrum,
)

LITERAL = [5, 2, 1, 1, 0.5, 0.5]


def embeddings(n: int, dim: int, decay: float = 0.8) -> np.ndarray:
    x = np.random.default_rng(n + dim).normal(size=(n, dim)) * decay ** np.arange(dim)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_literals_of_both_directions() -> None:
    assert spectral_decay(np.array(LITERAL)) == pytest.approx(0.358110, abs=1e-6)
    assert oracle.kl_uniform_first(LITERAL) == pytest.approx(0.358110, abs=1e-6)
    # the two directions differ
    assert spectral_decay(np.array(LITERAL), -1) == pytest.approx(0.363208, abs=1e-6)
    assert oracle.kl_uniform_second(LITERAL) == pytest.approx(0.363208, abs=1e-6)


def test_modes_drop_the_largest_values() -> None:
    for mode in range(1, 7):
        assert spectral_decay(np.array(LITERAL), mode) == pytest.approx(
            oracle.kl_uniform_first(LITERAL[mode - 1 :]), rel=1e-13, abs=1e-15
        )
        assert spectral_decay(np.array(LITERAL), -mode) == pytest.approx(
            oracle.kl_uniform_second(LITERAL[mode - 1 :]), rel=1e-13, abs=1e-15
        )
    with pytest.raises(ValueError, match="after dropping 6 of 6"):
        spectral_decay(np.array(LITERAL), 7)
    with pytest.raises(ValueError, match="mode 0 is undefined"):
        spectral_decay(np.array(LITERAL), 0)


def test_names_of_the_modes() -> None:
    modes = decay_modes(np.array(LITERAL))
    assert len(modes) == 20
    assert modes["spectral_decay"] == spectral_decay(np.array(LITERAL), 1)
    assert modes["spectral_decay_at_3"] == spectral_decay(np.array(LITERAL), 3)
    assert modes["spectral_decay_reversed_at_3"] == spectral_decay(np.array(LITERAL), -3)
    assert modes["spectral_decay_at_6"] == 0  # one value remains
    assert np.isnan(modes["spectral_decay_at_7"])
    assert np.isnan(modes["spectral_decay_reversed_at_10"])


@pytest.mark.parametrize(("n", "dim"), [(300, 16), (60, 60)])
def test_every_mode_equals_the_released_code(n: int, dim: int) -> None:
    x = embeddings(n, dim).astype(np.float32)
    values = spectrum(x).values
    for mode in MODES.values():
        expected = released.rho_spectrum(released.full_singular_values(x.astype(np.float64)), mode)
        assert spectral_decay(values, mode) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_the_released_code_on_numpy_features_omits_the_smallest_value() -> None:
    """Its randomised path omits the smallest singular value, which changes the result."""
    x = embeddings(300, 16, decay=0.7)
    truncated = released.rho_spectrum(released.truncated_singular_values(x), 1)
    assert truncated == pytest.approx(spectral_decay(spectrum(x).values[:-1]), rel=1e-6)
    assert spectral_decay(spectrum(x).values) > 1.05 * truncated


def test_flat_spectrum_is_zero_and_scale_does_not_matter() -> None:
    assert spectral_decay(np.full(17, 3.0)) == pytest.approx(0, abs=1e-14)
    assert spectral_decay(np.array(LITERAL) * 1e6) == pytest.approx(
        spectral_decay(np.array(LITERAL)), rel=1e-13
    )
    assert spectral_decay(np.array([1.0, 0.0])) == np.inf
    assert spectral_decay(np.array([1.0, 0.0]), -1) == pytest.approx(np.log(2), rel=1e-15)


@pytest.mark.parametrize(("n", "dim"), [(300, 12), (40, 40), (9, 30), (1, 5), (20, 1)])
def test_blocked_qr_gives_the_singular_values_of_the_whole_matrix(
    n: int, dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unseen.evaluation.analysis.rows.BLOCK", 7)
    x = embeddings(n, dim)
    expected = oracle.singular_values(x)
    blocked = spectrum(x)
    assert len(blocked.values) == min(n, dim)
    np.testing.assert_allclose(blocked.values, expected / expected.sum(), rtol=1e-9, atol=1e-15)
    assert spectral_decay(blocked.values) == pytest.approx(
        oracle.kl_uniform_first(expected.tolist()), rel=1e-9, abs=1e-12
    )


def test_keeps_small_singular_values() -> None:
    """Eigenvalues of X^T X lose values below 1e-8 of the largest; KL(u || s) would be wrong in its leading
    digits."""
    generator = np.random.default_rng(0)
    left_vectors, right_vectors = (
        np.linalg.qr(generator.normal(size=(200, 6)))[0],
        np.linalg.qr(generator.normal(size=(6, 6)))[0],
    )
    x = left_vectors @ np.diag([1, 1e-2, 1e-4, 1e-6, 1e-9, 1e-12]) @ right_vectors
    expected = oracle.singular_values(x)
    assert spectral_decay(spectrum(x).values) == pytest.approx(
        oracle.kl_uniform_first(expected.tolist()), rel=1e-5
    )


def test_rotation_and_order_do_not_matter() -> None:
    x = embeddings(80, 10)
    generator = np.random.default_rng(5)
    turned = (x @ np.linalg.qr(generator.normal(size=(10, 10)))[0])[generator.permutation(80)]
    np.testing.assert_allclose(spectrum(turned).values, spectrum(x).values, rtol=1e-10)
    np.testing.assert_allclose(pca_energy(turned), pca_energy(x), rtol=1e-10)


def test_rows_are_not_centred() -> None:
    x = embeddings(50, 4) + np.array([10.0, 0, 0, 0])
    assert spectrum(x).values[0] > 0.8  # the mean direction has the largest value; centring would remove it


def test_zero_singular_values_are_floored_and_counted() -> None:
    x = np.zeros((30, 6), dtype=np.float32)
    x[:, :4] = embeddings(30, 4)
    result = spectrum(x)
    assert result.floored == 2
    values = oracle.singular_values(x)
    values[4:] = values[0] * np.finfo(np.float32).eps
    assert spectral_decay(result.values) == pytest.approx(oracle.kl_uniform_first(values.tolist()), rel=1e-9)
    assert spectrum(embeddings(30, 4)).floored == 0


def test_pca_energy_of_known_variances() -> None:
    angle = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle), np.zeros(400)], axis=1)
    np.testing.assert_allclose(pca_energy(circle), [0.5, 1, 1], atol=1e-12)
    assert dims_for(pca_energy(circle)) == 2
    assert dims_for(pca_energy(circle), share=0.5) == 1


def test_pca_energy_equals_the_svd_of_centred_rows() -> None:
    x = embeddings(60, 8)
    squares = np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2
    np.testing.assert_allclose(pca_energy(x), np.cumsum(squares) / squares.sum(), rtol=1e-10)


def test_equal_rows_have_no_variance() -> None:
    x = np.tile(embeddings(1, 5).astype(np.float32), (9, 1))
    assert pca_energy(x).tolist() == [0] * 5
    assert dims_for(pca_energy(x)) == 0


def test_refuses_no_embeddings() -> None:
    with pytest.raises(ValueError, match="no embeddings"):
        spectrum(np.zeros((0, 3)))
