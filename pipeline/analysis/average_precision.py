"""Average precision of a class as a query over all images, by ordering what matters of its scores.

    AP = 1/R sum_{k = 1..R} k / (k + o_k)        o_k: images of other classes before the k-th best image of the class

An image of another class within TIE of the k-th stands before it: equal scores count against. Only o_k is asked for, so what scores below the worst
image of the class is left out of the order.
"""

import numpy as np
from jaxtyping import Float

TIE = 1e-12  # less is rounding


def average_precision(scores: Float[np.ndarray, " n"], start: int, stop: int) -> float:
    """AP where the images `start` to `stop` are sought. `scores` is used up: it is ordered in place."""
    own = np.sort(scores[start:stop]) - TIE
    scores[start:stop] = -np.inf
    reach = scores >= own[0]
    if 2 * np.count_nonzero(reach) < len(scores):
        scores = scores[np.flatnonzero(reach)]
    scores.sort()
    before = len(scores) - scores.searchsorted(own)
    found = np.arange(len(own), 0, -1)
    return float((found / (found + before)).mean())
