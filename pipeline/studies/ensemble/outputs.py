"""From the members' test embeddings to the outs: every ensemble, their mean and spread, and what became of
each member."""

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data.folds import validation_classes
from pipeline.evaluation.evaluate import DIGITS
from pipeline.evaluation.metrics import averages as means
from pipeline.evaluation.metrics import per_query
from pipeline.evaluation.sides import Sides, read_sides
from pipeline.runtime.files import atomic_directory, write_json
from pipeline.studies.ensemble.ensemble_protocol import EnsembleProtocol
from pipeline.studies.ensemble.members import EMBEDDINGS, RECORD, Member
from pipeline.studies.ensemble.scores import Ensembles, averages, ensembles


def judge(
    members: Sequence[Member], protocol: EnsembleProtocol
) -> tuple[dict[str, float | int | str], Ensembles]:
    """The flat metrics of the protocol, and what they are made of. All members are finished; they come repeat
    by repeat.

    Raises UserError where embeddings are missing or damaged, and where no query has a relevant image.
    """
    by_model = [
        [
            read_sides(member.done / EMBEDDINGS)
            for member in sorted(members, key=lambda one: one.repeat)
            if member.model == model
        ]
        for model in range(1, protocol.folds + 1)
    ]

    def score(one: Sides) -> dict[str, float]:
        return means(per_query(*one, protocol.recall_at))

    found = ensembles(by_model, score, label=f"evaluate {members[0].job.dataset}/{members[0].job.method}")
    first = by_model[0][0]
    dim = first.gallery.embedding.shape[1]
    return {
        "protocol": protocol.hash(),
        "members": len(members),
        "ensembles": len(found.choices),
        "separated_dimensions": dim,
        "concatenated_dimensions": dim * protocol.folds,
        "queries": len(first.queries.row_id),
        "lone_queries": int((per_query(*first, (1,)).relevant == 0).sum()),
        "gallery": len(first.gallery.row_id),
        "classes": len(np.unique(first.gallery.label)),
        **{name: round(value, DIGITS) for name, value in averages(found).items()},
    }, found


def write_outs(
    output: Path,
    members: Sequence[Member],
    classes: int,
    protocol: EnsembleProtocol,
    metrics: dict[str, float | int | str],
    found: Ensembles,
) -> None:
    """Writes into `output`, all or nothing: members.csv, results.json, protocol.json and members/<name>/ as
    each left it."""
    with atomic_directory(output) as aside:
        for member in members:
            shutil.copytree(member.done, aside / "members" / member.name)
        _write_table(aside / "members.csv", members, classes, found)
        write_json(aside / "protocol.json", protocol.declaration())
        write_json(
            aside / "results.json",
            {
                "metrics": metrics,
                "ensembles": [_ensemble(found, place) for place in range(len(found.choices))],
            },
        )


def _ensemble(found: Ensembles, place: int) -> dict[str, Any]:
    """One ensemble: the repeat (from 1) that it takes of each model, and its metrics."""
    return {
        "repeats": [repeat + 1 for repeat in found.choices[place]],
        **{
            kind: {name: round(float(values[place]), DIGITS) for name, values in getattr(found, kind).items()}
            for kind in ("separated", "concatenated")
        },
    }


def _write_table(path: Path, members: Sequence[Member], classes: int, found: Ensembles) -> None:
    """One row per member: its fold (positions among the `classes` train classes, first and last), its
    training, its test metrics."""
    rows = []
    for member in members:
        block = validation_classes(member.model, classes, len(found.choices[0]))
        record = json.loads((member.done / RECORD).read_text(encoding="utf-8"))
        fold = {"first_validation_class": block[0], "last_validation_class": block[-1]}
        test = {
            f"test_{name}": round(float(values[member.model - 1, member.repeat - 1]), DIGITS)
            for name, values in found.members.items()
        }
        ours = {name: record[name] for name in ("model", "repeat", "seed")}
        training = {
            name: value
            for name, value in record.items()
            if name not in ("model", "repeat", "seed", "identity", "sha256")
        }
        order = (
            "iterations",
            "best_iteration",
            *sorted(name for name in training if name.startswith("validation_")),
        )
        rows.append({**ours, **fold, **{name: training[name] for name in order}, **test})
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
