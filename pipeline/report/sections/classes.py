"""Scores of single test classes, and the classes that are confused most often."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc
from jaxtyping import Float, Int

from unseen.report.dataset import DataSet
from unseen.report.report_data import RunResults
from unseen.report.words import percent

COUNT = 12  # classes, and pairs of classes


@dataclass(frozen=True)
class Confusion:
    """The nearest image of `count` queries of `label`, of `queries`, belongs to class `other`."""

    label: int
    other: int
    count: int
    queries: int


def content(dataset: DataSet) -> dict[str, Any] | None:
    """The classes with the lowest AP@R, and the most frequent confusions, of the best method. None for a
    ground truth without classes."""
    if dataset.is_landmarks or dataset.best is None:
        return None
    names = dataset.shards.class_names
    labels = dataset.labels
    scores = {method.name: scores_of(dataset.runs(method.name)) for method in dataset.methods}
    best = scores[dataset.best.method]
    hardest = sorted(best, key=lambda label: (best[label][0], label))[:COUNT]
    confused = confusions(dataset.runs(dataset.best.method), dataset.shards.labels)[:COUNT]
    return {
        "best": dataset.best.method,
        "total": len(best),
        "rows": [
            {
                "label": labels[label],
                "name": names[label],
                "images": best[label][1],
                "cells": [percent(scores[method.name][label][0]) for method in dataset.methods],
            }
            for label in hardest
        ],
        "confusions": confused,
        "names": names,
    }


def scores_of(runs: Sequence[RunResults]) -> dict[int, tuple[float, int]]:
    """Mean AP@R over the queries of each class and over seeds, and the number of its queries. Classes of lone
    queries are omitted."""
    ap, labels = _scored(runs)
    classes, places = np.unique(labels, return_inverse=True)
    queries = np.bincount(places)
    means = np.stack([np.bincount(places, weights=row) / queries for row in ap]).mean(axis=0)
    return {
        int(label): (float(mean), int(count))
        for label, mean, count in zip(classes, means, queries, strict=True)
    }


def confusions(runs: Sequence[RunResults], labels: Int[np.ndarray, " N"]) -> list[Confusion]:
    """Pairs of classes by the number of queries of the first whose nearest image has the second, over all
    seeds, the most frequent first. `labels`: of all rows of the data set."""
    pairs: Counter[tuple[int, int]] = Counter()
    queries: Counter[int] = Counter()
    for run in runs:
        rows = run.neighbours["row_id"].to_numpy()
        nearest = pc.list_element(run.neighbours["neighbours"], 0).to_numpy()
        scored = run.queries.filter(pc.field("relevant") > 0)["row_id"].to_numpy()
        is_scored = np.isin(rows, scored)
        of_query, of_nearest = labels[rows[is_scored]], labels[nearest[is_scored]]
        queries.update(of_query.tolist())
        wrong = of_query != of_nearest
        pairs.update(zip(of_query[wrong].tolist(), of_nearest[wrong].tolist(), strict=True))
    ordered = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))
    return [Confusion(label, other, count, queries[label]) for (label, other), count in ordered]


def _scored(runs: Sequence[RunResults]) -> tuple[Float[np.ndarray, "S Q"], Int[np.ndarray, " Q"]]:
    """AP@R of each seed, and the classes, of the queries with relevant images."""
    tables = [run.queries.filter(pc.field("relevant") > 0) for run in runs]
    ap = np.stack([table["ap_at_r"].to_numpy() for table in tables])
    return ap, tables[0]["label"].to_numpy()
