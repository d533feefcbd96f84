"""Zero-shot transfer of attributes: prediction of the embeddings of classes that the fit excludes.

(GSP sec. 5.1 and fig. 5.) The classes are split at random into two halves. On the images of the first half
the ridge predictor of eq. P3 is fitted,

    A = argmin_A sum_i |A z_i - v_{y_i}|^2 + ridge |A|^2 = V Z^T (Z Z^T + ridge I)^{-1}
        z_i (M) attributes of image i,  v_c (D) embedding of class c

and predicts vhat_i = A z_i for the images of the second half. Each class of that half is a query, which
orders all images of the half by -|vhat_i - v_c|_2 and by cosine; its own images are relevant. MAP is the mean
of the average precision over these classes. Mean and standard deviation are over the splits.

As published: v_c is the mean of the embeddings of the class, ridge 0.05 (sec. 4.4), 1,000 splits. The paper
does not state what is ranked. With one embedding per class and many images per class, MAP has more than one
relevant item only if the classes are the queries.

    AP = 1/R sum_{k = 1..R} k / (k + o_k)      o_k: images of other classes before the k-th image of the class

Ties (within TIE) count against a class, so constant attributes get the worst score. `chance` is the expected
MAP of a random order.

A split uses at most `classes` classes, drawn for each split, so that memory and time are independent of the
size of the data set. With at most that many classes (CUB, Cars-196, CIFAR) every split divides all of them,
as in the paper.

The cost of a split is the scores of its held-out images and their order, because the
fit is over classes and not over images. It needs the sum s_c of the attributes of each class and Z_c^T Z_c.
With S (C x M) and V (C x D) of the classes in the fit, and W = (Z^T Z + ridge I)^{-1} S^T:

    <v_c, A z> = z^T W V v_c        |A z|^2 = z^T W V V^T W^T z

The number of threads is that of FAISS (OMP_NUM_THREADS), at most 8; the scores do not depend on it.
"""

import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import faiss
import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import qr
from threadpoolctl import threadpool_limits

from unseen.evaluation.analysis.rows import class_means
from unseen.runtime.progress import Progress

LEAST_CLASSES = 4
TIE = 1e-12  # smaller differences are rounding
CELLS = 1 << 21  # scores of a thread at a time: 16 MiB
ROWS = 2048  # images at a time in float64
TURN = 8  # splits that one thread computes in the same memory
MOST_THREADS = 8
PROGRESS_FROM = 1 << 29  # scores; fewer take less than a few seconds


@dataclass(frozen=True)
class Transfer:
    """MAP in [0, 1], mean and standard deviation over splits."""

    l2: float
    l2_std: float
    cosine: float
    cosine_std: float
    chance: float
    classes: int  # in both halves of a split together


class Table(NamedTuple):
    """The values that all splits share. Images are sorted by class."""

    attributes: Float[np.ndarray, "N M"]
    starts: Int[np.ndarray, " C"]
    counts: Int[np.ndarray, " C"]
    sums: Float[np.ndarray, "C M"]
    factors: list[Float[np.ndarray, "r M"]]  # F of each class: F^T F = Z_c^T Z_c, r <= min(images, M)
    means: Float[np.ndarray, "C D"]


def attribute_transfer(
    attributes: Float[np.ndarray, "N M"],
    embeddings: Float[np.ndarray, "N D"],
    labels: Int[np.ndarray, " N"],
    splits: int = 1000,
    ridge: float = 0.05,
    classes: int = 200,
    seed: int = 0,
    title: str | None = None,
) -> Transfer:
    """Transfer between halves of the classes of N images. Equal seeds give equal splits.

    `title` is the name of the progress line of long work. Raises ValueError for fewer than four classes (a
    half needs two, because all predictions from one class have the same direction), attributes that are not
    finite, an embedding without direction, and a ridge that is not positive.
    """
    names, label = np.unique(labels, return_inverse=True)
    drawn_classes = min(len(names), classes)
    if drawn_classes < LEAST_CLASSES:
        raise ValueError(f"zero-shot transfer needs four classes, two for each half; got {drawn_classes}")
    if ridge <= 0:
        raise ValueError(f"ridge must be positive, got {ridge}")
    if not np.isfinite(attributes).all():
        raise ValueError(
            f"attributes of image {int(np.argmax(~np.isfinite(attributes).all(1)))} are not finite"
        )
    table = _table(attributes, label, class_means(embeddings, label, len(names)))
    generator = np.random.default_rng(seed)
    drawn = [generator.permutation(len(names))[:drawn_classes] for _ in range(splits)]
    held_out = drawn_classes - drawn_classes // 2
    long = splits * held_out**2 * len(labels) / len(names) > PROGRESS_FROM
    scores: list[tuple[float, float, float]] = []
    with (
        Progress(title if long else None, splits, "splits") as progress,
        threadpool_limits(1, user_api="blas"),  # in so small a product, threads of BLAS wait for each other
        ThreadPoolExecutor(min(faiss.omp_get_max_threads(), MOST_THREADS)) as pool,
    ):
        for turn in pool.map(
            lambda start: _turn(table, drawn[start : start + TURN], ridge), range(0, splits, TURN)
        ):
            scores += turn
            progress.advance(len(turn))
    of_splits = np.array(scores)
    (l2, cosine, chance), (l2_std, cosine_std, _) = of_splits.mean(0).tolist(), of_splits.std(0).tolist()
    return Transfer(l2, l2_std, cosine, cosine_std, chance, drawn_classes)


