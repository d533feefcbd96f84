"""Average precision of a class that is a query over all images.

    AP = 1/R sum_{k = 1..R} k / (k + o_k)      o_k: images of other classes before the k-th image of the class

Ties count against the class: an image of another class within TIE of the k-th is before it. Only o_k is
needed, so images with a lower score than the worst image of the class are not sorted.
"""

import numpy as np
from jaxtyping import Float

TIE = 1e-12  # smaller differences are rounding


def average_precision(scores: Float[np.ndarray, " n"], start: int, stop: int) -> float:
    """AP if the images `start` to `stop` are relevant. Overwrites `scores`."""
    relevant = np.sort(scores[start:stop]) - TIE
    scores[start:stop] = -np.inf
    reach = scores >= relevant[0]
    if 2 * np.count_nonzero(reach) < len(scores):
        scores = scores[np.flatnonzero(reach)]
    scores.sort()
    others = len(scores) - scores.searchsorted(relevant)
    rank = np.arange(len(relevant), 0, -1)  # among the relevant images
    return float((rank / (rank + others)).mean())
