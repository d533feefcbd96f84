"""What the page says of results and training of one data set."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from markupsafe import Markup

from pipeline.report import figures
from pipeline.report.inputs import Inputs, Run
from pipeline.report.joint_intervals import LANDMARKS
from pipeline.report.networks import before, few_validation_classes, networks, seeds_differ
from pipeline.report.opening import Leader, lede, tiles
from pipeline.report.summary import CLASS_MEAN, HEADLINE, NETWORKS, Results, verdict
from pipeline.report.words import interval, name_of, percent

NOISE = ("gradient_covariance", "direction_covariance")  # columns of a history whose recipe names a term in training.gradient_noise
_SEARCH_RECALL = "approximate_search_recall_at_"
_NOT_TERMS = {"iteration", "epoch", "lr", "loss", *NOISE, "grad_norm", "recall_at_1", "map_at_r", "r_precision"}


@dataclass(frozen=True)
class Shown:
    """A method as the page draws it."""

    id: str
    name: str
    position: int
    dashes: str  # of an SVG line, empty for a solid one

    @property
    def series(self) -> int:
        return self.position % 8


def headline_of(found: Results) -> str:
    """The metric that the page is about."""
    landmarks = [name for name in found.metrics if name.endswith("_medium_map")]
    return next((name for name in (HEADLINE, *landmarks) if name in found.metrics), found.metrics[0])


def results_section(inputs: Inputs, dataset: str, anchor: str, found: Results, shown: list[Shown], paired: Leader | None) -> dict[str, Any]:
    """Headline, tiles, tables and interval charts. paired: of the headline metric, None where it was not compared."""
    same = {"precision_at_1": "recall_at_1", f"{CLASS_MEAN}precision_at_1": f"{CLASS_MEAN}recall_at_1"}
    names = [name for name in found.metrics if same.get(name) not in found.metrics]
    metrics, class_means = ([name for name in names if name.startswith(CLASS_MEAN) == over_classes] for over_classes in (False, True))
    best = verdict(found, headline_of(found))
    first = inputs.of(dataset)[0]
    landmarks = LANDMARKS in first.queries.column_names
    charted = [name for name in dict.fromkeys(("recall_at_1", headline_of(found))) if name in metrics] or metrics[:1]
    return {
        "lede": lede(inputs, dataset, found, best, paired),
        "tiles": tiles(inputs, dataset, found, best),
        "networks": networks(inputs, dataset),
        "few": few_validation_classes(inputs, dataset),
        "table": _table(inputs, dataset, found, shown, metrics),
        "class_means": _table(inputs, dataset, found, shown, class_means),
        "metrics": metrics,
        "queries": f"{first.metrics['queries'] - first.metrics['lone_queries']:,}",
        "confidence": f"{first.protocol['confidence']:.0%}",
        "over": "queries" if landmarks else "test classes",
        "drawn": "queries" if landmarks else "classes",
        "forests": [Markup(figures.forest(found, name, f"{anchor}-forest-{name}")) for name in charted],
    }


def _table(inputs: Inputs, dataset: str, found: Results, shown: list[Shown], metrics: Sequence[str]) -> dict[str, Any]:
    """Selected network of each method, then what is measured beside it; bold where the best interval is clear of all others."""
    best = {name: verdict(found, name) for name in metrics}
    rows = []
    for method in shown:
        for network in NETWORKS:
            if all(found.of(method.name, name, network) is None for name in metrics):
                continue
            cells = []
            for name in metrics:
                value, top = found.of(method.name, name, network), best[name]
                cells.append(
                    {
                        "metric": name,
                        "value": percent(value.value) if value else "–",
                        "interval": interval(value) if value else "",
                        "deviation": percent(value.deviation) if value and value.deviation is not None else "",
                        "best": network == "selected" and top is not None and top.clear and top.best == method.name and len(shown) > 1,
                    }
                )
            runs = inputs.of(dataset, method.name)
            label = before(runs[0]) if network == "untrained" else name_of(network)
            finds = searched(runs) if network == "approximate" else ""
            rows.append({"method": method, "network": network, "label": label, "finds": finds, "cells": cells})
    return {"metrics": [name_of(name.removeprefix(CLASS_MEAN)) for name in metrics], "rows": rows}


def searched(runs: Sequence[Run]) -> str:
    """What share of the exact nearest images the approximate index finds, the mean over `runs`: its numbers are of those it finds."""
    shares = {int(key.rpartition("_")[2]): fmean(run.metrics[key] for run in runs) for key in runs[0].metrics if key.startswith(_SEARCH_RECALL)}
    k = max(shares)
    return f"finds {percent(shares[k])}% of the exact {k} nearest"


def training_section(inputs: Inputs, dataset: str, anchor: str, shown: list[Shown]) -> dict[str, Any]:
    """Validation curves over all methods, loss terms of each."""
    histories = {method.name: [run.history for run in inputs.of(dataset, method.name) if run.history] for method in shown}
    histories = {method: runs for method, runs in histories.items() if runs}
    positions = {method.name: method.position for method in shown}
    validations = [Markup(figures.validation(histories, positions, name, f"{anchor}-validation-{name}")) for name in (HEADLINE, "recall_at_1")]
    losses = []
    for method, runs in histories.items():
        terms = [name for name in runs[0][0] if name not in _NOT_TERMS]
        losses.append(Markup(figures.losses(method, runs, terms, f"{anchor}-loss-{positions[method]}")))
    return {"validations": validations if histories else [], "losses": losses, "seeds_differ": seeds_differ(inputs, dataset)}
