"""Embedding density (ESD): the spread within classes, relative to the distance between classes.

    D_intra = 1/|C+| sum_{c in C+}  1/(N_c (N_c - 1)) sum_{i != j in c} (1 - <x_i, x_j>)
    D_inter = 1/(C (C - 1)) sum_{c != c'} (1 - <m_c, m_c'>)
    density = D_intra / max(D_inter, 1e-8)
    C+: classes of two images or more;  m_c: class mean, L2-normalised

Roth et al., "Revisiting Training Strategies and Generalization Performance in Deep Metric Learning" (ICML
2020), as in their code (metrics/dists.py): cosine distances, unweighted mean over classes, between class
*centres*. On unit vectors 1 - <a, b> = |a - b|^2 / 2. The mean of this over all pairs is the unbiased
variance about the mean, sum_i |x_i - mean|^2 / (N - 1), which costs O(N D) and is exactly zero for
duplicates.

Deviation: a class of one image has no D_intra. Their code is intended to give it the largest D_intra of the
other classes, but uses the mask of these classes as *indices*: it fills in the larger value of the first two
classes, and NaN if one of these two has one image. Here such classes count in D_inter, are excluded from
D_intra, and are counted. Without such classes the result equals that of their code: in the four benchmarks
every test class has two images or more.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from unseen.evaluation.analysis.rows import class_means, unit_blocks


@dataclass(frozen=True)
class Density:
    """Cosine distances in [0, 2].

    `intra` is NaN if no class has two images, `inter` if there is one class.
    """

    intra: float
    inter: float
    ratio: float  # intra / max(inter, 1e-8)
    classes: int
    single_image_classes: int  # excluded from intra


def embedding_density(embeddings: Float[np.ndarray, "N D"], labels: Int[np.ndarray, " N"]) -> Density:
    """ESD for any integer labels. Raises ValueError for an empty set or a row without direction."""
    if not len(embeddings):
        raise ValueError("embedding density of no embeddings")
    names, label = np.unique(labels, return_inverse=True)
    counts = np.bincount(label)
    means = class_means(embeddings, label, len(names))
    residual = np.zeros(len(names))
    for rows, x in unit_blocks(embeddings):
        residual += np.bincount(
            label[rows], weights=((x - means[label[rows]]) ** 2).sum(1), minlength=len(names)
        )
    pairs = counts >= 2
    intra = float((residual[pairs] / (counts[pairs] - 1)).mean()) if pairs.any() else float("nan")

    inter = _mean_distance(means) if len(names) > 1 else float("nan")
    ratio = intra / max(inter, 1e-8) if np.isfinite(inter) else float("nan")
    return Density(intra, inter, ratio, len(names), int((~pairs).sum()))


def _mean_distance(means: Float[np.ndarray, "C D"]) -> float:
    """Mean cosine distance between different rows.

    A class mean of zero has no direction and has distance 1 from every other class.
    """
    norms = np.linalg.norm(means, axis=1, keepdims=True)
    directed = norms[:, 0] > 1e-12
    centres = np.divide(means, norms, out=np.zeros_like(means), where=norms > 1e-12)
    spread = ((centres - centres.mean(0)) ** 2).sum() / (len(centres) - 1)
    return float(spread + 1 - directed.mean())  # 1 - <a, b> = |a - b|^2 / 2 + 1 - (|a|^2 + |b|^2) / 2
