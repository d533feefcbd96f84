"""Answers on the photos of a user, before all other sections: does training pay, which products are confused,
which labels are doubtful, from which similarity a match counts.

All numbers are those of the selected network of the best method; doubtful labels, threshold and errors of
thresholds, of its first seed.
"""

from collections import Counter
from typing import Any

import numpy as np

from unseen.data.embeddings import Embeddings, read
from unseen.evaluation.decision import NEAREST, drawn, left_out
from unseen.evaluation.statistics.better import DECIDABLE, LEAST, Verdict, compare, decide, flips_of
from unseen.evaluation.statistics.table import of_queries
from unseen.evaluation.tables import file_of, read_runs
from unseen.evaluation.unknown import calibrate
from unseen.report.analysis import match_errors
from unseen.report.comparison import COMPARED, bounds
from unseen.report.dataset import DataSet
from unseen.report.doubtful_labels import doubtful_labels
from unseen.report.joint_intervals import column_of
from unseen.report.sections.classes import confusions
from unseen.report.summary import FLOOR
from unseen.report.words import counted, name_of, percent, points, signed_points
from unseen.runtime.errors import UserError

WORST = 5  # products, and pairs of doubtful labels
# Shares of the photos of unknown products that may get a match. The smallest that the products allow is used.
SHARES = (0.01, 0.05, 0.1, 0.2)


def content(dataset: DataSet) -> dict[str, Any] | None:
    """None for a data set that is not a folder of a user, and for a ground truth without classes."""
    if dataset.name not in dataset.report_data.own_photos or dataset.is_landmarks or dataset.best is None:
        return None
    method = dataset.best.method
    embeddings = read(dataset.runs(method)[0].embeddings)
    gains = gains_of(dataset, method)
    return {
        "method": method,
        "answer": answer(*gains[0]),
        "gains": [_gain(*gain) for gain in gains],
        "errors": errors_of(dataset, method),
        "identical": _identical(dataset),
        "similar": _similar(dataset, embeddings),
        "threshold": threshold_of(embeddings),
        "match_errors": match_errors(dataset.analysis.first_curves[method]["operating_points"]),
    }


def gains_of(dataset: DataSet, method: str) -> list[tuple[str, Verdict]]:
    """The verdicts on the selected network of a method against its features before training, a family of
    COMPARED."""
    runs = dataset.runs(method)
    protocol = runs[0].protocol
    comparisons = []
    for column in map(column_of, COMPARED):
        trained = read_runs([run.query_file for run in runs], column)
        floor = read_runs([run.query_file.with_name(file_of(FLOOR)) for run in runs], column)
        table = of_queries([floor.values, trained.values], trained.label)
        flips = flips_of(len(COMPARED), protocol["confidence"])
        comparisons += compare(table, [(0, 1)], flips, protocol["confidence"], protocol["seed"])
    least, floors = [LEAST[metric] for metric in COMPARED], [None] * len(COMPARED)
    return list(zip(COMPARED, decide(comparisons, least, floors, protocol["confidence"]), strict=True))


def answer(metric: str, verdict: Verdict) -> str:
    """Whether training pays, by the verdict on it."""
    comparison = verdict.comparison
    size = signed_points(comparison.difference) if verdict.sign == 0 else points(comparison.difference)
    amount = f"{size} points of {name_of(metric)} ({bounds(comparison)})"
    training = "this one training" if comparison.seeds is None else "training"
    if verdict.sign > 0:
        return f"Yes: {training} adds {amount} to the features before training."
    if verdict.sign < 0:
        return f"No: {training} costs {amount}. Use the features before training."
    change = f"{training} changes the features before training by {amount}"
    if verdict.outcome == "equal":
        return f"No: {change}, and the whole interval is within {points(LEAST[metric])} points."
    if verdict.outcome == "too few classes to decide":
        products = counted(comparison.classes, "test product")
        return f"Not decided: {products} are too few, {DECIDABLE} are needed; {change}."
    return f"Not shown: {change}."


def _gain(metric: str, verdict: Verdict) -> dict[str, str]:
    comparison = verdict.comparison
    return {
        "metric": name_of(metric),
        "floor": percent(comparison.first),
        "trained": percent(comparison.second),
        "difference": signed_points(comparison.difference),
        "interval": bounds(comparison),
    }


def errors_of(dataset: DataSet, method: str) -> list[dict[str, Any]]:
    """The products with the largest share of photos whose nearest photo is of another product."""
    names = dataset.shards.class_names
    labels = dataset.labels
    queries: Counter[int] = Counter()
    for run in dataset.runs(method):
        is_scored = run.queries["relevant"].to_numpy() > 0
        queries.update(run.queries["label"].to_numpy()[is_scored].tolist())
    wrong: Counter[int] = Counter()
    other: dict[int, str] = {}
    for pair in confusions(dataset.runs(method), dataset.shards.labels):
        wrong[pair.label] += pair.count
        other.setdefault(pair.label, labels[pair.other])  # the most frequent one is first
    ordered = sorted(wrong, key=lambda label: (-wrong[label] / queries[label], label))[:WORST]
    return [
        {
            "label": labels[label],
            "name": names[label],
            "wrong": wrong[label],
            "photos": queries[label],
            "share": percent(wrong[label] / queries[label]),
            "other": other[label],
        }
        for label in ordered
    ]


def _identical(dataset: DataSet) -> dict[str, Any]:
    """The pairs of images with the same pixels and different labels that ingest found."""
    duplicates = dataset.shards.manifest.get("duplicates", {})
    row_of = {source: row for row, source in enumerate(dataset.shards.sources)}
    pairs = [
        (row_of[first], row_of[second])
        for first, second in duplicates.get("pairs", [])
        if dataset.shards.labels[row_of[first]] != dataset.shards.labels[row_of[second]]
    ]
    return {
        "count": duplicates.get("across_classes", 0),
        "pairs": [{"images": list(map(dataset.picture, pair))} for pair in pairs[:WORST]],
    }


def _similar(dataset: DataSet, embeddings: Embeddings) -> dict[str, Any]:
    doubtful = doubtful_labels(embeddings.embedding, embeddings.label, WORST)
    rows = embeddings.row_id.tolist()
    return {
        "median": None if doubtful.median is None else f"{doubtful.median:.2f}",
        "classes": doubtful.classes,
        "pairs": [
            {
                "images": [dataset.picture(rows[place]) for place in (each.first, each.second)],
                "similarity": f"{each.similarity:.2f}",
                "count": each.pairs,
            }
            for each in doubtful.similar
        ],
    }


def threshold_of(embeddings: Embeddings) -> str:
    """The statement on the threshold, or why there is none."""
    labels = np.unique(embeddings.label, return_inverse=True)[1].astype(np.int64)
    classes = int(labels.max()) + 1
    if classes < 2:
        return "There is one test product: no photo of another product can get a match."
    of_photos = left_out(embeddings.embedding, labels, drawn(labels, np.zeros(classes, bool)))[NEAREST]
    reason = ""
    for share in SHARES:
        try:
            return calibrate(of_photos, classes, share).sentence()
        except UserError as error:
            reason = str(error)
    return reason
