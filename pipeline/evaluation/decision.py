"""Which product a photo shows: rules that score the products of a catalog, and the choice among them.

With the unit vectors x_i of a catalog (N x D), its products c with n_c photos, and the vector q of a photo:

    nearest               s_c = max_{i in c} q x_i
    votes                 s_c = sum over the VOTES nearest photos, those of c, of q x_i / VOTES
    class mean            s_c = cos(q, m_c),                      m_c = sum_{i in c} x_i / n_c
    whitened class mean   s_c = cos(L^-1 (q - m), L^-1 (m_c - m)),  S = L L', m = sum_i x_i / N
    ... with margin       s_c - max_{d != c} s_d

S is the covariance of the vectors without labels, shrunk towards a multiple of the identity (Ledoit and Wolf,
A well-conditioned estimator for large-dimensional covariance matrices, 2004):

    S = (1 - r) T + r (tr T / D) I,   T = sum_i (x_i - m)(x_i - m)' / N
    r = min(1, sum_i ||(x_i - m)(x_i - m)' - T||^2 / (N^2 ||T - (tr T / D) I||^2)), at least 1 / N

Normally distributed vectors have an r of 2 / N or more; two vectors would have 0, and S no inverse. Vectors
that are all equal have S = I.

The product with the largest score is the answer; a photo whose largest score is below a threshold is unknown
(unknown.py). Each photo of the catalog is left out once alone, as a photo of a known product, and once with
all photos of its product, as one of an unknown product. Photos that are left out do not whiten: with n of
the N whitened photos left out (the rows of A), a = (1 - r) / N and r kept, every product of two whitened
vectors u, v becomes, with d = -A'1 / (N - n), which moves m, u* = u - d and v* = v - d,

    u* v* + a (A u*)' (I - 11' / N - a A A')^-1 (A v*)          (Woodbury)

`choose`: the value of a photo for a rule is the mean over FALSE of 1 if it is answered right, -1 if wrong, 0
if unknown, at the threshold at which this share of the photos whose product is left out gets an answer. Rules
are compared with `nearest` by the rule of statistics/better.py; the best of those that are better is chosen.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int64

NEAREST, VOTING, MEAN, WHITENED = "nearest", "votes", "class mean", "whitened class mean"
WITH_MARGIN = " with margin"
RULES = (NEAREST, NEAREST + WITH_MARGIN, VOTING, MEAN, WHITENED, WHITENED + WITH_MARGIN)
VOTES = 10  # nearest photos
FALSE = (0.05, 0.1, 0.2, 1.0)  # shares of photos of unknown products that get an answer; 1: no threshold
LEAST = 0.005  # difference of the values of two rules
MOST_PHOTOS = 20_000  # that are left out; whole products are drawn
_BLOCK = 1 << 25  # cosines in memory at a time


class LeftOut(NamedTuple):
    """P photos of a catalog, each left out alone and with its product."""

    row: Int64[np.ndarray, "P"]  # of the catalog, ascending
    label: Int64[np.ndarray, "P"]  # 0 to C - 1
    other: Float32[np.ndarray, "P"]  # score of the answer without the product: of an unknown product
    rival: Int64[np.ndarray, "P"]  # that answer
    known: Float32[np.ndarray, "P"]  # score of the answer without the photo; NaN: its product has no other
    answer: Int64[np.ndarray, "P"]  # that answer

    @property
    def right(self) -> np.ndarray:
        """Whether the answer without the photo is its product."""
        return (self.answer == self.label) & ~np.isnan(self.known)


class Means(NamedTuple):
    """The products of a catalog as directions."""

    centre: Float32[np.ndarray, "D"]  # m; 0 for `class mean`
    whitener: Float32[np.ndarray, "D D"] | None  # L^-1; None for `class mean`
    products: Float32[np.ndarray, "C D"]  # unit vectors of L^-1 (m_c - m)

    def scores(self, vectors: Float32[np.ndarray, "Q D"]) -> Float32[np.ndarray, "Q C"]:
        """s_c of Q photos without margin, at most 1."""
        mapped = _mapped(vectors, self.centre, self.whitener)
        return np.minimum(np.float32(1), _unit(mapped) @ self.products.T)


class Choice(NamedTuple):
    """A rule on the photos of a catalog, compared with a control, see `ranked`."""

    rule: str
    value: float  # mean of 1, -1 and 0, see `choose`
    right: float  # share of the known photos that are answered right without a threshold
    difference: float = 0.0  # of the values
    low: float | None = None  # of its interval over classes; None: too few classes, or the control itself
    high: float | None = None
    outcome: str = "control"  # better.py


def drawn(
    labels: Int64[np.ndarray, "N"], trained: Bool[np.ndarray, "C"], most: int = MOST_PHOTOS, seed: int = 0
) -> Int64[np.ndarray, "P"]:
    """The rows of all products, or of drawn products with at most `most` rows: those that the model was
    trained on last."""
    if len(labels) <= most:
        return np.arange(len(labels))
    order = np.random.default_rng(seed).permutation(len(trained))
    order = order[np.argsort(trained[order], kind="stable")]
    sizes = np.bincount(labels, minlength=len(trained))[order]
    chosen = order[: max(2, np.count_nonzero(np.cumsum(sizes) <= most))]
    return np.flatnonzero(np.isin(labels, chosen))


def means(
    rule: str,
    vectors: Float32[np.ndarray, "N D"],
    labels: Int64[np.ndarray, "N"],
    rows: Int64[np.ndarray, "P"],
) -> Means:
    """The products for `class mean` or `whitened class mean`. labels: 0 to C - 1. rows: of the photos that
    whiten."""
    centre, whitener, _ = _whitening(rule, vectors, rows)
    products = _mapped(_class_means(vectors, labels), centre, whitener)
    return Means(centre, whitener, _unit(products))


def left_out(
    vectors: Float32[np.ndarray, "N D"],
    labels: Int64[np.ndarray, "N"],
    rows: Int64[np.ndarray, "P"],
    rules: Sequence[str] = (NEAREST,),
) -> dict[str, LeftOut]:
    """By rule, what the photos `rows` get, each left out of the catalog. labels: 0 to C - 1.

    Raises ValueError for fewer than two products.
    """
    classes = int(labels.max(initial=-1)) + 1
    if classes < 2:
        raise ValueError("leaving out a product needs two products or more")
    tables = {
        rule: LeftOut(
            rows,
            labels[rows],
            np.empty(len(rows), np.float32),
            np.empty(len(rows), np.int64),
            np.empty(len(rows), np.float32),
            np.empty(len(rows), np.int64),
        )
        for rule in rules
    }
    kinds = list(dict.fromkeys(rule.removesuffix(WITH_MARGIN) for rule in rules))
    of_photos = [kind for kind in kinds if kind in (NEAREST, VOTING)]
    blocks = [_of_photos(of_photos, vectors, labels, rows)] if of_photos else []
    blocks += [_of_means(kind, vectors, labels, rows) for kind in kinds if kind in (MEAN, WHITENED)]
    for kind, part, alone, without in chain.from_iterable(blocks):
        for rule in tables.keys() & {kind, kind + WITH_MARGIN}:
            table, has_margin = tables[rule], rule.endswith(WITH_MARGIN)
            table.known[part], table.answer[part] = best(alone, has_margin)
            table.other[part], table.rival[part] = best(without, has_margin)
    alone_of_product = np.bincount(labels)[labels[rows]] == 1
    for table in tables.values():
        table.known[alone_of_product] = np.nan
    return tables


def joined(tables: Sequence[LeftOut]) -> LeftOut:
    """The photos of several tables, whose labels are those of one set of products."""
    return LeftOut(*(np.concatenate(columns) for columns in zip(*tables, strict=True)))


def best(
    scores: Float[np.ndarray, "Q C"], has_margin: bool
) -> tuple[Float32[np.ndarray, "Q"], Int64[np.ndarray, "Q"]]:
    """The largest score, less the second one with a margin (-1 without a second product), and its product."""
    place, each = scores.argmax(axis=1), np.arange(len(scores))
    value = scores[each, place]
    if has_margin:
        others = scores.copy()
        others[each, place] = -np.inf
        value = value - np.maximum(others.max(axis=1), -1)
    return value.astype(np.float32), place


def choose(tables: Mapping[str, LeftOut]) -> list[Choice]:
    """All rules, the chosen one first, then by value. The first is `nearest` if the classes are too few."""
    return ranked(tables, {rule: _values(table) for rule, table in tables.items()}, NEAREST)


def ranked(
    tables: Mapping[str, LeftOut], values: Mapping[str, Float64[np.ndarray, "P"]], control: str
) -> list[Choice]:
    """The rules by the values of their photos: the best one of those that are better than `control`, or
    `control`, then the others by value. Without a photo of a known product, `control` alone."""
    known = ~np.isnan(tables[control].known)
    if not known.any():
        return [Choice(control, 0.0, 0.0)]
    rights = {rule: float(table.right[known].mean()) for rule, table in tables.items()}
    others = [rule for rule in tables if rule != control]
    # A search imports this module and chooses nothing: SciPy would be a fifth of its time.
    from unseen.evaluation.statistics.better import compare, decide
    from unseen.evaluation.statistics.table import of_queries

    table = of_queries(
        [values[rule][known][None] for rule in (control, *others)], tables[control].label[known]
    )
    compared = compare(table, [(0, place) for place in range(1, len(others) + 1)])
    verdicts = decide(compared, [LEAST] * len(others), [None] * len(others))
    choices = [
        Choice(rule, of.second, rights[rule], of.difference, of.low, of.high, verdict.outcome)
        for rule, verdict in zip(others, verdicts, strict=True)
        for of in [verdict.comparison]
    ]
    choices.append(Choice(control, float(values[control][known].mean()), rights[control]))
    ahead = {rule for rule, verdict in zip(others, verdicts, strict=True) if verdict.sign > 0} or {control}
    return sorted(choices, key=lambda choice: (choice.rule not in ahead, -choice.value))


def _values(table: LeftOut) -> Float64[np.ndarray, "P"]:
    """The value of each photo, see the head of this file."""
    signs = np.where(table.right, 1.0, -1.0)
    descending = np.sort(table.other)[::-1]
    least = [descending[min(len(descending) - 1, int(share * len(descending)))] for share in FALSE[:-1]]
    answered = [table.known > score for score in least]
    return signs * np.mean([*answered, np.ones(len(signs))], axis=0)


Scores = tuple[str, slice | Int64[np.ndarray, "_"], np.ndarray, np.ndarray]


def _of_photos(
    kinds: Sequence[str],
    vectors: Float32[np.ndarray, "N D"],
    labels: Int64[np.ndarray, "N"],
    rows: Int64[np.ndarray, "P"],
) -> Iterator[Scores]:
    """Kind and place of a block of `rows`, the scores of all products without the photo, and without its
    product, whose score is -inf."""
    classes = int(labels.max()) + 1
    turn = np.argsort(labels, kind="stable")
    gallery, sorted_labels = vectors[turn], labels[turn]
    starts = np.searchsorted(sorted_labels, np.arange(classes))
    place = np.empty(len(turn), np.int64)
    place[turn] = np.arange(len(turn))
    step = max(1, _BLOCK // len(labels))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        chosen, own = rows[part], labels[rows[part]]
        each = np.arange(len(chosen))
        cosines = vectors[chosen] @ gallery.T
        cosines[each, place[chosen]] = -np.inf
        if NEAREST in kinds:
            alone = np.maximum.reduceat(cosines, starts, axis=1)
            without = alone.copy()
            without[each, own] = -np.inf
            yield NEAREST, part, alone, without
        if VOTING in kinds:
            alone = _votes(cosines, sorted_labels, classes)
            cosines[sorted_labels == own[:, None]] = -np.inf
            without = _votes(cosines, sorted_labels, classes)
            without[each, own] = -np.inf
            yield VOTING, part, alone, without


def _votes(
    cosines: Float32[np.ndarray, "Q N"], labels: Int64[np.ndarray, "N"], classes: int
) -> Float64[np.ndarray, "Q C"]:
    count = min(VOTES, cosines.shape[1])
    nearest = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
    votes = np.maximum(np.take_along_axis(cosines, nearest, axis=1), 0) / VOTES  # -inf: left out
    scores = np.zeros((len(cosines), classes))
    np.add.at(scores, (np.arange(len(cosines))[:, None], labels[nearest]), votes)
    return scores


def _of_means(
    kind: str,
    vectors: Float32[np.ndarray, "N D"],
    labels: Int64[np.ndarray, "N"],
    rows: Int64[np.ndarray, "P"],
) -> Iterator[Scores]:
    """As `_of_photos`, for the photos of one product after the other."""
    centre, whitener, weight = _whitening(kind, vectors, rows)
    count = np.inf if whitener is None else float(len(rows))
    products = _mapped(_class_means(vectors, labels), centre, whitener)
    squares, sizes = np.square(products, dtype=np.float64).sum(axis=1), np.bincount(labels)
    order = np.argsort(labels[rows], kind="stable")
    own, starts = np.unique(labels[rows][order], return_index=True)
    for product, part in zip(own.tolist(), np.split(order, starts[1:]), strict=True):
        photos = _mapped(vectors[rows[part]], centre, whitener)
        inner = (photos @ products.T).astype(np.float64)
        gram = (photos @ photos.T).astype(np.float64)
        length, size = gram.diagonal(), sizes[product]

        # Without the photo, the mean of the other photos of its product is its own.
        others, norms, rest = inner.copy(), np.tile(squares, (len(part), 1)), max(size - 1, 1)
        others[:, product] = (size * inner[:, product] - length) / rest
        norms[:, product] = size**2 * squares[product] - 2 * size * inner[:, product] + length
        norms[:, product] = np.maximum(norms[:, product], 0) / rest**2
        alone = _without(others[:, None], length[:, None, None], norms, weight, count)[:, 0]
        without = _without(inner[None], gram[None], squares[None], weight, count)[0]
        without[:, product] = -np.inf
        yield kind, part, alone, without


def _without(
    inner: Float64[np.ndarray, "B n C"],
    gram: Float64[np.ndarray, "B n n"],
    squares: Float64[np.ndarray, "B C"],
    weight: float,
    count: float,
) -> Float64[np.ndarray, "B n C"]:
    """The scores of n photos that do not whiten. inner: A M' with the products M; gram: A A'; squares: of the
    lengths of M. weight, count: a and the number of photos that whiten, 0 and infinity without whitening."""
    photos = gram.shape[1]
    mean = -gram.sum(axis=2, keepdims=True) / (count - photos)  # A d
    of_mean = -mean.sum(axis=1, keepdims=True) / (count - photos)  # d d
    along = -inner.sum(axis=1, keepdims=True) / (count - photos)  # d M'
    inner_moved, gram_moved = inner - mean, gram - mean
    kernel = np.eye(photos) - 1 / count - weight * gram
    solved = weight * np.linalg.solve(kernel, np.concatenate([inner_moved, gram_moved], axis=2))
    of_inner, of_gram = np.split(solved, [inner.shape[2]], axis=2)
    cross = inner_moved - along + of_mean + gram_moved.swapaxes(1, 2) @ of_inner
    lengths = squares[:, None] - 2 * along + of_mean + (inner_moved * of_inner).sum(axis=1, keepdims=True)
    own = np.einsum("bii->bi", gram)[..., None] - 2 * mean + of_mean
    own = own + (gram_moved * of_gram).sum(axis=1)[..., None]
    result: np.ndarray = cross / np.sqrt(np.maximum(own * lengths, np.finfo(np.float32).tiny))
    return result


def _whitening(
    kind: str, vectors: Float32[np.ndarray, "N D"], rows: Int64[np.ndarray, "P"]
) -> tuple[Float32[np.ndarray, "D"], Float32[np.ndarray, "D D"] | None, float]:
    """m, L^-1 and a of the photos `rows`; 0, None and 0 for `class mean`."""
    dim = vectors.shape[1]
    if kind == MEAN:
        return np.zeros(dim, np.float32), None, 0.0
    photos = vectors[rows]
    centre = photos.mean(axis=0, dtype=np.float64).astype(np.float32)
    centred = photos - centre
    covariance = (centred.T @ centred).astype(np.float64) / len(rows)
    variance = covariance.trace() / dim
    squares = np.vdot(covariance, covariance)
    fourth = float((np.square(centred, dtype=np.float64).sum(axis=1) ** 2).sum())
    spread = squares - dim * variance**2
    share = min(1.0, (fourth / len(rows) - squares) / len(rows) / spread) if spread > 0 else 1.0
    share = max(share, 1 / len(rows))
    covariance *= 1 - share
    covariance.flat[:: dim + 1] += share * variance if variance > 0 else 1.0
    from scipy.linalg import cholesky, lapack

    root = cholesky(covariance.T, lower=True, overwrite_a=True)  # the matrix itself, in the order of LAPACK
    inverse, _ = lapack.dtrtri(root, lower=True, overwrite_c=True)
    return centre, inverse.astype(np.float32, order="C"), (1 - share) / len(rows)


def _mapped(
    vectors: Float32[np.ndarray, "Q D"],
    centre: Float32[np.ndarray, "D"],
    whitener: Float32[np.ndarray, "D D"] | None,
) -> Float32[np.ndarray, "Q D"]:
    """L^-1 (x - m)."""
    return vectors if whitener is None else (vectors - centre) @ whitener.T


def _class_means(
    vectors: Float32[np.ndarray, "N D"], labels: Int64[np.ndarray, "N"]
) -> Float32[np.ndarray, "C D"]:
    turn = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[turn], np.arange(labels.max() + 1))
    sums = np.add.reduceat(vectors[turn], starts, axis=0)
    return (sums / np.bincount(labels)[:, None]).astype(np.float32)


def _unit(vectors: Float32[np.ndarray, "C D"]) -> Float32[np.ndarray, "C D"]:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
