"""The outputs of the protocol, from the test embeddings of the members: the metrics of every ensemble and
member, their mean and deviation."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unseen.config.inputs import EnsembleInputs
from unseen.data.splits import validation_classes
from unseen.evaluation.evaluate import DIGITS
from unseen.evaluation.metrics import averages as means
from unseen.evaluation.metrics import per_query
from unseen.evaluation.sides import Sides, read_sides
from unseen.experiments.folds.ensemble_protocol import EnsembleProtocol
from unseen.experiments.folds.members import Member
from unseen.experiments.folds.scores import Ensembles, averages, ensembles
from unseen.runtime.files import atomic_directory, write_json
from unseen.runtime.sealed import read_sealed_csv, recompute, write_digests


def score_ensembles(
    members: Sequence[Member], protocol: EnsembleProtocol, root: Path
) -> tuple[dict[str, float | int | str], Ensembles]:
    """The flat metrics of the protocol, and the metrics of every ensemble from which they are averaged. All
    members must be finished. `members` are ordered by seed, then by model.

    Raises UserError if embeddings are missing or damaged, or if no query has a relevant image.
    """
    by_model = [
        [
            read_sides(root / member.file("embeddings", ".arrow"))
            for member in members
            if member.model == model
        ]
        for model in range(1, protocol.folds + 1)
    ]

    def score(sides: Sides) -> dict[str, float]:
        return means(per_query(*sides, protocol.recall_at))

    label = f"evaluate {members[0].dataset}/{members[0].method}"
    scores = ensembles(by_model, score, label=label)
    first = by_model[0][0]
    dim = first.gallery.embedding.shape[1]
    return {
        "protocol": protocol.hash(),
        "training_protocol": "selected",  # each member selects its iterate on its fold
        "members": len(members),
        "ensembles": len(scores.choices),
        "separated_dimensions": dim,
        "concatenated_dimensions": dim * protocol.folds,
        "queries": len(first.queries.row_id),
        "lone_queries": int((per_query(*first, (1,)).relevant == 0).sum()),
        "gallery": len(first.gallery.row_id),
        "classes": len(np.unique(first.gallery.label)),
        **{name: round(value, DIGITS) for name, value in averages(scores).items()},
    }, scores


def write_outputs(
    output: Path,
    members: Sequence[Member],
    classes: int,
    protocol: EnsembleProtocol,
    settings: EnsembleInputs,
    metrics: dict[str, float | int | str],
    scores: Ensembles,
    root: Path,
) -> None:
    """Writes members.csv, results.json and protocol.json into `output`, all or none."""
    results = {
        "metrics": metrics,
        "ensembles": [_ensemble(scores, index) for index in range(len(scores.choices))],
    }
    with atomic_directory(output) as directory:
        _write_table(directory / "members.csv", members, classes, settings, scores, root)
        write_json(directory / "protocol.json", protocol.declaration())
        write_json(directory / "results.json", results)
        write_digests(directory)


def _ensemble(scores: Ensembles, index: int) -> dict[str, Any]:
    """One ensemble: the repeat (from 1) of each model, and its metrics."""
    row: dict[str, Any] = {"repeats": [repeat + 1 for repeat in scores.choices[index]]}
    for kind in ("separated", "concatenated"):
        metrics = getattr(scores, kind)
        row[kind] = {name: round(float(values[index]), DIGITS) for name, values in metrics.items()}
    return row


def _write_table(
    path: Path,
    members: Sequence[Member],
    classes: int,
    settings: EnsembleInputs,
    scores: Ensembles,
    root: Path,
) -> None:
    """One row per member: its fold (the indices of its first and last validation class among the `classes`
    train classes), its training, its test metrics."""
    rows = []
    for member in members:
        block = validation_classes(member.model, classes, settings.folds)
        repeat = settings.seeds.index(member.seed)
        fold = {"first_validation_class": block[0], "last_validation_class": block[-1]}
        test = {
            f"test_{name}": round(float(values[member.model - 1, repeat]), DIGITS)
            for name, values in scores.members.items()
        }
        stage = f"train_fold@{member.dataset}-{member.method}-{member.model}-{member.seed}"
        history = read_sealed_csv(root / member.file("history", ".csv"), recompute(stage))
        training = _selection(history, settings)
        cell = {"model": member.model, "repeat": repeat + 1, "seed": member.training_seed}
        rows.append({**cell, **fold, **training, **test})
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _selection(history: list[dict[str, str]], settings: EnsembleInputs) -> dict[str, float | int]:
    """The last and the selected iteration of a training, and the validation metric of the latter: that of the
    last validation with a gain, as in pipeline/training/loop.py."""
    metric = settings.selection_metric
    rows = [(int(row["iteration"]), float(row[metric])) for row in history]
    best_iteration, best = rows[0]
    for iteration, value in rows:
        if value > best + settings.minimum_gain:
            best_iteration, best = iteration, value
    return {"iterations": rows[-1][0], "best_iteration": best_iteration, f"validation_{metric}": best}
