"""Spectral decay: how unevenly an embedding uses its directions, by its singular values.

    rho = KL(u || s) = 1/d sum_i ln( (1/d) / s_i ),    d = min(N, D)
    s: singular values of X (N x D), not centred, divided by their sum

Roth et al. (ICML 2020), metrics/rho_spectrum.py, and eq. 7 of CRT, with the natural logarithm. It is 0 if all
directions are used equally, and grows with the decay of the spectrum. Mode m of the released code first
removes the |m| - 1 largest values and divides the rest by its sum; m > 0 is KL(u || s), m < 0 is KL(s || u) =
sum_i s_i ln(d s_i) = ln d - entropy(s). Both papers report mode 1. According to issue 8 of the released code,
modes 2 to 10 are slightly more informative about generalisation.

Deviation: on a CPU the released code uses a randomised SVD, which loses the smallest value. KL(u || s)
depends mostly on the smallest values, so here the SVD is full and in float64, of the triangular factor of a
QR over blocks of rows. (This is backward stable; the eigenvalues of X^T X square the condition number.)
Values below eps of the stored type (1.2e-7 for float32) times the largest are rounding. They are raised to
this floor and counted, so that a dead dimension gives a large finite number that is the same on every
machine.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import qr
from scipy.special import entr

from unseen.evaluation.analysis.rows import unit_blocks

MODES = {
    name if m == 1 else f"{name}_at_{m}": sign * m
    for name, sign in (("spectral_decay", 1), ("spectral_decay_reversed", -1))
    for m in range(1, 11)  # the modes that the released code logs
}


@dataclass(frozen=True)
class Spectrum:
    """`values` descend and sum to 1; `floored` of them were raised to the floor."""

    values: Float[np.ndarray, " d"]
    floored: int


def spectrum(embeddings: Float[np.ndarray, "N D"]) -> Spectrum:
    """Normalised singular values of the uncentred rows, in O(N D^2) with one block of rows in memory.

    Raises ValueError for an empty set.
    """
    if not len(embeddings):
        raise ValueError("spectrum of no embeddings")
    n, dim = embeddings.shape
    factor = np.zeros((0, dim))
    for _, block in unit_blocks(embeddings):
        factor = qr(np.vstack((factor, block)), mode="r", check_finite=False)[0][:dim]
    values = np.linalg.svd(factor, compute_uv=False)[: min(n, dim)]
    floor = float(np.finfo(embeddings.dtype).eps) * values[0]
    raised = np.maximum(values, floor)
    return Spectrum(raised / raised.sum(), int((values < floor).sum()))


def spectral_decay(values: Float[np.ndarray, " d"], mode: int = 1) -> float:
    """KL(uniform || values / sum) in nats, without the |mode| - 1 largest values.

    A negative mode gives the reversed divergence.

    It is infinite for a positive mode if a value is zero. Raises ValueError for mode 0, and if no positive
    value remains.

    >>> values = np.array([5, 2, 1, 1, 0.5, 0.5])
    >>> round(spectral_decay(values), 5), round(spectral_decay(values, -1), 5)
    (0.35811, 0.36321)
    """
    if mode == 0:
        raise ValueError("mode 0 is undefined: 1 is KL(uniform || values), -1 is KL(values || uniform)")
    rest = np.sort(np.asarray(values, dtype=np.float64))[::-1][abs(mode) - 1 :]
    if not len(rest) or rest[0] <= 0:
        raise ValueError(
            f"spectral decay needs a positive value after dropping {abs(mode) - 1} of {len(values)}"
        )
    share = rest / rest.sum()
    if mode < 0:
        return float(np.log(len(rest)) - entr(share).sum())
    with np.errstate(divide="ignore"):
        return float(-np.log(len(rest)) - np.log(share).mean())


def decay_modes(values: Float[np.ndarray, " d"]) -> dict[str, float]:
    """All modes by name; NaN for a mode that removes all values.

    Names: spectral_decay (mode 1), spectral_decay_at_2 to _at_10, and ..._reversed for -1 to -10.
    """
    return {
        name: spectral_decay(values, mode) if abs(mode) <= len(values) else float("nan")
        for name, mode in MODES.items()
    }


def pca_energy(embeddings: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " D"]:
    """Share of the variance in the first k principal axes, k = 1..D; zeros if all rows are equal."""
    n, dim = embeddings.shape
    mean = sum((block.sum(0) for _, block in unit_blocks(embeddings)), np.zeros(dim)) / n
    scatter = np.zeros((dim, dim))
    for _, block in unit_blocks(embeddings):
        centred = block - mean
        scatter += centred.T @ centred
    variances = np.clip(np.linalg.eigvalsh(scatter)[::-1], 0, None)
    if variances[0] <= n * np.finfo(np.float64).eps ** 2:  # rounding of equal rows
        return np.zeros(dim)
    return np.minimum(np.cumsum(variances) / variances.sum(), 1.0)


def dims_for(energy: Float[np.ndarray, " D"], share: float = 0.9) -> int:
    """The smallest number of principal axes with `share` of the variance; 0 if there is no variance."""
    if energy[-1] == 0:
        return 0
    return int(np.searchsorted(energy, share - 1e-12) + 1)
