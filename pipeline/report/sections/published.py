"""Our numbers next to those that a paper prints for the same data set and recipe, and the conditions that
differ.

Conditions are network, dimensions, image size, the training protocol, the setting of the evaluation, and the
values of the recipe that reproduce a printed row (pipeline/experiments/printed). A row is shown if it needs
no such values, or if the recipe of this run has them; the others are collapsed. Rows with the same numbers
in several papers are merged. Lengths of training, batches and optimisers are not compared.
"""

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from unseen.config.place import ABSENT, at
from unseen.experiments.printed.model import PLAIN, Number, Row, papers, published
from unseen.report.dataset import DataSet, MethodStyle
from unseen.report.networks import PROTOCOLS, protocol_of, protocols
from unseen.report.recipes import changes_of
from unseen.report.report_data import ReportData
from unseen.report.summary import Summary
from unseen.report.words import listed, name_of, percent, signed_points

ENSEMBLES = {"mlrc-separated": "separated", "mlrc-concatenated": "concatenated"}
UNITS = {"backbone": "", "dim": " dimensions", "size": " pixels"}  # of conditions
_WORDS = {"backbone": "network", "dim": "dimensions", "size": "image size"}
_IN_CONDITIONS = ("backbone.name", "dim", "input.size")  # fields that are also conditions of a row


@dataclass(frozen=True)
class OurNumbers:
    """The numbers of one kind of a method: of the selected network, of its reduced embeddings, or of
    ensembles.
    """

    method: str  # the published name: of a variant, the method that it is like
    kind: str
    conditions: dict[str, Any]  # backbone, dim, size
    protocol: str  # of the training
    recipe: dict[str, Any]
    values: dict[str, float]  # by metric, as stored
    changes: list[tuple[str, str]]  # (key, text) of each setting that a variant changes


def content(dataset: DataSet) -> dict[str, Any] | None:
    return published_tables(dataset.report_data, dataset.name, dataset.summary, dataset.methods)


def published_tables(
    report_data: ReportData, dataset: str, summary: Summary, methods: Sequence[MethodStyle]
) -> dict[str, Any] | None:
    """Tables of the shown and of the collapsed rows; None if nothing was published for the data set and its
    methods.
    """
    groups = {
        method.name: merged(published(dataset, report_data.published_name(method.name))) for method in methods
    }
    rows = [row for groups_of_method in groups.values() for group in groups_of_method for row in group]
    if not rows:
        return None
    columns = sorted({metric for row in rows for metric in row.metrics}, key=_place)
    pairings = [
        (method, numbers, group)
        for method in methods
        for numbers, group in _pair(
            groups[method.name], numbers_of(report_data, dataset, summary, method.name, columns)
        )
    ]
    tables: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for is_open, blocks in tables.items():
        for method, numbers, group in pairings:
            selected = [rows for rows in group if is_shown(rows[0], numbers) is is_open]
            if selected:
                blocks.append(_block(method, numbers, selected, columns))
    return {
        "columns": [name_of(name) for name in columns],
        "shown": tables[True],
        "collapsed": tables[False],
        "protocols": protocols(report_data, dataset),
        "count": sum(len(block["rows"]) for block in tables[False]),
        "selection": [
            f"{paper.name}: {paper.selection}."
            for paper in papers()
            if any(row.paper == paper.key for row in rows)
        ],
        "doubtful": any(not number.reliable for row in rows for number in row.metrics.values()),
    }


