"""One rule for "better": paired comparisons of rows over classes and seeds, in families.

With y[k, s, c] the mean of a metric over the n_kc images of class c at place k with seed s, the difference of
two rows is d = y(second) - y(first), paired by place, seed and class, w_kc = n_kc / sum_c n_kc, and

    effect      mean_k sum_c w_kc mean_s d[k, s, c]
    interval    over classes (intervals.py), a class has the same part in all places; with two seeds or more,
                over classes and seeds, joined with Student's t over the seeds' means
                    m_s = mean_k sum_c w_kc d[k, s, c]
    p           the larger of: sign flips by class (sign_flips.py) of D_c = mean_k w_kc mean_s d[k, s, c];
                two-sided Student's t over m_s, with two seeds or more
    family      n - 1 rows against a control, all pairs of rows, all claims of a run, or all trained rungs;
                Holm's method adjusts p inside it
    verdict     `better`, `worse`  adjusted p <= 1 - confidence, the interval excludes 0, |effect| >= least
                                   (LEAST, unless the question has its own)
                `distinct over these classes`  the same with one seed, which excludes what trainings vary
                `equal`            the interval is within +- least, with two seeds or more
                `too few classes to decide`  fewer than DECIDABLE classes at a place
                `below the floor`  the better row is not above the floor: features without a head
                `open`             otherwise

A metric of trainings as a whole has no classes: its interval and p are Student's (1908) over m_s. Sources:
Holm 1979; Hall 1992 and Bell and McCaffrey 2002 (intervals.py). The pigeonhole bootstrap (Owen 2007), which
draws classes and seeds, estimates the same variance, but its percentiles are too narrow for few classes:
docs/statistics.md has the coverage of both.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float64
from scipy.special import stdtr

from unseen.evaluation.record import Record, Run
from unseen.evaluation.statistics.intervals import MIN_CLASSES, influences, interval, spread, with_seeds
from unseen.evaluation.statistics.seeds import Average, over_seeds
from unseen.evaluation.statistics.sign_flips import sign_flip_tests
from unseen.evaluation.statistics.table import Table, of_records

CONFIDENCE = 0.95
DECIDABLE = 16  # classes
FLIPS = 4000  # sign vectors; more in a large family
LEAST = {"map_at_r": 0.003, "recall_at_1": 0.005}
Outcome = Literal[
    "better",
    "worse",
    "equal",
    "distinct over these classes",
    "open",
    "too few classes to decide",
    "below the floor",
]


class Comparison(NamedTuple):
    """A second row compared with a first, on the same classes."""

    first: float
    second: float
    difference: float  # second - first
    low: float | None  # None: fewer than MIN_CLASSES classes, or one value of a training
    high: float | None
    p_value: float  # two-sided
    queries: int
    classes: int  # of the place with the fewest; 0: a metric of trainings as a whole
    exact: bool  # whether all sign vectors were counted
    seeds: Average | None  # of the differences of the seeds, with two seeds or more


@dataclass(frozen=True)
class Question:
    """Whether a row is better than another in a metric. places: those of the comparison, all without a name.
    least: LEAST if None. floor: a row."""

    first: str
    second: str
    metric: str = "map_at_r"
    least: float | None = None
    floor: str | None = None
    places: tuple[str, ...] = ()


Family = Sequence[Question]  # whose p values are adjusted together


def against(
    control: str, rows: Sequence[str], metric: str, floor: str | None = None, places: Sequence[str] = ()
) -> Family:
    """The family of all other rows against a control."""
    return [
        Question(control, row, metric, floor=floor, places=tuple(places)) for row in rows if row != control
    ]


class Verdict(NamedTuple):
    """A comparison with its p value adjusted inside its family, and its outcome for the second row."""

    comparison: Comparison
    adjusted: float
    outcome: Outcome

    @property
    def sign(self) -> int:
        """1 if the second row is better, -1 if the first is, 0 if the verdict names none."""
        if self.outcome not in ("better", "worse", "distinct over these classes"):
            return 0
        return 1 if self.comparison.difference > 0 else -1

    def swapped(self) -> "Verdict":
        """The verdict on the first row."""
        ours = self.comparison
        swapped = ours._replace(
            first=ours.second,
            second=ours.first,
            difference=-ours.difference,
            low=None if ours.high is None else -ours.high,
            high=None if ours.low is None else -ours.low,
            seeds=None if ours.seeds is None else ours.seeds.negative(),
        )
        reverse: dict[Outcome, Outcome] = {"better": "worse", "worse": "better"}
        return Verdict(swapped, self.adjusted, reverse.get(self.outcome, self.outcome))


def judge(records: Mapping[Run, Record], family: Family) -> list[Verdict]:
    """The verdicts on the questions of a family. Raises ValueError as `of_records` does."""
    flips = flips_of(len(family))
    comparisons, least, floors = [], [], []
    for asked in family:
        metric, places = asked.metric, asked.places
        table = of_records(records, (asked.first, asked.second), metric, places)
        comparisons += compare(table, [(0, 1)], flips)
        least.append(LEAST.get(metric, 0.0) if asked.least is None else asked.least)
        floor = None if asked.floor is None else of_records(records, (asked.floor,), metric, places)
        floors.append(None if floor is None else float(floor.by_seed().mean()))
    return decide(comparisons, least, floors)


def decide(
    comparisons: Sequence[Comparison],
    least: Sequence[float],
    floors: Sequence[float | None],
    confidence: float = CONFIDENCE,
) -> list[Verdict]:
    """The verdicts on a family of comparisons. floors: values without a head; None: not compared."""
    adjusted = holm(np.array([comparison.p_value for comparison in comparisons])).tolist()
    return [
        Verdict(comparison, p_value, _outcome(comparison, p_value <= 1 - confidence, effect, floor))
        for comparison, p_value, effect, floor in zip(comparisons, adjusted, least, floors, strict=True)
    ]


def _outcome(comparison: Comparison, is_distinct: bool, least: float, floor: float | None) -> Outcome:
    if 0 < comparison.classes < DECIDABLE:
        return "too few classes to decide"
    if comparison.low is None or comparison.high is None:
        return "open"  # one training has no interval of a metric of trainings
    if floor is not None and max(comparison.first, comparison.second) <= floor:
        return "below the floor"
    if comparison.seeds is not None and max(-comparison.low, comparison.high) <= least:
        return "equal"
    excludes_zero = comparison.low > 0 or comparison.high < 0
    if not (is_distinct and excludes_zero and abs(comparison.difference) >= least):
        return "open"
    if comparison.seeds is None:
        return "distinct over these classes"
    return "better" if comparison.difference > 0 else "worse"


def flips_of(questions: int, confidence: float = CONFIDENCE) -> int:
    """Sign vectors with which the smallest p value of a family can be significant."""
    return max(FLIPS, math.ceil(4 * questions / (1 - confidence)))


def compare(
    table: Table,
    pairs: Sequence[tuple[int, int]],
    flips: int = FLIPS,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> list[Comparison]:
    """Comparisons of pairs (first, second) of rows. All pairs share the sign vectors."""
    by_seed = table.by_seed()
    first, second = np.array(pairs).T
    differences = by_seed[second] - by_seed[first]
    seeds = [over_seeds(each, confidence) if len(each) > 1 else None for each in differences]
    ends: list[list[float]] = [[each.low, each.high] if each else [] for each in seeds]
    p_values, exact, classes = np.zeros(len(pairs)), False, table.fewest_classes()
    if classes:
        means, weights = table.values.mean(axis=2), table.weights()
        p_values, exact = sign_flip_tests((weights * means).mean(axis=1).T, pairs, flips, seed)
    if classes >= MIN_CLASSES:
        of_class = influences(means, weights).mean(axis=1)
        spreads = spread(of_class[second] - of_class[first], weights.mean(axis=0))
        if differences.shape[1] > 1:
            spreads = with_seeds(spreads, differences)
        bounds = interval(differences.mean(axis=1), spreads, confidence)
        for own, low, high in zip(ends, *(bound.tolist() for bound in bounds), strict=True):
            own += [low, high]
    has_interval = (classes == 0 or classes >= MIN_CLASSES) and all(ends)
    return [
        Comparison(
            float(by_seed[a].mean()),
            float(by_seed[b].mean()),
            difference=float(differences[row].mean()),
            low=min(ends[row]) if has_interval else None,
            high=max(ends[row]) if has_interval else None,
            p_value=max(float(p_values[row]), _over_seeds(differences[row])),
            queries=table.queries(),
            classes=classes,
            exact=exact,
            seeds=seeds[row],
        )
        for row, (a, b) in enumerate(pairs)
    ]


def holm(p_values: Float64[np.ndarray, "T"]) -> Float64[np.ndarray, "T"]:
    """Adjusted p values of a family of T comparisons (Holm 1979).

    If those with an adjusted p value of at most alpha are rejected, the chance of any false rejection is at
    most alpha.

    With p_(1) <= .. <= p_(T): adjusted p_(i) = max over j <= i of min(1, (T - j + 1) p_(j)).
    """
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p_values))
    scaled = p_values[order] * np.arange(len(p_values), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted


def _over_seeds(differences: Float64[np.ndarray, "S"]) -> float:
    """The two-sided p value of Student's t over S seeds; 0 with one seed, which has no test."""
    if len(differences) < 2:
        return 0.0
    mean, deviation = abs(differences.mean()), differences.std(ddof=1) / len(differences) ** 0.5
    if deviation == 0:
        return float(mean == 0)
    return float(2 * stdtr(len(differences) - 1, -mean / deviation))
