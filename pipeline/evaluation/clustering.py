"""NMI: the agreement of k-means clusters of the embeddings with the classes.

    NMI(U, V) = I(U; V) / ((H(U) + H(V)) / 2),    k = number of classes

The divisor is the arithmetic mean, as in scikit-learn's default and most of the literature. NMI depends on
the start of k-means (Musgrave et al., A Metric Learning Reality Check, sec. 3.2), so it is optional, for
tables with such a column. The start is seeded; another BLAS may still converge to another result.
"""

import faiss
import numpy as np
from jaxtyping import Float32, Int64

ITERATIONS = 20  # as in pytorch-metric-learning, the source of most published NMI values


def nmi(embeddings: Float32[np.ndarray, "N D"], labels: Int64[np.ndarray, "N"], seed: int) -> float:
    """NMI of the labels with as many clusters as there are classes, over all rows."""
    clusters = len(np.unique(labels))
    kmeans = faiss.Kmeans(
        embeddings.shape[1],
        clusters,
        niter=ITERATIONS,
        seed=seed,
        min_points_per_centroid=1,
        max_points_per_centroid=len(labels),
        gpu=False,
    )
    rows = np.ascontiguousarray(embeddings)
    kmeans.train(rows)
    _, nearest = kmeans.assign(rows)
    return mutual_information(labels, nearest.astype(np.int64))


def mutual_information(first: Int64[np.ndarray, "N"], second: Int64[np.ndarray, "N"]) -> float:
    """Mutual information of two partitions, normalised by their mean entropy.

    It is 1 for equal partitions, also if both have a single part, and 0 if only one of them has a single
    part.
    """
    _, a, a_sizes = np.unique(first, return_inverse=True, return_counts=True)
    _, b, b_sizes = np.unique(second, return_inverse=True, return_counts=True)
    if len(a_sizes) == len(b_sizes) == 1:
        return 1.0
    cells, joint = np.unique(a * len(b_sizes) + b, return_counts=True)
    total = len(first)
    rows, columns = np.divmod(cells, len(b_sizes))
    information = np.sum(joint / total * np.log(joint / a_sizes[rows] * (total / b_sizes[columns])))
    entropies = [-np.sum(sizes / total * np.log(sizes / total)) for sizes in (a_sizes, b_sizes)]
    return float(np.clip(information / np.mean(entropies), 0.0, 1.0))
