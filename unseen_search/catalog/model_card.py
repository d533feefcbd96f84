"""The model card of an exported model: origin, licence, training, accuracy, use, limits.

The accuracy is that of a file of metrics: of stage `evaluate` (data/metrics/DATASET/METHOD/SEED.json), of
`unseen evaluate --json`, or of `unseen ladder` (ladder.json).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from unseen.frozen import network as pretrained
from unseen.frozen.embedder import Embedder
from unseen.report.words import name_of, percent, span
from unseen.runtime.errors import UserError
from unseen.runtime.sealed import SEAL, recompute, unsealed

LADDER = "ladder.json"
# Trained parts of a published network, by their names in network.json.
_PARTS = {
    "adapted": "The last layers of the network, from the published weights",
    "linear": "A linear layer on the published embedding",
}


class Accuracy(NamedTuple):
    """Metrics of a model, and where they are from."""

    source: str  # the file, as the card names it
    metrics: Mapping[str, float | int | str]
    remark: str = ""  # about what was measured


def accuracy_of(model: Path) -> Accuracy | None:
    """The metrics that belong to a model directory by its place: data/metrics of the same project for
    data/models/DATASET/METHOD/SEED, or ladder.json beside the model. None without such a file.

    Raises UserError as `read_accuracy` does.
    """
    model = model.resolve()
    *_, top, dataset, method, seed = ("", "", "", "", *model.parts)
    if top == "models":
        metrics = model.parents[3] / "metrics" / dataset / method / f"{seed}.json"
        if metrics.is_file():
            return read_accuracy(metrics)
    beside = model.parent / LADDER
    return read_accuracy(beside) if beside.is_file() else None


def read_accuracy(path: Path) -> Accuracy:
    """The metrics in a file. Raises UserError for a file that cannot be read or contains no metric with an
    interval."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if SEAL in content:  # a file of `unseen evaluate` has none
            run = "-".join((*path.parts[-3:-1], path.stem))
            content = unsealed(path, content, recompute(f"evaluate@{run}"))
        remark = ""
        if "chosen" in content:
            chosen = content["chosen"]
            metrics = chosen["test"]
            remark = f"Rung {chosen['name']} at {chosen['size']} pixels on classes that chose nothing."
            if content["shipped"]:
                remark += " The exported model was trained on all labelled classes: it was not measured."
        else:
            metrics = content["files"][0] if "files" in content else content
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, IndexError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        raise UserError(
            f"{path} cannot be read as metrics: {reason}.",
            "Name a file of data/metrics, of `unseen evaluate --json`, or ladder.json.",
        ) from error
    if not (isinstance(metrics, dict) and list(_with_interval(metrics))):
        raise UserError(
            f"{path} contains no metric with an interval.",
            "Name a file of data/metrics, of `unseen evaluate --json`, or ladder.json.",
        )
    return Accuracy(path.name if path.name == LADDER else "/".join(path.parts[-4:]), metrics, remark)


def card(embedder: Embedder, accuracy: Accuracy | None, differences: Mapping[str, float]) -> str:
    """The model card in Markdown. `differences`: by exported file, the largest difference of a component from
    PyTorch."""
    about = json.loads(embedder.files()[1].read_text(encoding="utf-8"))
    published = embedder.files()[1].name == pretrained.ABOUT
    facts, training = _published(about) if published else _trained(about)
    lines = ["# Model card", "", *(f"- {name}: {value}" for name, value in facts.items())]
    lines += [f"- Fingerprint: {embedder.fingerprint()}", "", "## Training", "", *training]
    lines += ["", "## Accuracy", "", *_accuracy(accuracy), "", "## Use", ""]
    lines += [
        f"{' and '.join(f'`{file}`' for file in differences)} map pixels to unit vectors of "
        f"{embedder.dim} dimensions; `preprocessing.json` describes the pixels.",
        *(
            f"- `{file}` differed from PyTorch by at most {difference:.1g} in a component."
            for file, difference in differences.items()
        ),
        "",
        "## Limits",
        "",
        "- A search always has a nearest picture, also for an unknown object: use a threshold that was "
        "measured on your own photos.",
        "- The accuracy on photos of another kind is unknown until it is measured there.",
        "- The model was not examined for identifying people or for decisions about them.",
        "",
    ]
    return "\n".join(lines)