def _table(
    attributes: Float[np.ndarray, "N M"], label: Int[np.ndarray, " N"], means: Float[np.ndarray, "C D"]
) -> Table:
    counts = np.bincount(label)
    starts = np.cumsum(counts) - counts
    rows = attributes[np.argsort(label, kind="stable")]
    groups = [rows[start : start + count] for start, count in zip(starts, counts, strict=True)]
    sums = np.stack([group.sum(0, dtype=np.float64) for group in groups])
    factors = [
        group if len(group) <= group.shape[1] else qr(group.astype(np.float64), mode="r")[0][: group.shape[1]]
        for group in groups
    ]
    return Table(rows, starts, counts, sums, factors, means)


def _turn(
    table: Table, drawn: Sequence[Int[np.ndarray, " c"]], ridge: float
) -> list[tuple[float, float, float]]:
    """MAP by L2 distance, by cosine and by chance of each split.

    Its first half of the classes is for the fit.
    """
    halves = [np.split(chosen, [len(chosen) // 2]) for chosen in drawn]
    images = max(int(table.counts[held].sum()) for _, held in halves)
    memory = np.empty(max(images, min(CELLS, images * max(len(held) for _, held in halves))))
    return [_split(table, fit, held, ridge, memory) for fit, held in halves]


def _split(
    table: Table,
    fit: Int[np.ndarray, " c"],
    held: Int[np.ndarray, " h"],
    ridge: float,
    memory: Float[np.ndarray, " m"],
) -> tuple[float, float, float]:
    weights = fit_ridge(
        np.concatenate([table.factors[c] for c in fit]).astype(np.float64), table.sums[fit], ridge
    )
    toward = (weights @ (table.means[fit] @ table.means[held].T)).T  # A^T v_c of each query
    square = weights @ (table.means[fit] @ table.means[fit].T) @ weights.T  # A^T A
    counts = table.counts[held]
    ends = np.cumsum(counts)
    ranges = zip(table.starts[held], counts, strict=True)
    images = np.concatenate([np.arange(start, start + count) for start, count in ranges])
    squares, inverse = np.empty(len(images)), np.zeros(len(images))  # |A z_i|^2 and 1 / |A z_i|
    by_l2, by_cosine = [], []
    step = max(1, len(memory) // len(images))
    for first in range(0, len(held), step):
        queries = toward[first : first + step]
        products = memory[: len(queries) * len(images)].reshape(len(queries), -1)  # <v_c, A z_i>
        for start in range(0, len(images), ROWS):
            part = slice(start, start + ROWS)
            z = table.attributes.take(images[part], axis=0).astype(np.float64)
            np.matmul(queries, z.T, out=products[:, part])
            if not first:
                squares[part] = np.einsum("im,im->i", z @ square, z).clip(min=0)
        if not first:
            np.divide(1, np.sqrt(squares), out=inverse, where=squares > 0)
        for row, end, count in zip(products, ends[first:].tolist(), counts[first:].tolist(), strict=False):
            by_cosine.append(average_precision(row * inverse, end - count, end))  # |v_c| is constant in a row
            row *= 2
            row -= squares  # -|v_c - A z_i|^2 + |v_c|^2
            by_l2.append(average_precision(row, end - count, end))
    chance = float(chance_ap(counts, len(images)).mean())
    return statistics.fmean(by_l2), statistics.fmean(by_cosine), chance


def average_precision(scores: Float[np.ndarray, " n"], start: int, stop: int) -> float:
    """AP if the images `start` to `stop` are relevant. Overwrites `scores`.

    Only o_k is needed, so images with a lower score than the worst image of the class are not sorted.
    """
    relevant = np.sort(scores[start:stop]) - TIE
    scores[start:stop] = -np.inf
    reach = scores >= relevant[0]
    if 2 * np.count_nonzero(reach) < len(scores):
        scores = scores[np.flatnonzero(reach)]
    scores.sort()
    others = len(scores) - scores.searchsorted(relevant)
    rank = np.arange(len(relevant), 0, -1)  # among the relevant images
    return float((rank / (rank + others)).mean())


def fit_ridge(
    attributes: Float[np.ndarray, "n M"], sums: Float[np.ndarray, "C M"], ridge: float
) -> Float[np.ndarray, "M C"]:
    """W = (Z^T Z + ridge I)^{-1} S^T, with A = V^T W^T.

    All images of a class have the same target, so the fit needs only the sum of their attributes. attributes:
    Z, or any F with F^T F = Z^T Z. sums: of the attributes of each class.
    """
    solution: np.ndarray = np.linalg.solve(
        attributes.T @ attributes + ridge * np.eye(attributes.shape[1]), sums.T
    )
    return solution


def chance_ap(relevant: Int[np.ndarray, " C"], images: int) -> Float[np.ndarray, " C"]:
    """Expected average precision of a random order of N = `images`, of which R = `relevant` are relevant.

    E = 1/N sum_k (1 + (k - 1) (R - 1) / (N - 1)) / k = 1/N (H + (N - H) (R - 1) / (N - 1)),  H = sum_k 1/k,
    because a relevant image has each rank k with equal probability, and its share of the R - 1 others before.
    """
    harmonic = (1 / np.arange(1, images + 1)).sum()
    return (harmonic + (images - harmonic) * (relevant - 1) / max(images - 1, 1)) / images
