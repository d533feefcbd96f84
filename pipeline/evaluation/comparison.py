"""How sure a number is, and whether one method is better than another.

Two things make a number uncertain and each has its interval; neither stands for the other.

    over seeds    mean of S runs, t interval: mean +- t_{S-1, (1 + confidence) / 2} s / sqrt(S), s with S - 1 (Student 1908)
                  what another training would give on these classes
    over classes  percentiles of the average over classes drawn with replacement (`bootstrap`), every query's values averaged over the seeds first
                  what these trainings would give on other classes

Two methods on the same queries: d_q = second - first, positive where the second is better (for a metric of which more is better).

    difference    mean_q d_q, with the percentile interval of class resamples of d: one resample takes the same classes of both methods
    p value       sign-flip permutation test by class. If the methods were exchangeable, swapping them in any class would change nothing:
                      p = (1 + #{|T_e| >= |T|}) / (1 + #e),   T_e = sum_c e_c sum_{q in c} d_q,   e_c = +-1 with equal chance
                  over drawn e, or exactly p = #{|T_e| >= |T|} / 2^C over all of them where they are no more than drawn
                  (Ernst, Permutation methods, 2004, sec. 3; the 1 is the identity, Phipson and Smyth 2010)

Several comparisons at once: one p value in twenty is below 0.05 by chance alone. `holm` adjusts a family of them (Holm 1979); state the family.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Bool, Float64, Int64
from scipy.special import stdtrit

from pipeline.evaluation.bootstrap import class_intervals, resampled_averages
from pipeline.runtime.errors import UserError

CHUNK = 256  # sign vectors held at a time


class Average(NamedTuple):
    mean: float
    deviation: float | None  # of the runs, S - 1 in the denominator; None over classes
    low: float
    high: float
    over: str  # "seeds (t)" or "classes (bootstrap)"


class Comparison(NamedTuple):
    """Of a second method with a first, on the same queries."""

    first: float
    second: float
    difference: float  # second - first
    low: float
    high: float
    p_value: float  # two-sided
    queries: int
    classes: int
    exact: bool  # every sign flip was looked at


class Runs(NamedTuple):
    """One metric of S runs on the same Q queries; NaN for lone ones."""

    row_id: Int64[np.ndarray, "Q"]
    label: Int64[np.ndarray, "Q"]
    values: Float64[np.ndarray, "S Q"]


def read_runs(paths: Sequence[Path], metric: str) -> Runs:
    """A column of the per-query files (`tables.write_queries`) of runs that were shown the same queries: of one method, or of several.

    Raises UserError where a file is missing or damaged, has no such column, or is of other queries.
    """
    tables = [_table(path, metric) for path in paths]
    for path, table in zip(paths, tables, strict=True):
        if any(not table[column].equals(tables[0][column]) for column in ("row_id", "label")):
            raise UserError(f"{path} is not about the same queries as {paths[0]}.", "Evaluate both on the same data set and protocol.")
    values = [table[metric].cast(pa.float64()).to_numpy() for table in tables]  # null becomes NaN
    return Runs(tables[0]["row_id"].to_numpy(), tables[0]["label"].to_numpy(), np.stack(values))


def over_seeds(values: Float64[np.ndarray, "S"], confidence: float) -> Average:
    """Mean, deviation and t interval of one number of S runs. Raises ValueError for a single run: it says nothing about another one."""
    runs = len(values)
    if runs < 2:
        raise ValueError("an interval over seeds needs two runs or more")
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    half = float(stdtrit(runs - 1, (1 + confidence) / 2)) * deviation / runs**0.5
    return Average(mean, deviation, mean - half, mean + half, "seeds (t)")


def over_classes(values: Float64[np.ndarray, "S Q"], labels: Int64[np.ndarray, "Q"], resamples: int, confidence: float, seed: int) -> Average:
    """Mean of S runs over Q queries, NaN for lone ones, and its interval over resamples of the classes, the runs staying as they are."""
    scored = _scored(values)
    mean = values[:, scored].mean(axis=0)
    low, high = class_intervals(mean[:, None], labels[scored], resamples, confidence, seed)
    return Average(float(mean.mean()), None, float(low[0]), float(high[0]), "classes (bootstrap)")


def compare(
    first: Float64[np.ndarray, "S Q"],
    second: Float64[np.ndarray, "T Q"],
    labels: Int64[np.ndarray, "Q"],
    resamples: int,
    confidence: float,
    seed: int,
) -> Comparison:
    """`compare_pairs` of two methods that were trained S and T times, with as many sign flips as resamples."""
    return compare_pairs([first, second], [(0, 1)], labels, resamples, resamples, confidence, seed)[0]


def compare_pairs(
    methods: Sequence[Float64[np.ndarray, "_ Q"]],
    pairs: Sequence[tuple[int, int]],
    labels: Int64[np.ndarray, "Q"],
    resamples: int,
    flips: int,
    confidence: float,
    seed: int,
) -> list[Comparison]:
    """Paired comparisons on Q queries of methods with one or more runs each; NaN for lone queries, in all of them.

    A comparison refers to these trainings on other classes: runs are averaged per query, classes are resampled and
    flipped. All pairs share the draws, so the cost grows with the number of methods and not with that of pairs.
    pairs: (first, second) by position in `methods`. resamples: of the intervals. flips: sign vectors of the p values.
    Raises ValueError if the methods do not have the same lone queries.
    """
    scored = _scored(methods[0])
    if not all(np.array_equal(scored, _scored(values)) for values in methods[1:]):
        raise ValueError("the methods were not scored on the same queries")
    means, labels = np.stack([values[:, scored].mean(axis=0) for values in methods]), labels[scored]
    # Relative to the first method, so that the difference of equal methods is exactly zero.
    relative = means - means[0]
    averages = resampled_averages(relative.T, labels, resamples, seed)
    _, member = np.unique(labels, return_inverse=True)
    sums = np.stack([np.bincount(member, row) for row in relative], axis=1)
    p_values, exact = sign_flip_tests(sums, pairs, flips, seed)
    tail = (1 - confidence) / 2
    comparisons = []
    for (first, second), p_value in zip(pairs, p_values.tolist(), strict=True):
        low, high = np.quantile(averages[:, second] - averages[:, first], [tail, 1 - tail])
        mine, theirs = float(means[first].mean()), float(means[second].mean())
        difference = float((means[second] - means[first]).mean())
        comparisons.append(Comparison(mine, theirs, difference, float(low), float(high), p_value, len(labels), len(sums), exact))
    return comparisons


def sign_flip_tests(
    sums: Float64[np.ndarray, "C M"], pairs: Sequence[tuple[int, int]], permutations: int, seed: int
) -> tuple[Float64[np.ndarray, "T"], bool]:
    """Two-sided p values of sum_c D_c of T pairs of M methods, and whether all 2^C sign vectors were counted.

    D_c = sums[c, second] - sums[c, first]. All pairs have the same sign vectors.
    """
    classes = len(sums)
    first, second = np.array(pairs).T
    # Equal sums may differ by rounding if they were added in another order.
    rounding = 1e-12 * np.abs(sums).sum(axis=0)
    enough = np.abs((sums[:, second] - sums[:, first]).sum(axis=0)) - rounding[first] - rounding[second]
    exact = classes < 63 and 2**classes <= permutations
    count = 2**classes if exact else permutations
    random = np.random.default_rng(seed)
    as_large = np.zeros(len(pairs))
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        every = (np.arange(start, start + size)[:, None] >> np.arange(classes)) & 1
        flipped = every if exact else random.integers(2, size=(size, classes))
        totals = (1.0 - 2.0 * flipped) @ sums
        as_large += (np.abs(totals[:, second] - totals[:, first]) >= enough).sum(axis=0)
    return (as_large / count if exact else (1 + as_large) / (1 + count)), exact


def holm(p_values: Float64[np.ndarray, "T"]) -> Float64[np.ndarray, "T"]:
    """Adjusted p values of a family of T comparisons: rejecting those of at most alpha errs anywhere in the family with chance at most alpha.

    With p_(1) <= .. <= p_(T): adjusted p_(i) = max over j <= i of min(1, (T - j + 1) p_(j)).
    """
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1)), 1.0)
    return adjusted


def _table(path: Path, metric: str) -> pa.Table:
    remedy = "Run `dvc repro` to evaluate the run anew."
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(f"{path} cannot be read: {error}.", remedy) from error
    missing = {"row_id", "label", metric} - set(table.column_names)
    if missing:
        raise UserError(
            f"{path} has no column {', '.join(sorted(missing))}, it has {', '.join(table.column_names)}.", "Ask for a metric that it has."
        )
    return table


def _scored(values: Float64[np.ndarray, "S Q"]) -> Bool[np.ndarray, "Q"]:
    missing = np.isnan(values)
    if (missing.any(axis=0) != missing.all(axis=0)).any():
        raise ValueError("the runs were not scored on the same queries")
    return ~missing[0]
