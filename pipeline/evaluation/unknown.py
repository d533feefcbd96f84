"""The score below which a photo shows an unknown product, with stated error rates.

An open-set search errs if a photo of a product that the catalog does not contain gets a match: a false
positive identification. Its rate (FPIR; ISO/IEC 19795-1, Biometric performance testing) depends on the size
of the catalog. It also errs if a photo of a known product gets another product. Both rates are measured on
the catalog's own photos, which are left out (decision.py):

    u_i      score of photo i without all photos of its product: as if its product were unknown
    S_c(t)   number of the n_c photos of product c with u_i >= t; N = sum_c n_c photos, C products
    M_cd(t)  those of them that get product d
    R(t)     sum_c S_c(t) / N, the estimate of the rate at threshold t

For wrong products u_i is the score without photo i alone, where it gets another product, else -infinity.

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
among C products is at most C / (C - 1) times as likely as among C - 1. Wrong products have the factor 1: all
products are searched. deff is itself estimated. Therefore it is the largest in the range R to WINDOW R, and
needs LEAST_CLASSES products with an error; a threshold with fewer has the deff of the first with enough. If
none has enough, false matches have the limit 1, and wrong products the deff of photos that are all alike
within a product, sum_c n_c^2 / N. Both constants were chosen by the coverage on drawn catalogs.

A model that was trained on a product gives its photos small u_i, unlike those of an unknown product. Such
products are searched, but none of them is left out: C and N above are the numbers of the other products and
their photos. The correction is the same: only these C are exchangeable with an unknown product.

Given photos of unknown products (`--unknown`) are further photos and products of R. The threshold also is
one at which the share of them with a match is at most the one that was asked for.

The threshold is the smallest t with limit(t') <= share for all t' >= t, for each limit that was asked for.
The statement holds for unknown products of the same population as the catalog's, photographed alike.
tests/evaluation/test_unknown.py measures its coverage on drawn catalogs.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from unseen.evaluation.decision import FALSE, NEAREST, LeftOut, joined, ranked
from unseen.runtime.errors import UserError

LEAST_CLASSES = 8  # products with a false match from which deff is estimated
WINDOW = 8
LEAST_LEFT_OUT = 8  # products that the model was not trained on, below which nothing is calibrated


class UncalibratedError(UserError):
    """The model was trained on the products of the catalog: their photos do not show what an unknown product
    gets."""


class Threshold(NamedTuple):
    """A score from which a product is an answer. Rates are shares of photos."""

    score: float
    rule: str  # decision.py
    confidence: float
    at_most_false: float | None  # as asked for
    at_most_wrong: float | None
    false: float  # R(t): photos of unknown products with an answer
    false_limit: float  # upper confidence limit
    right: float | None  # photos of known products with the right answer; None: no product has two photos
    wrong: float | None  # with another product
    wrong_limit: float | None
    products: int  # that were left out
    photos: int  # of them
    trained: int | None  # products of the catalog that the model was trained on; None: unknown
    labelled: bool = True  # False: each photo was a product of its own (unlabelled.py)
    given: int = 0  # photos of unknown products that the user gave
    given_false: float | None = None  # of them, those with an answer

    def sentence(self) -> str:
        """The statement that a user reads."""
        unit = "products" if self.labelled else "groups of near-duplicates"
        parts = [
            f"An answer needs a score of {self.score:.3f} ({self.rule}).",
            f"Of photos of unknown products, at most {percent(self.false_limit)} then get an answer, with "
            f"{100 * self.confidence:g}% confidence (measured by leaving out each of {self.products:,} "
            f"{unit}, {self.photos:,} photos: {percent(self.false)}).",
        ]
        if self.given_false is not None:
            parts.append(f"Of the {self.given:,} given photos, {percent(self.given_false)} get one.")
        if self.right is not None and self.wrong is not None and self.wrong_limit is not None:
            parts.append(
                f"Of photos of known products, {percent(self.right)} get the right one, "
                f"{percent(self.wrong)} a wrong one (limit {percent(self.wrong_limit)}), and "
                f"{percent(max(0.0, 1 - self.right - self.wrong))} are unknown."
            )
        if not self.labelled:
            parts.append(
                "Pictures have no label: each photo, with its near-duplicates, was a product of its own, so "
                "that other photos of the same product count as false matches. The threshold is therefore "
                "higher than necessary. Labels (--labels) lower it."
            )
        if self.trained is None:
            parts.append(
                "The training classes of the model are unknown. If it was trained on these products, more "
                "photos of unknown products get a match."
            )
        elif self.trained:
            parts.append(f"The model was trained on {self.trained:,} other products of the catalog.")
        return " ".join(parts)


class Bound(NamedTuple):
    """The rate of one kind of error by threshold: distinct scores in descending order."""

    scores: Float64[np.ndarray, "T"]
    limits: Float64[np.ndarray, "T"]  # largest upper confidence limit down to this score
    ends: bool  # whether no lower score has an error

    def at(self, score: float) -> float:
        """The limit at a threshold; 1 below the scores that were computed."""
        place = int(np.count_nonzero(self.scores >= score)) - 1
        is_beyond = not self.ends and score < self.scores[-1]
        return 1.0 if is_beyond else float(self.limits[max(place, 0)])

    def within(self, share: float) -> float | None:
        """The smallest threshold with a limit of at most `share`; None without one."""
        count = int(np.count_nonzero(self.limits <= share))
        if count == len(self.scores) and self.ends:
            return -1.0
        return float(self.scores[count - 1]) if count else None


def calibrate(
    of_catalog: LeftOut,
    classes: int,
    at_most_false: float | None = None,
    at_most_wrong: float | None = None,
    confidence: float = 0.95,
    trained: Bool[np.ndarray, "C"] | None = None,
    rule: str = NEAREST,
    given: LeftOut | None = None,
) -> Threshold:
    """The smallest threshold at which at most the share `at_most_false` of the photos of unknown products
    get an answer, and at most `at_most_wrong` of the photos of known products a wrong one; at least one of
    the two is a share.

    `classes` is the number of products of the catalog. trained: those that the model was trained on; None:
    unknown, then all products are left out. given: photos of unknown products, with labels from `classes` on.

    Raises UncalibratedError if the model was trained on all products but a few, and UserError if the others
    are too few for a share (the remedy names one that they allow), and if more photos of known products get
    a wrong answer than the right one.
    """
    for share, option in ((at_most_false, "false"), (at_most_wrong, "wrong")):
        if share is not None and not 0 < share < 1:
            raise UserError(
                f"The share of --at-most-{option} is {share:g}.", "Choose one between 0 and 1, such as 1%."
            )
    count = 0 if trained is None else int(trained.sum())
    if trained is not None and count:
        of_catalog = without_trained(of_catalog, classes, trained)
    products, photos = len(np.unique(of_catalog.label)), len(of_catalog.row)
    evidence = of_catalog if given is None else joined([of_catalog, given])
    untrained = " that the model was not trained on" if count else ""
    what = f"{classes - count:,} products with {photos:,} photos{untrained}"
    false = false_bound(evidence, classes - count, confidence)
    wrong = wrong_bound(of_catalog, confidence)
    scores = []
    if at_most_false is not None:
        scores.append(_within(false, at_most_false, f"{what} are too few to limit the false matches"))
        if given is not None:
            scores.append(_above(given.other, at_most_false))
    if at_most_wrong is not None:
        if wrong is None:
            raise UserError(
                "No product has two photos: wrong answers cannot be measured.", "Add photos of the products."
            )
        scores.append(_within(wrong, at_most_wrong, f"{what} do not limit the wrong products"))
    score = max(scores)
    known = ~np.isnan(of_catalog.known)
    answered = of_catalog.known[known] >= score
    rates = [float((answered & kind).mean()) if len(answered) else None for kind in _kinds(of_catalog)]
    threshold = Threshold(
        score,
        rule,
        confidence,
        at_most_false,
        at_most_wrong,
        false=float((evidence.other >= score).mean()),
        false_limit=false.at(score),
        right=rates[0],
        wrong=rates[1],
        wrong_limit=None if wrong is None else wrong.at(score),
        products=products,
        photos=photos,
        trained=None if trained is None else count,
        given=0 if given is None else len(given.row),
        given_false=None if given is None else float((given.other >= score).mean()),
    )
    _require_more_right(threshold)
    return threshold


def calibrate_best(
    tables: Mapping[str, LeftOut],
    classes: int,
    at_most_false: float | None,
    at_most_wrong: float | None,
    confidence: float,
    trained: Bool[np.ndarray, "C"] | None,
    given: Mapping[str, LeftOut],
) -> Threshold:
    """As `calibrate`, with the rule of `tables` that has the most right answers less wrong ones. Raises the
    error of the first rule if all have one."""
    thresholds, problems = [], []
    for rule, table in tables.items():
        try:
            shares = at_most_false, at_most_wrong, confidence
            thresholds.append(calibrate(table, classes, *shares, trained, rule=rule, given=given.get(rule)))
        except UserError as error:
            problems.append(error)
    if not thresholds:
        raise problems[0]
    return max(thresholds, key=lambda threshold: (threshold.right or 0.0) - (threshold.wrong or 0.0))


def bounded_rules(tables: Mapping[str, LeftOut], classes: int, rule: str) -> dict[float, str]:
    """By share of false matches, the rule whose answers at the threshold of this share are better than those
    of `rule`, the best one, or `rule` itself (decision.py). classes: as of `false_bound`."""
    chosen = {}
    bounds = {name: false_bound(table, classes) for name, table in tables.items()}
    for share in FALSE[:-1]:
        values = {}
        for name, table in tables.items():
            score = bounds[name].within(share)
            answered = table.known >= (np.inf if score is None else score)
            values[name] = np.where(table.right, 1.0, -1.0) * answered
        chosen[share] = ranked(tables, values, rule)[0].rule
    return chosen


def _kinds(of_catalog: LeftOut) -> tuple[Bool[np.ndarray, "K"], Bool[np.ndarray, "K"]]:
    """Whether the answers to the known photos are right, and wrong."""
    right = of_catalog.right[~np.isnan(of_catalog.known)]
    return right, ~right


def _require_more_right(threshold: Threshold) -> None:
    if threshold.right is None or threshold.wrong is None or threshold.wrong <= threshold.right:
        return
    raise UserError(
        f"Most answers would be wrong: at this threshold, {percent(threshold.right)} of the photos of known "
        f"products get the right product and {percent(threshold.wrong)} a wrong one.",
        "Use a network that distinguishes these products (`unseen ladder` compares), or search without "
        "--at-most-false and --at-most-wrong, which lists candidates.",
    )


def without_trained(of_catalog: LeftOut, classes: int, trained: Bool[np.ndarray, "C"]) -> LeftOut:
    """The photos of the products that the model was not trained on. Raises UncalibratedError for too few."""
    count = int(trained.sum())
    if count and classes - count < LEAST_LEFT_OUT:
        raise UncalibratedError(
            f"The rate of false matches is not calibrated for this model: it was trained on {count:,} of the "
            f"{classes:,} products of the catalog. Their photos do not show how often a photo of an unknown "
            "product gets a match.",
            "Search with a model that was chosen with held-out classes: `unseen ladder` without --ship; the "
            f"rate is then measured on its test classes. Or add {LEAST_LEFT_OUT} products or more that the "
            "model was not trained on.",
        )
    remaining = ~trained[of_catalog.label]
    return LeftOut(*(column[remaining] for column in of_catalog))


def _within(bound: Bound, share: float, problem: str) -> float:
    """The threshold of a share. Raises UserError with the smallest share that has one."""
    score = bound.within(share)
    if score is None:
        least = float(bound.limits[0])
        remedy = "Add photos of more products"
        if least < 1:
            remedy += f", or ask for {100 * _rounded_up(least):.3g}% or more"
        raise UserError(f"{problem} to {percent(share)} with the stated confidence.", f"{remedy}.")
    return score


def _above(scores: np.ndarray, share: float) -> float:
    """The smallest threshold that at most this share of the scores reaches."""
    allowed = int(share * len(scores))
    return -1.0 if allowed == len(scores) else float(np.nextafter(np.sort(scores)[::-1][allowed], np.inf))


def false_bound(of_catalog: LeftOut, classes: int, confidence: float = 0.95) -> Bound:
    """Of the photos of unknown products that get an answer."""
    bound = _limits(of_catalog.label, of_catalog.other, of_catalog.rival, confidence, alike=False)
    factor = classes / max(classes - 1, 1)
    return bound._replace(limits=np.minimum(1.0, bound.limits * factor))


def wrong_bound(of_catalog: LeftOut, confidence: float = 0.95) -> Bound | None:
    """Of the photos of known products that get a wrong answer; None without such a photo."""
    known = ~np.isnan(of_catalog.known)
    if not known.any():
        return None
    score = np.where(of_catalog.right, -np.inf, of_catalog.known)[known]
    label = np.unique(of_catalog.label[known], return_inverse=True)[1]
    return _limits(label, score, of_catalog.answer[known], confidence, alike=True)


def _limits(label: np.ndarray, score: np.ndarray, rival: np.ndarray, confidence: float, alike: bool) -> Bound:
    """Distinct scores with the upper confidence limit of R. alike: of photos that are all alike within a
    product, if too few products have an error."""
    photos, sizes = len(label), np.bincount(label)
    probed = np.count_nonzero(sizes)
    from scipy.special import stdtrit  # 0.1 s of a search, which calibrates only if it is asked to

    ratio = (stdtrit(photos - 1, confidence) / stdtrit(max(1, probed - 1), confidence)) ** 2
    turn = np.argsort(-score, kind="stable")
    turn = turn[: np.count_nonzero(np.isfinite(score))]
    matched, crossed, with_match, pairs = np.zeros(len(sizes)), 0.0, 0, dict[tuple[int, int], int]()
    squares, products = 0.0, 0.0  # sum_c S_c^2, sum_c S_c n_c
    sum_of_squared_sizes = float((sizes.astype(np.float64) ** 2).sum())
    table = []
    rate = 0.0
    for count, photo in enumerate(turn.tolist(), 1):
        product, rival_product = int(label[photo]), int(rival[photo])
        squares += 2 * matched[product] + 1
        products += sizes[product]
        with_match += matched[product] == 0
        matched[product] += 1
        crossed += 2 * pairs.get((rival_product, product), 0)
        pairs[product, rival_product] = pairs.get((product, rival_product), 0) + 1
        if count < len(turn) and score[turn[count]] == score[photo]:
            continue
        rate = count / photos
        spread = squares - 2 * rate * products + rate**2 * sum_of_squared_sizes
        variance = (probed / (probed - 1) * spread + crossed) / photos**2 if probed > 1 else np.inf
        table.append((float(score[photo]), rate, variance, with_match))
        if rate > 0.5:
            break
    scores, rates, variances, classes_with_match = np.array(table).reshape(-1, 4).T
    enough = np.flatnonzero(classes_with_match >= LEAST_CLASSES)
    if len(enough):
        deff = np.maximum(1.0, variances / (np.maximum(rates * (1 - rates), 1 / photos / photos) / photos))
        ends = np.maximum(np.searchsorted(rates, WINDOW * rates, side="right"), enough[0] + 1)
        deff = np.array([deff[start:end].max() for start, end in enumerate(ends)])
    else:
        if not len(scores):
            scores, rates = np.array([np.inf]), np.zeros(1)
        deff = np.full(len(rates), sum_of_squared_sizes / photos)
    effective = photos / deff * ratio
    from scipy.special import betaincinv

    limits = betaincinv(rates * effective + 1, (1 - rates) * effective, confidence)
    if not len(enough) and not alike:
        limits = np.ones(len(rates))
    return Bound(scores, np.maximum.accumulate(np.minimum(1.0, limits)), ends=rates[-1] <= 0.5)


def _rounded_up(share: float) -> float:
    """With two significant digits."""
    step = 10.0 ** (np.floor(np.log10(share)) - 1)
    return float(np.ceil(share / step) * step)


def percent(share: float) -> str:
    return f"{100 * share:.3g}%"
