"""The answers of a catalog from the nearest pictures of a query and the scores of the products."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from unseen.evaluation.decision import NEAREST, VOTES, VOTING, WITH_MARGIN
from unseen.evaluation.unknown import Threshold

NEIGHBOURS = 50  # nearest pictures in which a rule of pictures sees the second product


class Match(NamedTuple):
    """A picture of the catalog that is near a query."""

    path: str  # below the folder of the pictures
    similarity: float  # cosine, -1 to 1
    label: str | None = None  # of the picture, in a catalog with labels


class Product(NamedTuple):
    """A label that a query may show."""

    label: str
    score: float  # by the rule of the catalog, at most 1; with margin that over the best other label
    votes: int  # number of the matches with this label


class Answer(NamedTuple):
    """What a catalog contains for one query."""

    unknown: bool | None  # whether no product reaches the threshold; None without a threshold
    products: list[Product]  # of the matches, and the best one, by score; empty without labels
    matches: list[Match]  # nearest first; also of an unknown query, for which both are candidates


def answers_of(
    rule: str,
    matches: Sequence[Sequence[Match]],
    k: int,
    threshold: Threshold | None,
    names: Sequence[str],
    scores: Float32[np.ndarray, "Q C"] | None,
) -> list[Answer]:
    """The answers by a rule (decision.py). matches: of each query, nearest first, k or more. names,
    scores: of all products, for a rule of class means, without margin."""
    answers = []
    for query, near in enumerate(matches):
        of_labels = _of_matches(rule, near)
        if scores is not None:
            of_labels = dict(zip(names, scores[query].tolist(), strict=True))
        ranked = _ranked(rule, of_labels, near)
        labels = [match.label for match in near[:k]]
        products = [
            Product(label, min(1.0, score), labels.count(label))
            for place, (label, score) in enumerate(ranked)
            if place == 0 or label in labels
        ]
        best = best_score(rule, products, near)
        answers.append(Answer(None if threshold is None else best < threshold.score, products, [*near[:k]]))
    return answers


def best_score(rule: str, products: Sequence[Product], matches: Sequence[Match]) -> float:
    """The score that is compared with a threshold: of the best product, or of the nearest picture, which can
    have no label."""
    return products[0].score if products and rule != NEAREST else matches[0].similarity


def _of_matches(rule: str, near: Sequence[Match]) -> dict[str, float]:
    """The scores of the labels of the nearest pictures, without margin."""
    scores: dict[str, float] = {}
    for place, match in enumerate(near):
        if match.label is not None and rule != VOTING:
            scores.setdefault(match.label, match.similarity)
        elif match.label is not None and place < VOTES:
            scores[match.label] = scores.get(match.label, 0.0) + max(match.similarity, 0.0) / VOTES
    return scores


def _ranked(rule: str, scores: dict[str, float], near: Sequence[Match]) -> list[tuple[str, float]]:
    """The labels with their scores, best first. A second label that no match has is at most as similar as the
    last match."""
    ranked = sorted(scores.items(), key=lambda item: -item[1])
    if not ranked or not rule.endswith(WITH_MARGIN):
        return ranked
    (label, best), others = ranked[0], ranked[1:]
    second = others[0][1] if others else near[-1].similarity
    return [(label, best - second), *((other, score - best) for other, score in others)]
