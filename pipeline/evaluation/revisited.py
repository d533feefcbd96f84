"""Revisited Oxford and Paris: mAP and mP@k at easy, medium and hard, junk removed from the ranking.

The database holds for each query easy and hard images of its landmark and junk that counts neither way. What is sought and what is removed:

    easy:    sought easy          removed junk + hard
    medium:  sought easy + hard   removed junk
    hard:    sought hard          removed junk + easy

With n images sought, the j-th of them (j = 0, 1, ...) at rank k_j from 0 once the removed images are taken out of the ranking:

    AP   = (1 / n) sum_j (p_j + q_j) / 2,   p_j = 1 if k_j = 0 else j / k_j,   q_j = (j + 1) / (k_j + 1)
    P@k  = |{j : k_j < m}| / m,   m = min(k, 1 + k_{n-1})

The trapezoid is the area under the precision-recall line of the Oxford buildings evaluation; it lies below the plain AP, sum_j q_j / n.
P@k asks for no more images than the last one sought. (Radenovic et al., Revisiting Oxford and Paris, sec. 3.3; released code revisitop,
python/evaluate.py.) A query for which nothing is sought at a level has no AP there: it stays out of the mean and is counted, as the code does.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from pipeline.runtime.errors import UserError

PRECISION_AT = (1, 5, 10)  # revisitop, python/example_evaluate.py
LEVELS = {"easy": (("easy",), ("junk", "hard")), "medium": (("easy", "hard"), ("junk",)), "hard": (("hard",), ("junk", "easy"))}


class Truth(NamedTuple):
    """What the database holds for one query: ids of its gallery rows. An id stands in one list at most; every other row is a wrong answer."""

    easy: Int64[np.ndarray, "E"]
    hard: Int64[np.ndarray, "H"]
    junk: Int64[np.ndarray, "J"]


class Scores(NamedTuple):
    """Per query at one level; NaN where nothing is sought."""

    ap: Float64[np.ndarray, "Q"]
    precision: Float64[np.ndarray, "Q F"]  # one column for each k of `precision_at`
    precision_at: tuple[int, ...]


def revisited(ranked: Iterable[Int64[np.ndarray, "_"]], truths: Sequence[Truth], precision_at: tuple[int, ...] = PRECISION_AT) -> dict[str, Scores]:
    """Scores at the levels easy, medium and hard of queries given as rankings of gallery ids, best first.

    Raises UserError where the lists of a query share an id or name one that its ranking does not hold; ValueError where there are not as many
    rankings as truths.
    """
    count = len(truths)
    scores = {level: Scores(np.full(count, np.nan), np.full((count, len(precision_at)), np.nan), precision_at) for level in LEVELS}
    for query, (ranking, truth) in enumerate(zip(ranked, truths, strict=True)):
        _check(query, ranking, truth)
        for level, (sought, removed) in LEVELS.items():
            ranks = sought_ranks(ranking, _ids(truth, sought), _ids(truth, removed))
            if len(ranks):
                scores[level].ap[query] = trapezoidal_ap(ranks)
                scores[level].precision[query] = [precision(ranks, k) for k in precision_at]
    return scores


def averages(scores: dict[str, Scores]) -> dict[str, float | int]:
    """map_<level>, mp_at_<k>_<level>, queries_<level> (averaged) and excluded_<level> (nothing sought) for each level.

    Raises UserError where no query has anything to find at a level.
    """
    flat: dict[str, float | int] = {}
    for level, score in scores.items():
        scored = ~np.isnan(score.ap)
        if not scored.any():
            raise UserError(
                f"None of the {len(scored)} queries has an image to find at level {level}.",
                "Look at the ground truth of the data set: its lists easy and hard are empty.",
            )
        flat[f"map_{level}"] = float(score.ap[scored].mean())
        for column, k in enumerate(score.precision_at):
            flat[f"mp_at_{k}_{level}"] = float(score.precision[scored, column].mean())
        flat[f"queries_{level}"] = int(scored.sum())
        flat[f"excluded_{level}"] = int((~scored).sum())
    return flat


def sought_ranks(ranking: Int64[np.ndarray, "N"], sought: Int64[np.ndarray, "R"], removed: Int64[np.ndarray, "J"]) -> Int64[np.ndarray, "R"]:
    """Ranks from 0, ascending, of the ids sought in a ranking without the ids removed."""
    return np.flatnonzero(np.isin(ranking[~np.isin(ranking, removed)], sought))


def trapezoidal_ap(ranks: Int64[np.ndarray, "R"]) -> float:
    """AP of all R images sought, at these ranks from 0, ascending. 0, 2, 5 give 0.6778 (plain AP: 0.7222)."""
    found = np.arange(len(ranks))
    before = np.where(ranks == 0, 1.0, found / np.maximum(ranks, 1))
    return float(((before + (found + 1) / (ranks + 1)) / 2).mean())


def precision(ranks: Int64[np.ndarray, "R"], k: int) -> float:
    """Share of the images sought among the first k, or among as many as the last of them needs where that is fewer."""
    most = min(k, int(ranks[-1]) + 1)
    return int((ranks < most).sum()) / most


def _ids(truth: Truth, lists: tuple[str, ...]) -> Int64[np.ndarray, "_"]:
    return np.concatenate([getattr(truth, name) for name in lists])


def _check(query: int, ranking: np.ndarray, truth: Truth) -> None:
    named = np.concatenate(truth)
    ids, counts = np.unique(named, return_counts=True)
    if (counts > 1).any():
        raise UserError(
            f"Ground truth of query {query}: id {ids[counts > 1][0]} stands more than once in easy, hard and junk.",
            "An image is one of the three; fetch the ground-truth file anew.",
        )
    missing = ids[~np.isin(ids, ranking)]
    if len(missing):
        raise UserError(
            f"Ground truth of query {query}: id {missing[0]} is not in the ranked gallery ({len(missing)} of {len(ids)} such ids).",
            "The gallery is not the whole database that the ground truth was made for; ingest and export it anew.",
        )
