"""NMI: do k-means clusters of the embeddings fall together with the classes?

    NMI(U, V) = I(U; V) / ((H(U) + H(V)) / 2),    k = number of classes

(arithmetic mean, scikit-learn's default and most of the literature). It depends on where k-means started (Musgrave et al., A Metric Learning Reality
Check, sec. 3.2): optional here, for tables that have the column. The start is seeded; another BLAS may still end elsewhere.
"""

import faiss
import numpy as np
from jaxtyping import Float32, Int64

ITERATIONS = 20  # the number of pytorch-metric-learning, whose NMI most tables quote


def nmi(embeddings: Float32[np.ndarray, "N D"], labels: Int64[np.ndarray, "N"], seed: int) -> float:
    """NMI of the labels and as many clusters as there are labels; every row takes part."""
    clusters = len(np.unique(labels))
    kmeans = faiss.Kmeans(
        embeddings.shape[1], clusters, niter=ITERATIONS, seed=seed, min_points_per_centroid=1, max_points_per_centroid=len(labels), gpu=False
    )
    rows = np.ascontiguousarray(embeddings)
    kmeans.train(rows)
    _, nearest = kmeans.assign(rows)
    return mutual_information(labels, nearest.astype(np.int64))


def mutual_information(one: Int64[np.ndarray, "N"], other: Int64[np.ndarray, "N"]) -> float:
    """Normalised by the mean entropy: 1 for equal partitions, one cluster on both sides among them; 0 where one side alone is one cluster."""
    _, a, a_sizes = np.unique(one, return_inverse=True, return_counts=True)
    _, b, b_sizes = np.unique(other, return_inverse=True, return_counts=True)
    if len(a_sizes) == len(b_sizes) == 1:
        return 1.0
    cells, joint = np.unique(a * len(b_sizes) + b, return_counts=True)
    total = len(one)
    rows, columns = np.divmod(cells, len(b_sizes))
    shared = np.sum(joint / total * np.log(joint / a_sizes[rows] * (total / b_sizes[columns])))
    entropies = [-np.sum(sizes / total * np.log(sizes / total)) for sizes in (a_sizes, b_sizes)]
    return float(np.clip(shared / np.mean(entropies), 0.0, 1.0))
