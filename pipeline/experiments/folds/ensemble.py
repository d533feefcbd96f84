"""Combines the members of the MLRC protocol: scores all ensembles of their embeddings, writes the outputs."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unseen.config.inputs import EnsembleInputs
from unseen.evaluation.evaluate import DIGITS
from unseen.evaluation.metrics import averages as means
from unseen.evaluation.metrics import per_query
from unseen.evaluation.protocol import Declared, Protocol
from unseen.evaluation.sides import Sides, read_sides
from unseen.experiments.folds.members import Member
from unseen.experiments.folds.scores import Ensembles, averages, ensembles
from unseen.runtime.files import atomic_directory, require_writable, write_json
from unseen.runtime.sealed import write_digests, write_sealed

# Fields of the retrieval protocol that do not apply to ensembles.
_NOT_APPLICABLE = ("confidence", "seed", "interval", "map", "nmi", "class_mean")


@dataclasses.dataclass(frozen=True)
class EnsembleProtocol(Declared):
    """The declaration of retrieval, and of how members and ensembles are made. Each word is part of the hash:
    edit a word only if the meaning changes. Two metrics files are comparable only if the hashes are equal."""

    folds: int
    repeats: int
    recall_at: tuple[int, ...]
    blocks: str = "the train classes in the order of their labels, cut at floor(i C / folds), i = 0 .. folds"
    members: str = (
        "model k of each repeat is validated on block folds - k (from 0) and trained on the others, each "
        "from a seed of its own"
    )
    weights: str = "those of the best validation of the member"
    ensembles: str = "every choice of one repeat of each model"
    separated: str = "arithmetic mean over the models of an ensemble of their own metric"
    concatenated: str = "metric of the models' unit embeddings side by side, divided by sqrt(folds)"
    spread: str = "population standard deviation over the ensembles, as <name>_std"

    def declaration(self) -> dict[str, object]:
        retrieval = Protocol("test", self.recall_at, 0.5, 0).declaration()
        return {
            **super().declaration(),
            **{name: value for name, value in retrieval.items() if name not in _NOT_APPLICABLE},
        }


def ensemble(dataset: str, method: str, settings: EnsembleInputs, root: Path) -> dict[str, float | int | str]:
    """Scores the ensembles of the members of `method` on `dataset`, writes data/ensemble/<dataset>/<method>/
    and the metrics, and returns the metrics.

    The directory has results.json (the metrics, and those of every ensemble) and protocol.json. Raises
    UserError if embeddings are missing or damaged, or if no query has a relevant image.
    """
    output = root / "data/ensemble" / dataset / method
    metrics_file = root / "data/metrics" / dataset / method / "ensemble.json"
    require_writable(output.parent, metrics_file.parent)
    members = [
        [
            read_sides(
                root / Member(dataset, method, model, settings.folds, seed).file("embeddings", ".arrow")
            )
            for seed in settings.seeds
        ]
        for model in range(1, settings.folds + 1)
    ]
    recall_at = tuple(sorted(set(settings.recall_at)))
    protocol = EnsembleProtocol(settings.folds, len(settings.seeds), recall_at)
    scores = ensembles(
        members, lambda sides: means(per_query(*sides, recall_at)), label=f"evaluate {dataset}/{method}"
    )
    metrics = _metrics(members, scores, protocol)
    with atomic_directory(output) as directory:
        write_json(directory / "protocol.json", protocol.declaration())
        of_each = [_ensemble(scores, index) for index in range(len(scores.choices))]
        write_json(directory / "results.json", {"metrics": metrics, "ensembles": of_each})
        write_digests(directory)
    write_sealed(metrics_file, metrics)
    sys.stdout.write(summary(dataset, method, metrics))
    sys.stdout.flush()
    return metrics


def _metrics(
    members: Sequence[Sequence[Sides]], scores: Ensembles, protocol: EnsembleProtocol
) -> dict[str, float | int | str]:
    """The flat metrics of the protocol."""
    first = members[0][0]
    dim = first.gallery.embedding.shape[1]
    return {
        "protocol": protocol.hash(),
        "training_protocol": "selected",  # each member selects its iterate on its fold
        "members": protocol.folds * protocol.repeats,
        "ensembles": len(scores.choices),
        "separated_dimensions": dim,
        "concatenated_dimensions": dim * protocol.folds,
        "queries": len(first.queries.row_id),
        "lone_queries": int((per_query(*first, (1,)).relevant == 0).sum()),
        "gallery": len(first.gallery.row_id),
        "classes": len(np.unique(first.gallery.label)),
        **{name: round(value, DIGITS) for name, value in averages(scores).items()},
    }


def _ensemble(scores: Ensembles, index: int) -> dict[str, Any]:
    """One ensemble: the repeat (from 1) of each model, and its metrics."""
    row: dict[str, Any] = {"repeats": [repeat + 1 for repeat in scores.choices[index]]}
    for kind in ("separated", "concatenated"):
        metrics = getattr(scores, kind)
        row[kind] = {name: round(float(values[index]), DIGITS) for name, values in metrics.items()}
    return row


def summary(dataset: str, method: str, metrics: dict[str, float | int | str]) -> str:
    """The result in three lines."""
    lines = [
        f"{method} on {dataset}: mean and deviation over {metrics['ensembles']} ensembles of "
        f"{metrics['members']} members"
    ]
    for kind in ("separated", "concatenated"):
        values = [
            f"{name} {metrics[f'{kind}_{name}']:.2%} ± {metrics[f'{kind}_{name}_std']:.2%}"
            for name in ("recall_at_1", "r_precision", "map_at_r")
        ]
        lines.append(f"  {kind} ({metrics[f'{kind}_dimensions']} dimensions): {', '.join(values)}")
    return "\n".join(lines) + "\n"
