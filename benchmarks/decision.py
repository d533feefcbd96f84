"""Rates of the decision on photos that the catalog lacks, against the rates that it states.

    python benchmarks/decision.py [FILE ...] [--draws 200] [--products N] [--picture FILE]

FILE: unit vectors of one set of photos as Arrow or Parquet (columns `embedding`, `label`), or .npz with a
matrix and its labels. Without FILE: vectors of drawn products, in fewer draws.

A draw takes half of the classes (--products: N) as the catalog, the others as unknown products. Of each class
of the catalog, HELD_OUT photos are not in the catalog: they are the photos of known products. The catalog
chooses its rules and a threshold for each share of SHARES, from its own photos. Measured are

    false, wrong     shares of photos of unknown products with an answer, and of known ones with a wrong one
    bound            the upper 95% limit that the catalog states for this threshold
    within           share of the draws whose measured rate is at most the bound
    whole set        the same for the rate over all classes, those of the catalog left out in turn
    not refuted      share of the draws whose number of wrong answers has a probability of at least 5% if the
                     rate is the bound (binomial): HELD_OUT photos of a class measure a small rate poorly
    right, oracle    photos of known products with the right answer, and those at the threshold that the
                     photos of the unknown products themselves would choose for the asked share; the largest
                     number of the rules of the catalog

The second table has, without a threshold, the share of known photos whose first product is right, by rule:
the mean over draws, with a 95% interval over classes. docs/statistics.md has the result. --picture: the curve
of a catalog of all photos of the first file.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import binom
from timing import Ratio, save

from unseen.evaluation.curve import Rate, curve, picture, rates_of, shown
from unseen.evaluation.decision import (
    MEAN,
    NEAREST,
    RULES,
    VOTES,
    VOTING,
    WHITENED,
    WITH_MARGIN,
    best,
    choose,
    left_out,
    means,
)
from unseen.evaluation.statistics.intervals import influences, interval, spread
from unseen.evaluation.unknown import Threshold, bounded_rules, calibrate_best, percent
from unseen.evaluation.vectors import read_vectors
from unseen.runtime.errors import UserError

SHARES = {"false": (0.05, 0.1, 0.2), "wrong": (0.02, 0.05, 0.1)}
HELD_OUT = 5
KINDS = (NEAREST, VOTING, MEAN, WHITENED)
CHOSEN = "chosen"
COLUMNS = (
    "set",
    "asked",
    "draws",
    "false: bound, measured",
    "within, whole set",
    "wrong: bound, measured",
    "within, not refuted",
    "right, oracle",
)
DRAWN, DRAWN_EACH, DRAWN_DRAWS, DIM = 80, 12, 20, 24  # of the set without a file
AT_LEAST = 0.95
Scorer = Callable[[np.ndarray], np.ndarray]  # of Q photos: (Q, C)


class Photos(NamedTuple):
    """Unit vectors, and labels from 0 to C - 1 in the order of the classes."""

    vectors: np.ndarray
    labels: np.ndarray


class Row(NamedTuple):
    """A draw with a threshold."""

    false: float
    false_bound: float
    false_of_all: float  # classes of the catalog, left out, and unknown ones
    wrong: float
    wrong_bound: float
    wrong_refutes: bool
    right: float
    oracle: float


class Queries(NamedTuple):
    """What the photos of a draw get by a rule."""

    known: np.ndarray  # scores
    is_right: np.ndarray
    unknown: np.ndarray  # scores


class Draws(NamedTuple):
    """The draws of a set: rows by what was asked, rules that were used for them and without a threshold, and
    right first answers by rule and class."""

    rows: dict[tuple[str, float], list[Row]]
    used: dict[tuple[str, float], list[str]]
    chosen: list[str]
    hits: dict[str, np.ndarray]
    photos: np.ndarray


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--products", type=int)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    sets = {file.stem: read(file) for file in options.files} or {"drawn": synthetic()}
    if options.picture is not None:
        draw_curve(next(iter(sets.values())), options.picture)
    count = options.draws if options.files else min(options.draws, DRAWN_DRAWS)
    results = {name: drawn(photos, count, options.products) for name, photos in sets.items()}
    print(f"{count} draws\n")
    ratios, content = {}, {}
    for name, draws in results.items():
        rows = [row for of_asked in draws.rows.values() for row in of_asked]
        false = np.mean([row.false <= row.false_bound for row in rows])
        wrong = np.mean([not row.wrong_refutes for row in rows])
        ratios[f"{name}: false within the bound"] = Ratio(float(false), at_least=AT_LEAST)
        ratios[f"{name}: wrong, not refuted"] = Ratio(float(wrong), at_least=AT_LEAST)
        content[name] = {
            f"{kind} {share}": [row._asdict() for row in rows] for (kind, share), rows in draws.rows.items()
        }
    print_tables(results)
    save("decision", content, ratios)
    return int(any(each.value < AT_LEAST for each in ratios.values()))


def print_tables(results: dict[str, Draws]) -> None:
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    for name, draws in results.items():
        for (kind, share), rows in draws.rows.items():
            print(f"| {name} | {kind} {percent(share)} | {len(rows)} | {cells(rows)} |")
    print(f"\n| rule | {' | '.join(results)} |\n| --- |{' --- |' * len(results)}")
    for rule in (*KINDS, CHOSEN):
        print(f"| {rule} | {' | '.join(shown(rate(draws, rule)) for draws in results.values())} |")
    differences = (shown(difference(draws)) for draws in results.values())
    print(f"| {CHOSEN} less {NEAREST} | {' | '.join(differences)} |")
    for name, draws in results.items():
        used = {f"{kind} {percent(share)}": rules for (kind, share), rules in draws.used.items()}
        for asked, rules in ({"nothing": draws.chosen} | used).items():
            print(f"{name}, asked {asked}:", {rule: rules.count(rule) for rule in RULES if rule in rules})


def read(file: Path) -> Photos:
    """Raises ValueError for an .npz file that is not one matrix with one array of labels, and for small
    classes."""
    if file.suffix != ".npz":
        table = read_vectors(file)
        vectors, labels = table.embedding, table.label
    else:
        with np.load(file, allow_pickle=False) as arrays:
            by_axes = {array.ndim: array for array in arrays.values()}
            if len(arrays.files) != 2 or by_axes.keys() != {1, 2}:
                raise ValueError(f"{file} contains {arrays.files}, expected a matrix and its labels")
            vectors, labels = by_axes[2], by_axes[1]
    codes = np.unique(labels, return_inverse=True)[1]
    if np.bincount(codes).min() < HELD_OUT + 2:
        raise ValueError(f"{file} has a class of fewer than {HELD_OUT + 2} photos")
    return Photos(vectors.astype(np.float32), codes)


def synthetic() -> Photos:
    """Products in families of different density."""
    random = np.random.default_rng(0)
    family = random.integers(12, size=DRAWN)
    spread = random.uniform(0.3, 1.2, 12)[family, None]
    centres = random.standard_normal((12, DIM))[family] + spread * random.standard_normal((DRAWN, DIM))
    noise = random.uniform(0.5, 1.2, DRAWN)[:, None, None] * random.standard_normal((DRAWN, DRAWN_EACH, DIM))
    vectors = (centres[:, None] + noise).reshape(-1, DIM).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return Photos(vectors, np.arange(DRAWN).repeat(DRAWN_EACH))


def drawn(photos: Photos, count: int, products: int | None) -> Draws:
    classes = int(photos.labels.max()) + 1
    asked = [(kind, share) for kind, shares in SHARES.items() for share in shares]
    hits = {rule: np.zeros(classes) for rule in (*KINDS, CHOSEN)}
    draws = Draws({key: [] for key in asked}, {}, [], hits, np.zeros(classes))
    for seed in range(count):
        draw(photos, products or classes // 2, np.random.default_rng(seed), draws)
    return draws


def draw_curve(photos: Photos, file: Path) -> None:
    """The picture that `unseen index` writes for a catalog of all photos."""
    tables = left_out(photos.vectors, photos.labels, np.arange(len(photos.labels)), RULES)
    points = curve(tables[choose(tables)[0].rule], int(photos.labels.max()) + 1)
    file.write_text(picture(points), encoding="utf-8")


def draw(photos: Photos, products: int, random: np.random.Generator, draws: Draws) -> None:
    """Adds one draw."""
    catalog = np.sort(random.permutation(int(photos.labels.max()) + 1)[:products])
    held = np.concatenate(
        [random.choice(np.flatnonzero(photos.labels == label), HELD_OUT, replace=False) for label in catalog]
    )
    is_known = np.isin(photos.labels, catalog)
    is_stored = is_known.copy()
    is_stored[held] = False
    stored = Photos(photos.vectors[is_stored], np.searchsorted(catalog, photos.labels[is_stored]))
    known, known_labels = photos.vectors[held], np.searchsorted(catalog, photos.labels[held])
    unknown = photos.vectors[~is_known]
    tables = left_out(stored.vectors, stored.labels, np.arange(len(stored.labels)), RULES)
    rule = choose(tables)[0].rule
    rules = dict.fromkeys((rule, *bounded_rules(tables, len(catalog), rule).values()))
    draws.chosen.append(rule)
    np.add.at(draws.photos, photos.labels[held], 1)
    for each in KINDS:
        is_right = best(scorer(each, stored)(known), False)[1] == known_labels
        for name in (each, CHOSEN) if each == rule.removesuffix(WITH_MARGIN) else (each,):
            np.add.at(draws.hits[name], photos.labels[held], is_right)
    queries = {}
    for each in rules:
        has_margin, scores = each.endswith(WITH_MARGIN), scorer(each.removesuffix(WITH_MARGIN), stored)
        of_known, answers = best(scores(known), has_margin)
        of_unknown, _ = best(scores(unknown), has_margin)
        queries[each] = Queries(of_known, answers == known_labels, of_unknown)
    remaining = {each: tables[each] for each in rules}
    for (error, share), rows in draws.rows.items():
        try:
            of_false, of_wrong = (share, None) if error == "false" else (None, share)
            threshold = calibrate_best(remaining, len(catalog), of_false, of_wrong, 0.95, None, {})
        except UserError:  # the catalog refuses the share
            continue
        oracle = max(oracle_right(error, share, each) for each in queries.values())
        rows.append(measured(threshold, oracle, queries[threshold.rule], tables[threshold.rule].other))
        draws.used.setdefault((error, share), []).append(threshold.rule)


def scorer(kind: str, stored: Photos) -> Scorer:
    """Scores of all products, without margin."""
    if kind in (MEAN, WHITENED):
        return means(kind, stored.vectors, stored.labels, np.arange(len(stored.labels))).scores
    classes = int(stored.labels.max()) + 1

    def scores(vectors: np.ndarray) -> np.ndarray:
        cosines = vectors @ stored.vectors.T
        if kind == VOTING:
            least = np.partition(cosines, -VOTES, axis=1)[:, -VOTES, None]
            cosines = np.where(cosines >= least, np.maximum(cosines, 0) / VOTES, 0)
        gather = np.add if kind == VOTING else np.maximum
        by_product = [gather.reduce(cosines[:, stored.labels == label], axis=1) for label in range(classes)]
        return np.stack(by_product, axis=1)

    return scores


def oracle_right(error: str, share: float, queries: Queries) -> float:
    """The right answers at the smallest threshold at which the measured rate is at most the share."""
    known, is_right, unknown = queries
    errors, photos = (unknown, len(unknown)) if error == "false" else (known[~is_right], len(known))
    allowed = int(share * photos)
    score = -1.0
    if allowed < len(errors):
        score = float(np.nextafter(np.sort(errors)[::-1][allowed], np.float32(9)))
    return float(((known >= score) & is_right).mean())


def measured(threshold: Threshold, oracle: float, queries: Queries, left_out: np.ndarray) -> Row:
    """left_out: scores of the photos of the catalog without their products."""
    known, is_right, unknown = queries
    of_all = np.concatenate([left_out, unknown])
    answered = known >= threshold.score
    wrong = answered & ~is_right
    assert threshold.wrong_limit is not None
    chance = binom.sf(wrong.sum() - 1, len(wrong), threshold.wrong_limit)
    return Row(
        false=float((unknown >= threshold.score).mean()),
        false_bound=threshold.false_limit,
        false_of_all=float((of_all >= threshold.score).mean()),
        wrong=float(wrong.mean()),
        wrong_bound=threshold.wrong_limit,
        wrong_refutes=bool(chance < 1 - threshold.confidence),
        right=float((answered & is_right).mean()),
        oracle=oracle,
    )


def cells(rows: list[Row]) -> str:
    """The means of the rows, and the shares of those within the bounds, in percent."""
    if not rows:
        return " | | | | "
    value = Row(*np.mean(rows, axis=0).tolist())
    within = np.mean([row.false <= row.false_bound for row in rows])
    of_all = np.mean([row.false_of_all <= row.false_bound for row in rows])
    wrong = np.mean([row.wrong <= row.wrong_bound for row in rows])
    return (
        f"{percent(value.false_bound)}, {percent(value.false)} | {percent(within)}, {percent(of_all)} "
        f"| {percent(value.wrong_bound)}, {percent(value.wrong)} "
        f"| {percent(wrong)}, {percent(1 - value.wrong_refutes)} "
        f"| {percent(value.right)}, {percent(value.oracle)}"
    )


def rate(draws: Draws, rule: str) -> Rate:
    """Right first answers of a rule: the mean over the classes."""
    seen = draws.photos > 0
    values = (draws.hits[rule][seen] / draws.photos[seen])[:, None]
    return rates_of(values, np.arange(len(values)))[0]


def difference(draws: Draws) -> Rate:
    """Right first answers, `chosen` minus `nearest`."""
    seen = draws.photos > 0
    values = (draws.hits[CHOSEN] - draws.hits[NEAREST])[seen] / draws.photos[seen]
    weights = np.full(len(values), 1 / len(values))
    low, high = interval(values.mean(), spread(influences(values, weights), weights), 0.95)
    return Rate(float(values.mean()), float(low), float(high))


if __name__ == "__main__":
    raise SystemExit(main())