def numbers_of(
    report_data: ReportData, dataset: str, summary: Summary, method: str, metrics: Sequence[str]
) -> list[OurNumbers]:
    """The numbers of a method that are compared with published ones, one entry per kind."""
    run = report_data.of(dataset, method)[0]
    recipe = run.recipe["recipe"]
    rows = [entry["row"] for entry in report_data.analysed(dataset, method)]
    conditions = {
        "backbone": at(recipe, "backbone.name"),
        "size": at(recipe, "input.size"),
        "dim": rows[0]["dim"] if rows else at(recipe, "dim"),
    }
    method, changes = report_data.published_name(method), _changes(report_data, dataset, method)
    geometry = {name: statistics.fmean(row[name] for row in rows) for name in PLAIN if rows}
    values, reduced = (
        {
            name: value.value
            for name in metrics
            if (value := summary.of(run.method, name, network)) is not None
        }
        for network in ("selected", "reduced")
    )
    protocol = protocol_of(run)
    kinds = [OurNumbers(method, "selected", conditions, protocol, recipe, values | geometry, changes)]
    if reduced:
        reduced_conditions = conditions | {"dim": _reduced_dim(run.protocol)}
        kinds.append(OurNumbers(method, "reduced", reduced_conditions, protocol, recipe, reduced, changes))
    ensemble = report_data.ensembles.get((dataset, run.method), {})
    for kind in ENSEMBLES.values():
        values = {name: ensemble[f"{kind}_{name}"] for name in metrics if f"{kind}_{name}" in ensemble}
        if values:
            of_kind = conditions | {"dim": ensemble[f"{kind}_dimensions"]}
            kinds.append(OurNumbers(method, kind, of_kind, "selected", recipe, values, changes))
    return kinds


def _changes(report_data: ReportData, dataset: str, method: str) -> list[tuple[str, str]]:
    like, changes = report_data.published_name(method), changes_of(report_data, dataset, method)
    if changes is None:
        return [("", f"variant of {like} here; {like} is not in this report")]
    return [(key, f"{key} {value} here, {other} in {like}") for key, value, other in changes]


def differences(row: Row, ours: OurNumbers) -> list[str]:
    """The conditions that differ, one line each."""
    conditions = [(name, getattr(row, name), ours.conditions[name]) for name in UNITS]
    lines = [
        f"{published}{UNITS[name]} in the paper, {_text(here)} here"
        for name, published, here in conditions
        if not _holds(published, here)
    ]
    if at(ours.recipe, "backbone.pretrained") is False and at(ours.recipe, "backbone.checkpoint") is None:
        lines.append("ImageNet weights in the paper, random weights here")  # all four papers use them
    is_trained = at(ours.recipe, "training.iterations") != 0
    if is_trained and row.setting not in ENSEMBLES and row.protocol != ours.protocol:
        theirs = "all train classes" if row.protocol == "published" else "held-out classes for validation"
        lines.append(f"{theirs} in the paper, protocol {ours.protocol} here ({PROTOCOLS[ours.protocol]})")
    if row.setting in ENSEMBLES and ours.kind != ENSEMBLES[row.setting]:
        lines.append(f"MLRC in the paper ({ENSEMBLES[row.setting]}, 4 networks), one network here")
    if row.reduced and ours.kind != "reduced":
        lines.append("reduced by PCA in the paper, not reduced here")
    if row.loss_of == ours.method:
        named = set(_IN_CONDITIONS)
        lines.append(f"trained with recipe {row.method} in the paper")
    else:
        named = {*_IN_CONDITIONS, *row.recipe}
        lines += [
            f"{key} {_text(value)} in the paper, {_text(here)} here"
            for key, value in row.recipe.items()
            if key not in _IN_CONDITIONS and (here := at(ours.recipe, key)) != value
        ]
    return lines + [change for key, change in ours.changes if key not in named]


def unstated(row: Row) -> str:
    """The conditions that the paper does not state."""
    return listed([word for name, word in _WORDS.items() if getattr(row, name) is None] or [""])


def is_shown(row: Row, ours: OurNumbers) -> bool:
    """Whether the row needs no further values of the recipe, or this run has these values and the network."""
    same_values = all(at(ours.recipe, key) == value for key, value in row.recipe.items())
    same = same_values and _holds(row.backbone, ours.conditions["backbone"])
    return row.loss_of != ours.method and (same or not row.recipe)


def merged(rows: Iterable[Row]) -> list[list[Row]]:
    """Groups of rows with the same conditions and the same numbers in the metrics that they share.

    The first row of each group states the most conditions.
    """
    groups: list[list[Row]] = []
    for row in rows:
        same = next((group for group in groups if all(_same(row, other) for other in group)), None)
        if same is None:
            groups.append([row])
        else:
            same.append(row)
    return [
        sorted(group, key=lambda row: (row.backbone is None) + (row.size is None) + (row.dim is None))
        for group in groups
    ]


def _holds(published: Any, here: Any) -> bool:
    """Whether a condition of a row holds here.

    A row without the condition accepts any value. A network without a tag of weights accepts any weights.
    """
    is_untagged = isinstance(published, str) and isinstance(here, str) and "." not in published
    return published is None or published == (here.partition(".")[0] if is_untagged else here)


