"""Which network each method trained, in a line, and what it was before that: its published weights, or drawn at random."""

from dataclasses import dataclass
from typing import Any

from pipeline.report.inputs import Inputs, RunResults
from pipeline.report.words import counted, listed, name_of

FEW = 10  # validation classes, below which Recall@1 among them says little


@dataclass(frozen=True)
class Network:
    """The same for all of `methods`."""

    methods: str  # named
    backbone: str
    begins: str
    dimensions: str
    input: str


def is_pretrained(run: RunResults) -> bool:
    """Whether training began from weights that somebody trained before: those published with the backbone, or a checkpoint."""
    backbone = run.recipe["recipe"]["backbone"]
    return backbone["pretrained"] or backbone["checkpoint"] is not None


def before(run: RunResults) -> str:
    """What the network is called before its first step, whose metrics are named untrained_*."""
    return "pretrained, before fine-tuning" if is_pretrained(run) else "before training"


def networks(inputs: Inputs, dataset: str) -> list[Network]:
    """The networks of the first seed, methods that share all of it together."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for method in inputs.methods:
        run = inputs.of(dataset, method)[0]
        groups.setdefault(_facts(inputs, run), []).append(method)
    everyone = f"all {len(inputs.methods)} methods"
    return [
        Network(everyone if 1 < len(inputs.methods) == len(methods) else listed(methods), *facts)
        for facts, methods in groups.items()
    ]


def _facts(inputs: Inputs, run: RunResults) -> tuple[str, str, str, str]:
    recipe: dict[str, Any] = run.recipe["recipe"]
    backbone = recipe["backbone"]
    begins = (
        "from a checkpoint"
        if backbone["checkpoint"] is not None
        else "pretrained"
        if backbone["pretrained"]
        else "from random weights"
    )
    of_run = (run.dataset, run.method, run.seed, "selected")
    rows = (entry["row"] for entry in inputs.analysis)
    dim = next(
        row["dim"]
        for row in rows
        if tuple(row[name] for name in ("dataset", "method", "seed", "network")) == of_run
    )
    return backbone["name"], begins, counted(dim, "dimension"), f"{recipe['input']['size']} px input"


def seeds_differ(inputs: Inputs, dataset: str) -> bool:
    """Whether seeds are judged on validation classes of their own: they draw them, unless the data set itself says which these are."""
    return len(inputs.seeds) > 1 and any(
        run.recipe["recipe"]["batch"]["sampling"] != "tuples" for run in inputs.of(dataset)
    )


def few_validation_classes(inputs: Inputs, dataset: str) -> str:
    """What is to be said of selected iterates where fewer than FEW classes chose them; empty where there are enough."""
    classes = inputs.shards[dataset].manifest["counts"]["train"]["classes"]
    choosing = [run for run in inputs.of(dataset) if len(run.history) > 1]
    held_out = [classes - run.recipe["classes"] for run in choosing]
    if not held_out or min(held_out) >= FEW:
        return ""
    count = (
        counted(held_out[0], "class")
        if len(set(held_out)) == 1
        else f"{min(held_out)} to {max(held_out)} classes"
    )
    chosen = " or ".join(
        sorted({name_of(run.recipe["recipe"]["training"]["selection_metric"]) for run in choosing})
    )
    return f"The selected iterate was chosen by {chosen} on only {count} held out of training: a rough choice, and Recall@1 there soon reaches 100."
