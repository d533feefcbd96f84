"""The verdict on a claim, by one rule.

A cell is one network on one split, with S trainings of each arm (seeds). d is second - first, paired by seed,
and for metrics of images also by test class. The effect of a cell is the mean of d, and the effect of the
claim is the mean over its cells.

    metrics of images    effect* = mean over drawn seeds of  sum_c w_c n_c d_sc / sum_c w_c n_c
                         n_c: images of class c,  w_c: how often c was drawn. A resample draws S seeds and C
                         of the C test classes of all cells with replacement, and applies them to all cells
                         (Owen 2007, the pigeonhole bootstrap). The interval contains the middle 95% of the
                         resamples, and also Student's t interval over the S means, because a bootstrap of few
                         seeds is too narrow for effects that are common to a seed.
    metrics of a training  Student's t interval over the S means over cells

    more, less   confirmed if the whole interval is on the expected side of 0, refuted if on the other side
    equal        confirmed if the whole interval is within +- margin, refuted if it is outside
    otherwise    open

Intervals are those of one claim; they are not widened for the number of claims.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float64

from unseen.evaluation.statistics.seeds import over_seeds
from unseen.evaluation.statistics.table import Table

CONFIDENCE = 0.95
RESAMPLES = 4000
Verdict = Literal["confirmed", "refuted", "open"]


class Cell(NamedTuple):
    """Values of both arms by class: one network on one split."""

    first: Float64[np.ndarray, "S C"]
    second: Float64[np.ndarray, "S C"]
    classes: tuple[str, ...]
    images: Float64[np.ndarray, "C"]


def cell_of(table: Table, images: Mapping[str, int]) -> Cell:
    """The cell of a table of two rows at one place. images: of a record at this place."""
    first, second = table.values[:, 0]
    return Cell(
        first, second, tuple(sorted(images)), np.array([images[name] for name in sorted(images)], float)
    )


class Effect(NamedTuple):
    """second - first with its interval."""

    difference: float
    low: float
    high: float


def of_classes(cells: Sequence[Cell], seed: int = 0) -> list[Effect]:
    """The effect of the claim, then those of its cells. Raises ValueError for cells with other numbers of
    seeds."""
    seeds = {len(cell.first) for cell in cells}
    if len(seeds) != 1:
        raise ValueError("the cells do not have the same number of seeds")
    (runs,) = seeds
    names = sorted({name for cell in cells for name in cell.classes})
    place = {name: index for index, name in enumerate(names)}
    random = np.random.default_rng(seed)
    drawn_classes = random.multinomial(len(names), np.full(len(names), 1 / len(names)), RESAMPLES)
    drawn_seeds = random.multinomial(runs, np.full(runs, 1 / runs), RESAMPLES) / runs
    resampled = []
    for cell in cells:
        difference = cell.second - cell.first
        weights = drawn_classes[:, [place[name] for name in cell.classes]] * cell.images
        means = (weights @ difference.T) / np.maximum(weights.sum(axis=1), 1)[:, None]
        resampled.append((means * drawn_seeds).sum(axis=1))
    tail = (1 - CONFIDENCE) / 2
    by_seed = [(cell.second - cell.first) @ cell.images / cell.images.sum() for cell in cells]
    effects = []
    for values, over in zip([np.mean(resampled, axis=0), *resampled], of_trainings(by_seed), strict=True):
        low, high = np.quantile(values, [tail, 1 - tail])
        effects.append(Effect(over.difference, min(float(low), over.low), max(float(high), over.high)))
    return effects


def of_trainings(differences: Sequence[Float64[np.ndarray, "S"]]) -> list[Effect]:
    """The effect of the claim, then those of its cells. differences: d of each cell, by seed."""
    effects = []
    for values in (np.mean(differences, axis=0), *differences):
        average = over_seeds(values, CONFIDENCE)
        effects.append(Effect(average.mean, average.low, average.high))
    return effects


def verdict(
    effect: Effect, expects: Literal["more", "less", "equal"], margin: float | None = None
) -> Verdict:
    """The verdict on an effect. margin: of `equal`."""
    if expects == "equal":
        assert margin is not None
        if -margin <= effect.low and effect.high <= margin:
            return "confirmed"
        return "refuted" if effect.low > margin or effect.high < -margin else "open"
    low, high = (effect.low, effect.high) if expects == "more" else (-effect.high, -effect.low)
    return "confirmed" if low > 0 else "refuted" if high < 0 else "open"
