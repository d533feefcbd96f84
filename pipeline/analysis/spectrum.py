"""The singular values of an embedding: into how many directions it spreads what it knows.

    rho = KL(u || s) = 1/d sum_i ln( (1/d) / s_i )      s: singular values of X (N x D), not centred, divided by their sum;  d = min(N, D)

Roth et al. (ICML 2020), metrics/rho_spectrum.py, and eq. 7 of CRT; natural logarithm; 0 when all directions are used alike, larger the more the
spectrum decays. Their mode m leaves the |m| - 1 largest values out first and divides the rest by its own sum; m > 0 is KL(u || s), m < 0 is
KL(s || u) = sum_i s_i ln(d s_i) = ln d - entropy(s). The number of both papers is mode 1; their authors found modes 2 to 10 to tell a little more
about generalisation (issue 8 of the repository).

Deviation: their CPU path takes a randomised SVD that loses the smallest value. KL(u || s) is ruled by the smallest values, so here the SVD
is full and in float64, of the triangular factor of a QR that runs over blocks of rows (backward stable, unlike the eigenvalues of X^T X,
which square the condition number). Values under eps of the stored type (1.2e-7 for float32) times the largest are rounding, not geometry:
they are lifted to that floor, so that a dead dimension gives a large finite number that is the same on every machine, and they are counted.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import qr
from scipy.special import entr

from pipeline.analysis.rows import unit_blocks

MODES = {
    name if m == 1 else f"{name}_at_{m}": sign * m
    for name, sign in (("spectral_decay", 1), ("spectral_decay_reversed", -1))
    for m in range(1, 11)  # the modes that the released code logs
}


@dataclass(frozen=True)
class Spectrum:
    """`values` descend and sum to 1. `floored`: how many were rounding noise and were lifted to the floor."""

    values: Float[np.ndarray, " d"]
    floored: int


def spectrum(embeddings: Float[np.ndarray, "N D"]) -> Spectrum:
    """Normalised singular values of the uncentred rows, O(N D^2), one block of rows in memory. Raises ValueError for an empty set."""
    if not len(embeddings):
        raise ValueError("spectrum of no embeddings")
    n, dim = embeddings.shape
    factor = np.zeros((0, dim))
    for _, block in unit_blocks(embeddings):
        factor = qr(np.vstack((factor, block)), mode="r", check_finite=False)[0][:dim]
    values = np.linalg.svd(factor, compute_uv=False)[: min(n, dim)]
    return _floored(values, float(np.finfo(embeddings.dtype).eps))


def _floored(values: Float[np.ndarray, " d"], resolution: float) -> Spectrum:
    floor = resolution * values[0]
    lifted = np.maximum(values, floor)
    return Spectrum(lifted / lifted.sum(), int((values < floor).sum()))


def spectral_decay(values: Float[np.ndarray, " d"], mode: int = 1) -> float:
    """KL(uniform || values / sum) in nats, of the values without the `mode` - 1 largest; the other direction for a negative mode.

    Infinite in the first direction where a value is zero. Raises ValueError for mode 0 and where no positive value is left.

    >>> values = np.array([5, 2, 1, 1, 0.5, 0.5])
    >>> round(spectral_decay(values), 5), round(spectral_decay(values, -1), 5)
    (0.35811, 0.36321)
    """
    if mode == 0:
        raise ValueError("mode 0 names no direction: 1 is KL(uniform || values), -1 is KL(values || uniform)")
    kept = np.sort(np.asarray(values, dtype=np.float64))[::-1][abs(mode) - 1 :]
    if not len(kept) or kept[0] <= 0:
        raise ValueError(f"spectral decay needs a positive value after dropping {abs(mode) - 1} of {len(values)}")
    share = kept / kept.sum()
    if mode < 0:
        return float(np.log(len(kept)) - entr(share).sum())
    with np.errstate(divide="ignore"):
        return float(-np.log(len(kept)) - np.log(share).mean())


def decay_modes(values: Float[np.ndarray, " d"]) -> dict[str, float]:
    """Every mode under its name: spectral_decay (mode 1), spectral_decay_at_2 to _at_10, and the same of spectral_decay_reversed for -1 to -10.

    NaN for a mode that leaves no value.
    """
    return {name: spectral_decay(values, mode) if abs(mode) <= len(values) else float("nan") for name, mode in MODES.items()}


def pca_energy(embeddings: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " D"]:
    """Share of the variance about the mean that the first k principal axes hold, k = 1..D. All zeros when every row is the same."""
    n, dim = embeddings.shape
    mean = sum((block.sum(0) for _, block in unit_blocks(embeddings)), np.zeros(dim)) / n
    scatter = np.zeros((dim, dim))
    for _, block in unit_blocks(embeddings):
        centred = block - mean
        scatter += centred.T @ centred
    variances = np.clip(np.linalg.eigvalsh(scatter)[::-1], 0, None)
    if variances[0] <= n * np.finfo(np.float64).eps ** 2:  # rounding of rows that are all alike
        return np.zeros(dim)
    return np.minimum(np.cumsum(variances) / variances.sum(), 1.0)


def dims_for(energy: Float[np.ndarray, " D"], share: float = 0.9) -> int:
    """The fewest principal axes that hold `share` of the variance; 0 when there is none."""
    if energy[-1] == 0:
        return 0
    return int(np.searchsorted(energy, share - 1e-12) + 1)