def _same(row: Row, other: Row) -> bool:
    metrics = row.metrics.keys() & other.metrics.keys()
    equal = ("method", "loss_of", "recipe", "setting", "reduced")
    stated = [{getattr(row, name), getattr(other, name)} for name in ("backbone", "dim", "size")]
    return (
        all(getattr(row, name) == getattr(other, name) for name in equal)
        and all(None in values or len(values) == 1 for values in stated)
        and bool(metrics)
        and all(row.metrics[name].text == other.metrics[name].text for name in metrics)
    )


def _pair(groups: list[list[Row]], kinds: list[OurNumbers]) -> list[tuple[OurNumbers, list[list[Row]]]]:
    """Each kind of our numbers with its rows: MLRC's with ensembles, reduced ones with reduced ones, if they
    exist.
    """
    rows_of: dict[str, list[list[Row]]] = {numbers.kind: [] for numbers in kinds}
    for rows in groups:
        kind = ENSEMBLES.get(rows[0].setting, "reduced" if rows[0].reduced else "selected")
        rows_of[kind if kind in rows_of else "selected"].append(rows)
    return [(numbers, rows_of[numbers.kind]) for numbers in kinds if rows_of[numbers.kind]]


def _block(
    method: MethodStyle, ours: OurNumbers, groups: list[list[Row]], columns: list[str]
) -> dict[str, Any]:
    conditions = ours.conditions
    return {
        "method": method,
        "kind": "" if ours.kind == "selected" else f", {ours.kind}",
        "conditions": ", ".join(
            [
                *(
                    f"{conditions[name]}{unit}"
                    for name, unit in UNITS.items()
                    if conditions[name] is not ABSENT
                ),
                f"protocol {ours.protocol}",
            ]
        ),
        "cells": [_our_cell(ours, name) for name in columns],
        "rows": [_line(rows, ours, columns) for rows in groups],
    }


def _line(rows: list[Row], ours: OurNumbers, columns: list[str]) -> dict[str, Any]:
    """The line of a group of published rows."""
    metrics = {name: number for row in rows[::-1] for name, number in row.metrics.items()}
    return {
        "name": " / ".join(dict.fromkeys(row.name for row in rows)),
        "sources": ", ".join(dict.fromkeys(row.source for row in rows)),
        "differences": differences(rows[0], ours),
        "unstated": unstated(rows[0]),
        "notes": list(dict.fromkeys(row.note for row in rows if row.note)),
        "cells": [_cell(name, metrics.get(name), ours) for name in columns],
    }


def _cell(name: str, number: Number | None, ours: OurNumbers) -> dict[str, str]:
    if number is None:
        return {"metric": name, "value": "", "difference": ""}
    our_value = ours.values.get(name)
    difference = ""
    if our_value is not None and number.reliable:
        is_plain = name in PLAIN
        difference = (
            f"{our_value - number.value:+.2f}".replace("-", "−")
            if is_plain
            else signed_points(our_value - number.value / 100)
        )
    return {"metric": name, "value": number.text + "†" * (not number.reliable), "difference": difference}


def _our_cell(ours: OurNumbers, name: str) -> str:
    value = ours.values.get(name)
    return "–" if value is None else f"{value:.2f}" if name in PLAIN else percent(value)


def _text(value: Any) -> str:
    """A setting as text; the name of a part."""
    if value is ABSENT:
        return "not set"
    if isinstance(value, dict):
        return str(value.get("name", "set"))
    return "none" if value is None else str(value)


def _reduced_dim(protocol: dict[str, Any]) -> Any:
    """The dimensions of `reduced_*`, from the text of the protocol: `reduced_*: to 128 dimensions, ...`."""
    match = re.search(r"to (\d+) dimensions", str(protocol.get("reduction")))
    return int(match[1]) if match else ABSENT


def _place(metric: str) -> tuple[bool, bool, str, int]:
    """Order of the columns: recall by K, other metrics of a ranking, geometry."""
    stem, _, k = metric.rpartition("_")
    return metric in PLAIN, not metric.startswith("recall"), *((stem, int(k)) if k.isdigit() else (metric, 0))