def _published(about: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Facts and training of a published network."""
    facts = {
        "Network": about["network"],
        "Weights": about["weights"],
        "Licence of the weights": about["licence"],
        "Pixels per side": about["input"]["size"],
    }
    parts = [
        f"{what}: loss {part['loss']}, {part['steps']} steps, {part['photos']:,} photos of "
        f"{part['classes']:,} classes."
        + ("" if part["measured"] else " Its accuracy was measured on a training with fewer classes.")
        for name, what in _PARTS.items()
        if (part := about.get(name))
    ]
    return facts, parts or ["None: the published embedding."]


def _trained(about: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Facts, data, recipe and protocol of a trained model."""
    recipe = about["recipe"]
    backbone, batch, optimizer = recipe["backbone"], recipe["batch"], recipe["optimizer"]
    start = backbone["checkpoint"] or ("published weights" if backbone["pretrained"] else "random weights")
    facts = {
        "Network": f"{backbone['name']}, from {start}",
        "Method": recipe["method"],
        "Data set": about["dataset"],
        "Seed": about["seed"],
        "Licence of the weights": "that of the pretrained weights and of the training data",
        "Pixels per side": recipe["input"]["size"],
    }
    rows = {
        "data": f"{about['samples']:,} images of {about['classes']:,} classes",
        "protocol": recipe["training"]["protocol"],
        "loss": recipe.get("loss", {}).get("name", "that of the method"),
        "batch": f"{batch['classes']} classes of {batch['images_per_class']} images",
        "optimizer": f"{optimizer['name']}, learning rate {optimizer['learning_rate']:g}, weight decay "
        f"{optimizer['weight_decay']:g}, {recipe['training']['iterations']:,} iterations at most",
        "precision": recipe["training"]["precision"],
    }
    return facts, [
        *_table(("setting", "value"), rows.items()),
        "",
        "The full recipe is in recipe.json of the model.",
    ]


def _accuracy(accuracy: Accuracy | None) -> list[str]:
    """The table of metrics with intervals, and what was measured."""
    if accuracy is None:
        return [
            "Not measured. `unseen evaluate` measures it on labelled vectors; `unseen export-model --metrics "
            "FILE` adds its result."
        ]
    metrics = accuracy.metrics
    rows = [
        (name_of(name), percent(value), span(low, high)) for name, value, low, high in _with_interval(metrics)
    ]
    lines = _table(("metric", "percent", "interval over classes"), rows)
    counts = [
        f"{metrics[name]:,} {text}"
        for name, text in (
            ("queries", "queries"),
            ("gallery", "images searched"),
            ("classes", "classes, which the training did not contain"),
        )
        if isinstance(metrics.get(name), int)
    ]
    lines += ["", f"Measured on {', '.join(counts)} ({accuracy.source}). {accuracy.remark}".rstrip()]
    if "protocol" in metrics:
        lines.append(f"Protocol {metrics['protocol']}, training protocol {metrics['training_protocol']}.")
    return lines


def _with_interval(metrics: Mapping[str, Any]) -> list[tuple[str, float, float, float]]:
    """Metrics with the ends of their intervals."""
    return [
        (name, float(value), float(metrics[f"{name}_low"]), float(metrics[f"{name}_high"]))
        for name, value in metrics.items()
        if f"{name}_low" in metrics and f"{name}_high" in metrics
    ]


def _table(head: Sequence[str], rows: Any) -> list[str]:
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (head, *rows)]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]]
