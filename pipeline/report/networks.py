"""The network of each method, its initial weights, and the reliability of the selected iterate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unseen.networks.weights import published_weights
from unseen.report.report_data import ReportData, RunResults
from unseen.report.words import counted, listed, name_of

FEW = 10  # validation classes; fewer make the selected iterate unreliable


@dataclass(frozen=True)
class Network:
    """One line of the page; `methods` are the names of all methods with this network."""

    methods: str
    backbone: str
    weights: str
    dimensions: str
    input: str


def is_pretrained(run: RunResults) -> bool:
    """Whether the initial weights were trained: those published with the backbone, or a checkpoint."""
    backbone = run.recipe["recipe"]["backbone"]
    return backbone["pretrained"] or backbone["checkpoint"] is not None


def before(run: RunResults) -> str:
    """The label of the network with its initial weights, whose metrics are named untrained_*."""
    return "pretrained, before fine-tuning" if is_pretrained(run) else "before training"


def floor(run: RunResults) -> str:
    """The label of the features of that network without a projection, whose metrics are named features_*."""
    return "pretrained features, no projection" if is_pretrained(run) else "random features, no projection"


def networks(report_data: ReportData, dataset: str) -> list[Network]:
    """The networks of the first seed; methods with equal networks share a line."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for method in report_data.methods:
        run = report_data.of(dataset, method)[0]
        groups.setdefault(_facts(report_data, run), []).append(method)
    return [Network(_named(methods, len(report_data.methods)), *facts) for facts, methods in groups.items()]


def _named(methods: list[str], total: int) -> str:
    if 1 < len(methods) == total:
        return "both methods" if total == 2 else f"all {total} methods"
    return listed(methods)


def _facts(report_data: ReportData, run: RunResults) -> tuple[str, str, str, str]:
    recipe: dict[str, Any] = run.recipe["recipe"]
    backbone = recipe["backbone"]
    weights = _pretrained(backbone["name"]) if backbone["pretrained"] else "random initial weights"
    if backbone["checkpoint"] is not None:
        weights = "weights from a checkpoint"
    dim = report_data.analysed(run.dataset, run.method)[0]["row"]["dim"]
    return backbone["name"], weights, counted(dim, "dimension"), f"{recipe['input']['size']} px input"


def _pretrained(name: str) -> str:
    """The source of the published weights of network `name`, if pipeline/recipes/weights.yaml contains it."""
    weights = published_weights().get(name)
    if weights is None:
        return "pretrained weights"
    return f"pretrained weights ({weights.publisher}; {weights.data}; {weights.top1:.1f}% top-1)"


PROTOCOLS = {
    "selected": "the iterate is selected on held-out train classes",
    "published": "all train classes, the published length, the last iterate",
    "refit": "held-out train classes choose the length, then all train classes are trained on",
}


def protocol_of(run: RunResults) -> str:
    """The protocol of the training of a run."""
    return str(run.recipe["recipe"]["training"]["protocol"])


def protocols(report_data: ReportData, dataset: str) -> str:
    """A sentence on the training protocol of the methods, one clause per protocol."""
    of_protocol: dict[str, list[str]] = {}
    for method in report_data.methods:
        of_protocol.setdefault(protocol_of(report_data.of(dataset, method)[0]), []).append(method)
    if len(of_protocol) == 1:
        (name,) = of_protocol
        return f"Training protocol {name}: {PROTOCOLS[name]}."
    clauses = [f"{name} ({PROTOCOLS[name]}) for {listed(methods)}" for name, methods in of_protocol.items()]
    return (
        f"Training protocols: {'; '.join(clauses)}. "
        "Methods of different protocols also differ in what they were trained on."
    )


def seeds_differ(report_data: ReportData, dataset: str) -> bool:
    """Whether each seed has its own validation classes: seeds draw them unless the data set defines them."""
    samplings = {run.recipe["recipe"]["batch"]["sampling"] for run in report_data.of(dataset)}
    return len(report_data.seeds) > 1 and samplings != {"tuples"}


def gallery_sizes(report_data: ReportData, dataset: str) -> str:
    """The number of classes in the galleries of validation and of test; empty without a selection."""
    held_out = _held_out(report_data, dataset)
    if not held_out:
        return ""
    test = counted(report_data.shards[dataset].manifest["counts"]["test"]["classes"], "class")
    return (
        f"The gallery of validation has {_range(held_out)}, that of test {test}: recall is higher among "
        "fewer classes, so these curves are not comparable with the results on test classes."
    )


def few_validation_classes(report_data: ReportData, dataset: str) -> str:
    """A warning if fewer than FEW classes select the iterate of a run, else an empty text."""
    held_out = _held_out(report_data, dataset)
    if not held_out or held_out[0] >= FEW:
        return ""
    count = _range(held_out)
    selected = _selected(report_data, dataset)
    metrics = {name_of(run.recipe["recipe"]["training"]["selection_metric"]) for run in selected}
    selection = f"{' or '.join(sorted(metrics))} on only {count} held out of training"
    return f"The iterate is selected by {selection}. So few classes make this choice unreliable."


def _selected(report_data: ReportData, dataset: str) -> list[RunResults]:
    """The runs whose iterate validation selected."""
    runs = report_data.of(dataset)
    return [run for run in runs if len(run.history) > 1 and protocol_of(run) == "selected"]


def _held_out(report_data: ReportData, dataset: str) -> list[int]:
    """The different numbers of validation classes of these runs."""
    classes = report_data.shards[dataset].manifest["counts"]["train"]["classes"]
    return sorted({classes - run.recipe["classes"] for run in _selected(report_data, dataset)})


def _range(counts: Sequence[int]) -> str:
    return f"{counts[0]} to {counts[-1]} classes" if len(counts) > 1 else counted(counts[0], "class")
