"""Combines the members of the MLRC protocol: scores all ensembles of their embeddings, writes the outputs."""

import sys
from pathlib import Path

from unseen.config.inputs import EnsembleInputs
from unseen.data.shards import Shards
from unseen.experiments.folds.ensemble_protocol import EnsembleProtocol
from unseen.experiments.folds.members import Member
from unseen.experiments.folds.outputs import score_ensembles, write_outputs
from unseen.runtime.files import require_writable
from unseen.runtime.sealed import write_sealed


def ensemble(dataset: str, method: str, settings: EnsembleInputs, root: Path) -> dict[str, float | int | str]:
    """Scores the ensembles of the members of `method` on `dataset`, writes data/ensemble/<dataset>/<method>/
    and the metrics, and returns the metrics.

    Raises UserError if embeddings are missing or damaged, or if no query has a relevant image.
    """
    output = root / "data/ensemble" / dataset / method
    metrics_file = root / "data/metrics" / dataset / method / "ensemble.json"
    require_writable(output.parent, metrics_file.parent)
    members = [
        Member(dataset, method, model, settings.folds, seed)
        for seed in settings.seeds
        for model in range(1, settings.folds + 1)
    ]
    shards = Shards(root / "data/shards" / dataset)
    classes = len(set(shards.labels[shards.rows("train")].tolist()))
    repeats, recall_at = len(settings.seeds), tuple(sorted(set(settings.recall_at)))
    protocol = EnsembleProtocol(settings.folds, repeats, recall_at)
    metrics, scores = score_ensembles(members, protocol, root)
    write_outputs(
        output,
        members,
        classes=classes,
        protocol=protocol,
        settings=settings,
        metrics=metrics,
        scores=scores,
        root=root,
    )
    write_sealed(metrics_file, metrics)
    sys.stdout.write(summary(dataset, method, metrics))
    sys.stdout.flush()
    return metrics


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
