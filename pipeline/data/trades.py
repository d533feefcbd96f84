"""Random batches of P distinct classes in which each class occurs a given number of times, in O(T P log T).

A start that is always possible is randomised by trades. The start lays the classes in random order, class c
r_c times in a row, around the T batches: place i belongs to batch i mod T, so that the r_c <= T places of a
class are in different batches. In a round the batches are paired at random, and each pair trades: classes
that are in both remain, the others are divided at random between the two. Trades keep the size of a batch,
its classes distinct, and the r_c; repeated, they lead to the uniform distribution over all such batches
(curveball: Strona et al. 2014, Nat. Commun. 5:4114; Carstens 2015, Phys. Rev. E 91:042812; rounds in which
all batches trade: Carstens, Hamann, Meyer, Penschuck, Tran and Wagner 2018, ESA).

After k rounds a chunk can be in any of 2^k batches, and two classes of one batch of the start remain together
with a probability of about 2^-k. With log2(T) + 4 rounds, the share of batches that two classes have in
common because of the start is at most 1/16 of the share that they have in common by chance.
"""

import numpy as np
from jaxtyping import Int64

EXTRA_ROUNDS = 4
_BITS = 31  # of a class, and of the random number that orders it in a trade


def trade(
    generator: np.random.Generator, remaining: Int64[np.ndarray, "C"], classes: int, steps: int
) -> Int64[np.ndarray, "T P"]:
    """The classes of `steps` batches of `classes` (P). `remaining`: r_c, at most T, with the sum P T."""
    order = generator.permutation(np.flatnonzero(remaining))
    batches = np.ascontiguousarray(np.repeat(order, remaining[order]).reshape(classes, steps).T)
    half = steps // 2
    for _ in range(int(np.ceil(np.log2(max(steps, 2)))) + EXTRA_ROUNDS if half else 0):
        turn = generator.permutation(steps)
        left, right = turn[:half], turn[half : 2 * half]
        batches[left], batches[right] = _traded(generator, batches[left], batches[right])
    return batches


def _traded(
    generator: np.random.Generator, left: Int64[np.ndarray, "h P"], right: Int64[np.ndarray, "h P"]
) -> tuple[Int64[np.ndarray, "h P"], Int64[np.ndarray, "h P"]]:
    """Each row of `left` after a trade with the same row of `right`.

    A class of both comes first in one copy and last in the other, so that each side receives one.
    """
    both = np.sort(np.concatenate([left, right], axis=1), axis=1)
    turn = generator.integers(1, 1 << _BITS, both.shape)
    rows, columns = np.nonzero(both[:, 1:] == both[:, :-1])
    turn[rows, columns] = 0
    turn[rows, columns + 1] = 1 << _BITS
    turn <<= _BITS
    turn |= both
    turn.sort(axis=1)
    turn &= (1 << _BITS) - 1
    return turn[:, : left.shape[1]], turn[:, left.shape[1] :]
