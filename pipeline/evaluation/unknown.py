"""The similarity threshold below which a photo shows an unknown product, with a stated error rate.

An open-set search errs if a photo of a product that the catalog does not contain gets a match: a false
positive identification. Its rate (FPIR; ISO/IEC 19795-1, Biometric performance testing) depends on the size
of the catalog. It is measured on the catalog's own photos, with each product in turn as the unknown one
(leave-one-class-out):

    u_i      largest cosine of photo i with a photo of another product: its score if its product were unknown
    S_c(t)   number of the n_c photos of product c with u_i >= t; N = sum_c n_c photos, C products
    M_cd(t)  those of them whose most similar photo of another product is of product d
    R(t)     sum_c S_c(t) / N, the estimate of the rate at threshold t

Photos of one product are dependent. So are two products that resemble each other, because each is the match
of the other. The variance is that of R under resampling of classes (linearised, the limit of the class
bootstrap; Davison and Hinkley, Bootstrap Methods, sec. 2.7) and the covariance of such pairs:

    v(t) = C / (C - 1) sum_c (S_c - R n_c)^2 / N^2  +  sum_{c != d} M_cd M_dc / N^2

Small rates are not normally distributed. The upper confidence limit is that of Korn and Graubard (Confidence
intervals for proportions with small expected number of positive counts estimated from survey data, 1998):
the exact binomial limit of Clopper and Pearson for the effective number of photos,

    n_eff    = N / deff (z_{N-1} / z_{C-1})^2      z_m: quantile of Student's t with m degrees of freedom
    deff     = max(1, v / (R (1 - R) / N))
    limit(t) = C / (C - 1) B(R n_eff + 1, (1 - R) n_eff)      B: quantile of the beta distribution

C / (C - 1) corrects for the search of C - 1 instead of C products: if products are exchangeable, a match
among C products is at most C / (C - 1) times as likely as among C - 1. deff is itself estimated. Therefore it
is the largest in the range R to WINDOW R, and needs LEAST_CLASSES products with a false match; a threshold
with fewer has the deff of the first with enough. Both constants were chosen by the coverage on drawn
catalogs.

A model that was trained on a product gives its photos small u_i, unlike those of an unknown product. Such
products are searched, but none of them is left out: C and N above are the numbers of the other products and
their photos, whose u_i is the largest cosine with any other product. The correction is the same: only these
C are exchangeable with an unknown product.

The threshold is the smallest t with limit(t') <= share for all t' >= t. The statement holds for unknown
products of the same population as the catalog's, photographed alike. tests/evaluation/test_unknown.py
measures its coverage on drawn catalogs.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64
from scipy.special import betaincinv, stdtrit

from unseen.runtime.errors import UserError

LEAST_CLASSES = 8  # products with a false match from which deff is estimated
WINDOW = 8
MOST_PHOTOS = 20_000  # photos that take part in a calibration; whole products are drawn
LEAST_LEFT_OUT = 8  # products that the model was not trained on, below which nothing is calibrated
_BLOCK = 1 << 25  # cosines in memory at a time


class UncalibratedError(UserError):
    """The model was trained on the products of the catalog: their photos do not show what an unknown product
    gets."""


class Rivals(NamedTuple):
    """P photos of a catalog and the products that they resemble."""

    row: Int64[np.ndarray, "P"]  # of the catalog, ascending
    label: Int64[np.ndarray, "P"]  # 0 to C - 1
    other: Float32[np.ndarray, "P"]  # u_i
    rival: Int64[np.ndarray, "P"]  # the product of the photo with cosine u_i
    same: Float32[np.ndarray, "P"]  # largest cosine with another photo of its product; NaN if there is none


class Threshold(NamedTuple):
    """A similarity from which a match counts."""

    similarity: float
    share: float  # the largest rate of false matches that was asked for
    confidence: float
    measured: float  # R(t)
    limit: float  # upper confidence limit of the rate, at most `share`
    products: int  # that were left out
    photos: int  # of them
    matched: float | None  # share of them with another photo of their product at or above the threshold
    trained: int | None  # products of the catalog that the model was trained on; None: unknown
    labelled: bool = True  # False: each photo was a product of its own (unlabelled.py)

    def sentence(self) -> str:
        """The statement that a user reads."""
        unit = "products" if self.labelled else "groups of near-duplicates"
        notes = []
        if self.matched is not None:
            notes.append(f"{100 * self.matched:.1f}% of these photos find another photo of their product.")
        if not self.labelled:
            notes.append(
                "Pictures have no label: each photo, with its near-duplicates, was a product of its own, so "
                "that other photos of the same product count as false matches. The threshold is therefore "
                "higher than necessary. Labels (--labels) lower it."
            )
        if self.trained is None:
            notes.append(
                "The training classes of the model are unknown. If it was trained on these products, more "
                "photos of unknown products get a match."
            )
        elif self.trained:
            notes.append(f"The model was trained on {self.trained:,} other products of the catalog.")
        return (
            f"A match needs a similarity of {self.similarity:.3f}. At most {self.share:.3g} of the photos of "
            f"unknown products then get a match, with {100 * self.confidence:g}% confidence (measured by "
            f"leaving out each of {self.products:,} {unit}, {self.photos:,} photos: {self.measured:.3g}, "
            f"limit {self.limit:.3g}). {' '.join(notes)}"
        ).rstrip()


def rivals(
    vectors: Float32[np.ndarray, "N D"],
    labels: Int64[np.ndarray, "N"],
    most: int = MOST_PHOTOS,
    seed: int = 0,
    trained: Bool[np.ndarray, "C"] | None = None,
) -> Rivals:
    """The rivals of all photos, or, with more than `most`, of the photos of drawn products.

    `labels` are 0 to C - 1. trained: the products that the model was trained on; the others are drawn first.

    Raises ValueError for fewer than two products.
    """
    classes = int(labels.max(initial=-1)) + 1
    if classes < 2:
        raise ValueError("rivals need two products or more")
    turn = np.argsort(labels, kind="stable")
    gallery, starts = vectors[turn], np.searchsorted(labels[turn], np.arange(classes))
    place = np.empty(len(turn), np.int64)
    place[turn] = np.arange(len(turn))
    rows = _drawn(labels, np.zeros(classes, bool) if trained is None else trained, most, seed)
    other, rival = np.empty(len(rows), np.float32), np.empty(len(rows), np.int64)
    same = np.empty(len(rows), np.float32)
    step = max(1, _BLOCK // len(labels))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        chosen = rows[part]
        each = np.arange(len(chosen))
        cosines = vectors[chosen] @ gallery.T
        cosines[each, place[chosen]] = -np.inf
        best = np.maximum.reduceat(cosines, starts, axis=1)
        same[part] = best[each, labels[chosen]]
        best[each, labels[chosen]] = -np.inf
        rival[part] = best.argmax(axis=1)
        other[part] = best[each, rival[part]]
    same[np.isneginf(same)] = np.nan
    return Rivals(rows, labels[rows], other, rival, same)


def calibrate(
    of_catalog: Rivals,
    classes: int,
    share: float,
    confidence: float = 0.95,
    trained: Bool[np.ndarray, "C"] | None = None,
) -> Threshold:
    """The smallest threshold at which at most `share` of the photos of unknown products get a match.

    `classes` is the number of products of the catalog. trained: those that the model was trained on; None:
    unknown, then all products are left out.

    Raises UncalibratedError if the model was trained on all products but a few, and UserError if the others
    are too few for this share; the remedy names a share that they allow.
    """
    if not 0 < share < 1:
        raise UserError(
            f"The share of false matches is {share:g}.", "Choose one between 0 and 1, such as 1%."
        )
    count = 0 if trained is None else int(trained.sum())
    if count and classes - count < LEAST_LEFT_OUT:
        raise UncalibratedError(
            f"The rate of false matches is not calibrated for this model: it was trained on {count:,} of the "
            f"{classes:,} products of the catalog. Their photos do not show how often a photo of an unknown "
            "product gets a match.",
            "Search with a model that was chosen with held-out classes: `unseen ladder` without --ship; the "
            f"rate is then measured on its test classes. Or add {LEAST_LEFT_OUT} products or more that the "
            "model was not trained on.",
        )
    if trained is not None:
        left_out = ~trained[of_catalog.label]
        of_catalog = Rivals(*(column[left_out] for column in of_catalog))
    classes -= count
    thresholds, rates, limits = _limits(of_catalog, classes, confidence)
    within = np.flatnonzero(np.maximum.accumulate(limits) <= share)
    if not len(within):
        least = float(limits[0])
        untrained = " that the model was not trained on" if count else ""
        remedy = f"Add photos of more products{untrained}"
        if least < 1:
            remedy += f", or ask for {100 * _rounded_up(least):.3g}% or more"
        raise UserError(
            f"{classes:,} products with {len(of_catalog.row):,} photos{untrained} are too few to limit the "
            f"false matches to {100 * share:.3g}% with {100 * confidence:g}% confidence.",
            f"{remedy}.",
        )
    chosen = within[-1]
    similarity = float(thresholds[chosen])
    alone = np.isnan(of_catalog.same)
    return Threshold(
        similarity,
        share,
        confidence=confidence,
        measured=float(rates[chosen]),
        limit=float(limits[chosen]),
        products=len(np.unique(of_catalog.label)),
        photos=len(of_catalog.row),
        matched=None if alone.all() else float((of_catalog.same[~alone] >= similarity).mean()),
        trained=None if trained is None else count,
    )


def _limits(of_catalog: Rivals, classes: int, confidence: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct scores in descending order as thresholds, with R and its upper confidence limit."""
    _, label, other, rival, _ = of_catalog
    photos, sizes = len(label), np.bincount(label)
    probed = np.count_nonzero(sizes)
    turn = np.argsort(-other, kind="stable")
    matched, crossed, with_match, pairs = np.zeros(len(sizes)), 0.0, 0, dict[tuple[int, int], int]()
    squares, products = 0.0, 0.0  # sum_c S_c^2, sum_c S_c n_c
    sum_of_squared_sizes = float((sizes.astype(np.float64) ** 2).sum())
    table = []
    for count, photo in enumerate(turn.tolist(), 1):
        product, rival_product = int(label[photo]), int(rival[photo])
        squares += 2 * matched[product] + 1
        products += sizes[product]
        with_match += matched[product] == 0
        matched[product] += 1
        crossed += 2 * pairs.get((rival_product, product), 0)
        pairs[product, rival_product] = pairs.get((product, rival_product), 0) + 1
        if count < photos and other[turn[count]] == other[photo]:
            continue
        rate = count / photos
        spread = squares - 2 * rate * products + rate**2 * sum_of_squared_sizes
        variance = (probed / (probed - 1) * spread + crossed) / photos**2 if probed > 1 else np.inf
        table.append((float(other[photo]), rate, variance, with_match))
        if rate > 0.5:
            break
    thresholds, rates, variances, classes_with_match = np.array(table).T
    deff = np.maximum(1.0, variances / (np.maximum(rates * (1 - rates), 1 / photos / photos) / photos))
    enough = np.flatnonzero(classes_with_match >= LEAST_CLASSES)
    if not len(enough):
        return thresholds, rates, np.ones(len(rates))
    ends = np.maximum(np.searchsorted(rates, WINDOW * rates, side="right"), enough[0] + 1)
    deff = np.array([deff[start:end].max() for start, end in enumerate(ends)])
    effective = (
        photos / deff * (stdtrit(photos - 1, confidence) / stdtrit(max(1, probed - 1), confidence)) ** 2
    )
    limits = betaincinv(rates * effective + 1, (1 - rates) * effective, confidence)
    return thresholds, rates, np.minimum(1.0, limits * classes / (classes - 1))


def _drawn(labels: np.ndarray, trained: np.ndarray, most: int, seed: int) -> Int64[np.ndarray, "P"]:
    """The rows of all products, or of drawn products with at most `most` rows: trained ones last."""
    if len(labels) <= most:
        return np.arange(len(labels))
    order = np.random.default_rng(seed).permutation(len(trained))
    order = order[np.argsort(trained[order], kind="stable")]
    sizes = np.bincount(labels, minlength=len(trained))[order]
    chosen = order[: max(2, np.count_nonzero(np.cumsum(sizes) <= most))]
    return np.flatnonzero(np.isin(labels, chosen))


def _rounded_up(share: float) -> float:
    """With two significant digits."""
    step = 10.0 ** (np.floor(np.log10(share)) - 1)
    return float(np.ceil(share / step) * step)
