"""The sign-flip permutation test by class of paired differences.

If two methods are exchangeable, swapping them in any class leaves the distribution of the difference as it
is. With D_c the part of class c in a difference of averages,

    p = (1 + #{|T_e| >= |T|}) / (1 + #e),   T_e = sum_c e_c D_c,   T = sum_c D_c,   e_c = +-1

over drawn e with equal probability of both signs, or exactly p = #{|T_e| >= |T|} / 2^C over all e if there
are at most as many as would be drawn (Ernst, Permutation methods, 2004, sec. 3; the 1 is the identity,
Phipson and Smyth 2010).
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

CHUNK = 256  # sign vectors in memory at a time
ROUNDING = 1e-12  # relative; equal sums that were added in different orders differ by less


def sign_flip_tests(
    sums: Float64[np.ndarray, "C M"], pairs: Sequence[tuple[int, int]], permutations: int, seed: int
) -> tuple[Float64[np.ndarray, "T"], bool]:
    """Two-sided p values of sum_c D_c of T pairs of M methods, and whether all 2^C sign vectors were counted.

    D_c = sums[c, second] - sums[c, first]. All pairs have the same sign vectors.
    """
    classes = len(sums)
    first, second = np.array(pairs).T
    # Equal sums may differ by rounding if they were added in another order.
    rounding = ROUNDING * np.abs(sums).sum(axis=0)
    least = np.abs((sums[:, second] - sums[:, first]).sum(axis=0)) - rounding[first] - rounding[second]
    exact = classes < 63 and 2**classes <= permutations
    count = 2**classes if exact else permutations
    random = np.random.default_rng(seed)
    as_large = np.zeros(len(pairs))
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        all_flips = (np.arange(start, start + size)[:, None] >> np.arange(classes)) & 1
        flipped = all_flips if exact else random.integers(2, size=(size, classes))
        totals = (1.0 - 2.0 * flipped) @ sums
        as_large += (np.abs(totals[:, second] - totals[:, first]) >= least).sum(axis=0)
    return (as_large / count if exact else (1 + as_large) / (1 + count)), exact
