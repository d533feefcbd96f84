"""Revisited Oxford and Paris: mAP and mP@k at the levels easy, medium and hard, with junk removed.

For each query the database contains easy and hard images of its landmark, and junk images, which count
neither as right nor as wrong. Relevant and removed images of each level:

    easy:    relevant easy          removed junk + hard
    medium:  relevant easy + hard   removed junk
    hard:    relevant hard          removed junk + easy

With n relevant images, and k_j the 0-based rank of the j-th of them (j = 0, 1, ...) in the ranking without
the removed images:

    AP   = (1 / n) sum_j (p_j + q_j) / 2,   p_j = 1 if k_j = 0 else j / k_j,   q_j = (j + 1) / (k_j + 1)
    P@k  = |{j : k_j < m}| / m,   m = min(k, 1 + k_{n-1})

AP is the area under the precision-recall line by trapezoids, as in the Oxford buildings evaluation. It is
smaller than the step-wise AP, sum_j q_j / n. P@k ends at the rank of the last relevant image. (Radenovic et
al., Revisiting Oxford and Paris, sec. 3.3; released code revisitop, python/evaluate.py.) A query without
relevant images at a level has no AP there. It is excluded from the mean and counted, as in the released code.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from unseen.runtime.errors import UserError

PRECISION_AT = (1, 5, 10)  # revisitop, python/example_evaluate.py
LEVELS = {
    "easy": (("easy",), ("junk", "hard")),
    "medium": (("easy", "hard"), ("junk",)),
    "hard": (("hard",), ("junk", "easy")),
}


class Truth(NamedTuple):
    """Row ids of the gallery images of one query. The lists are disjoint; every other row is irrelevant."""

    easy: Int64[np.ndarray, "E"]
    hard: Int64[np.ndarray, "H"]
    junk: Int64[np.ndarray, "J"]


class Scores(NamedTuple):
    """Scores of each query at one level; NaN for a query without relevant images."""

    ap: Float64[np.ndarray, "Q"]
    precision: Float64[np.ndarray, "Q F"]  # one column per k of `precision_at`
    precision_at: tuple[int, ...]


def revisited(
    rankings: Iterable[Int64[np.ndarray, "_"]],
    truths: Sequence[Truth],
    precision_at: tuple[int, ...] = PRECISION_AT,
) -> dict[str, Scores]:
    """Scores at the levels easy, medium and hard, from one ranking of gallery ids per query.

    Raises UserError if the lists of a query share an id or contain an id that its ranking lacks. Raises
    ValueError if the numbers of rankings and truths differ.
    """
    count = len(truths)
    scores = {
        level: Scores(np.full(count, np.nan), np.full((count, len(precision_at)), np.nan), precision_at)
        for level in LEVELS
    }
    for query, (ranking, truth) in enumerate(zip(rankings, truths, strict=True)):
        _check(query, ranking, truth)
        for level, (relevant, removed) in LEVELS.items():
            ranks = relevant_ranks(ranking, _ids(truth, relevant), _ids(truth, removed))
            if len(ranks):
                scores[level].ap[query] = trapezoidal_ap(ranks)
                scores[level].precision[query] = [precision(ranks, k) for k in precision_at]
    return scores


def averages(scores: dict[str, Scores]) -> dict[str, float | int]:
    """map_<level>, mp_at_<k>_<level>, queries_<level> (averaged) and excluded_<level> for each level.

    Raises UserError if no query has a relevant image at a level.
    """
    flat: dict[str, float | int] = {}
    for level, score in scores.items():
        scored = ~np.isnan(score.ap)
        if not scored.any():
            raise UserError(
                f"None of the {len(scored)} queries has a relevant image at level {level}.",
                "The lists easy and hard of the ground truth are empty. Fetch the ground-truth file again.",
            )
        flat[f"map_{level}"] = float(score.ap[scored].mean())
        for column, k in enumerate(score.precision_at):
            flat[f"mp_at_{k}_{level}"] = float(score.precision[scored, column].mean())
        flat[f"queries_{level}"] = int(scored.sum())
        flat[f"excluded_{level}"] = int((~scored).sum())
    return flat


def relevant_ranks(
    ranking: Int64[np.ndarray, "N"], relevant: Int64[np.ndarray, "R"], removed: Int64[np.ndarray, "J"]
) -> Int64[np.ndarray, "R"]:
    """0-based ranks, ascending, of the relevant ids in the ranking without the removed ids."""
    return np.flatnonzero(np.isin(ranking[~np.isin(ranking, removed)], relevant))


def trapezoidal_ap(ranks: Int64[np.ndarray, "R"]) -> float:
    """AP from the ascending 0-based ranks of all R relevant images.

    Ranks 0, 2, 5 give 0.6778 (step-wise AP: 0.7222).
    """
    earlier = np.arange(len(ranks))  # relevant images before each
    before = np.where(ranks == 0, 1.0, earlier / np.maximum(ranks, 1))
    return float(((before + (earlier + 1) / (ranks + 1)) / 2).mean())


def precision(ranks: Int64[np.ndarray, "R"], k: int) -> float:
    """Share of relevant images among the first min(k, rank of the last relevant image + 1) images."""
    depth = min(k, int(ranks[-1]) + 1)
    return int((ranks < depth).sum()) / depth


def _ids(truth: Truth, lists: tuple[str, ...]) -> Int64[np.ndarray, "_"]:
    return np.concatenate([getattr(truth, name) for name in lists])


def _check(query: int, ranking: np.ndarray, truth: Truth) -> None:
    ids, counts = np.unique(np.concatenate(truth), return_counts=True)
    if (counts > 1).any():
        raise UserError(
            f"Ground truth of query {query}: id {ids[counts > 1][0]} occurs twice in easy, hard and junk.",
            "Each image belongs to one of the lists. Fetch the ground-truth file again.",
        )
    missing = ids[~np.isin(ids, ranking)]
    if len(missing):
        raise UserError(
            f"Ground truth of query {query}: id {missing[0]} is not in the ranked gallery "
            f"({len(missing)} of {len(ids)} such ids).",
            "The gallery must be the whole database of the ground truth. Ingest and export the set again.",
        )
