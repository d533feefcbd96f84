"""Density and spectral decay as the released code of Roth et al. (ICML 2020) computes them, including its
errors.

metrics/dists.py and metrics/rho_spectrum.py of Confusezius/Revisiting_Deep_Metric_Learning_PyTorch. Features
have unit norm."""

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import entropy
from sklearn.decomposition import TruncatedSVD


def intra(features: np.ndarray, labels: np.ndarray) -> float:
    """Mean over classes of the mean off-diagonal cosine distance.

    A class of one image divides 0 by 0. The replacement is intended to be the largest value of the other
    classes. But `1 - isnan` is an array of the integers 0 and 1, so that it selects the classes at positions
    0 (once per class without a value) and 1 (once per class with one)."""
    values = []
    for label in np.unique(labels):
        rows = features[labels == label]
        pairs = len(rows) ** 2 - len(rows)
        values.append(cdist(rows, rows, "cosine").sum() / pairs if pairs else np.nan)
    looked_at = [values[0 if np.isnan(value) else 1] for value in values]
    fallback = np.nan if np.isnan(looked_at).any() else max(looked_at)
    return float(np.mean([value if np.isfinite(value) else fallback for value in values]))


def inter(features: np.ndarray, labels: np.ndarray) -> float:
    """Mean off-diagonal cosine distance between normalised class means."""
    centres = np.stack([features[labels == label].mean(axis=0) for label in np.unique(labels)])
    distances = cdist(centres, centres, "cosine")
    return float(distances.sum() / (len(centres) ** 2 - len(centres)))


def density(features: np.ndarray, labels: np.ndarray) -> float:
    return intra(features, labels) / max(inter(features, labels), 1e-8)


def full_singular_values(features: np.ndarray) -> np.ndarray:
    """The path of features on a GPU: the complete decomposition."""
    return np.linalg.svd(features, compute_uv=False)


def truncated_singular_values(features: np.ndarray) -> np.ndarray:
    """The path of features in numpy: a randomised decomposition with one component less than the
    dimension."""
    return (
        TruncatedSVD(n_components=features.shape[1] - 1, n_iter=7, random_state=42)
        .fit(features)
        .singular_values_
    )


def rho_spectrum(singular_values: np.ndarray, mode: int) -> float:
    """Mode m drops the |m| - 1 largest values; KL(uniform || s) for m > 0 and KL(s || uniform) for m < 0. The
    number of the paper is mode 1."""
    values = singular_values[abs(mode) - 1 :]
    uniform = np.ones(len(values)) / len(values)
    return float(
        entropy(uniform, values / values.sum()) if mode > 0 else entropy(values / values.sum(), uniform)
    )
