"""What the page says of published numbers: ours beside those that a paper prints for the same data set and recipe, and what differs in between.

Conditions are network, dimensions, image size, protocol, and the settings that make a printed row out of a recipe (pipeline/published). A row of the
paper's own setting is shown, and so is one whose settings this run's recipe has; all others are folded away. Rows that say the same in several papers
are one. Lengths of training, batches and optimisers are not compared.
"""

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.published import PLAIN, Number, Row, papers, published
from pipeline.report.inputs import Inputs
from pipeline.report.outcome import Shown
from pipeline.report.summary import Results
from pipeline.report.words import listed, name_of, percent, signed_points

ENSEMBLES = {"mlrc-separated": "separated", "mlrc-concatenated": "concatenated"}
_UNITS = {"backbone": "", "dim": " dimensions", "size": " pixels"}
_WORDS = {"backbone": "network", "dim": "dimensions", "size": "image size"}
_OWN = ("backbone.name", "dim", "input.size")  # settings that the conditions of a row say as well
_UNKNOWN = object()


@dataclass(frozen=True)
class Ours:
    """One kind of number of a method: of the selected network, the same reduced, or of the ensembles. values: by metric, as stored."""

    method: str
    kind: str
    conditions: dict[str, Any]  # backbone, dim, size
    recipe: dict[str, Any]
    values: dict[str, float]


def published_section(inputs: Inputs, dataset: str, found: Results, shown: Sequence[Shown]) -> dict[str, Any] | None:
    """Tables of the rows shown and of those folded away; None where nothing was published for the data set and its methods."""
    said = {method.name: merged(published(dataset, method.name)) for method in shown}
    printed = [row for groups in said.values() for rows in groups for row in rows]
    if not printed:
        return None
    columns = sorted({metric for row in printed for metric in row.metrics}, key=_place)
    blocks = [
        (method, one, group) for method in shown for one, group in _beside(said[method.name], ours(inputs, dataset, found, method.name, columns))
    ]
    tables = {
        shows: [
            _block(method, one, kept, columns)
            for method, one, group in blocks
            if (kept := [rows for rows in group if is_shown(rows[0], one) is shows])
        ]
        for shows in (True, False)
    }
    return {
        "columns": [name_of(name) for name in columns],
        "shown": tables[True],
        "folded": tables[False],
        "count": sum(len(block["rows"]) for block in tables[False]),
        "selection": [f"{paper.name}: {paper.selection}." for paper in papers() if any(row.paper == paper.key for row in printed)],
        "doubtful": any(not number.reliable for row in printed for number in row.metrics.values()),
    }


def ours(inputs: Inputs, dataset: str, found: Results, method: str, metrics: Sequence[str]) -> list[Ours]:
    """The numbers of this run that a published one can stand beside: of the selected network, and of what else was evaluated."""
    run = inputs.of(dataset, method)[0]
    recipe = run.recipe["recipe"]
    rows = [
        entry["row"]
        for entry in inputs.analysis
        if (entry["row"]["dataset"], entry["row"]["method"], entry["row"]["network"]) == (dataset, method, "selected")
        and entry["row"]["seed"] in inputs.seeds
    ]
    backbone, size = setting(recipe, "backbone.name"), setting(recipe, "input.size")
    conditions = {"backbone": backbone, "size": size, "dim": rows[0]["dim"] if rows else setting(recipe, "dim")}
    geometry = {name: statistics.fmean(row[name] for row in rows) for name in PLAIN if rows}
    measured = {name: value.value for name in metrics if (value := found.of(method, name)) is not None}
    kinds = [Ours(method, "selected", conditions, recipe, measured | geometry)]
    reduced = {name: value.value for name in metrics if (value := found.of(method, name, "reduced")) is not None}
    if reduced:
        kinds.append(Ours(method, "reduced", conditions | {"dim": _reduced_to(run.protocol)}, recipe, reduced))
    ensemble = inputs.ensembles.get((dataset, method), {})
    for kind in ENSEMBLES.values():
        values = {name: ensemble[f"{kind}_{name}"] for name in metrics if f"{kind}_{name}" in ensemble}
        if values:
            kinds.append(Ours(method, kind, conditions | {"dim": ensemble[f"{kind}_dimensions"]}, recipe, values))
    return kinds


def differences(row: Row, here: Ours) -> list[str]:
    """What was otherwise there, in words."""
    conditions = [(name, getattr(row, name), here.conditions[name]) for name in _UNITS]
    said = [f"{there}{_UNITS[name]} there, {_word(own)} here" for name, there, own in conditions if not _agree(there, own)]
    if setting(here.recipe, "backbone.pretrained") is False and setting(here.recipe, "backbone.checkpoint") is None:
        said.append("ImageNet weights there, random ones here")  # all four papers start from them
    if row.protocol in ENSEMBLES and here.kind != ENSEMBLES[row.protocol]:
        said.append(f"MLRC there ({ENSEMBLES[row.protocol]}, 4 networks), one network here")
    if row.reduced and here.kind != "reduced":
        said.append("reduced by PCA there, not here")
    if row.loss_of == here.method:
        said.append(f"trained as recipe {row.method} there")
    else:
        said += [
            f"{key} {_word(value)} there, {_word(own)} here"
            for key, value in row.settings.items()
            if key not in _OWN and (own := setting(here.recipe, key)) != value
        ]
    return said


def unstated(row: Row) -> str:
    """The conditions that its paper leaves open."""
    return listed([word for name, word in _WORDS.items() if getattr(row, name) is None] or [""])


def is_shown(row: Row, here: Ours) -> bool:
    """Whether it is of the paper's own setting, or of settings and a network that this run has too."""
    settings = all(setting(here.recipe, key) == value for key, value in row.settings.items())
    held = settings and _agree(row.backbone, here.conditions["backbone"])
    return row.loss_of != here.method and (held or not row.settings)


def merged(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows of the same conditions and, where they share metrics, the same numbers, as one; the first of each states the most conditions."""
    groups: list[list[Row]] = []
    for row in rows:
        same = next((group for group in groups if all(_same(row, other) for other in group)), None)
        if same is None:
            groups.append([row])
        else:
            same.append(row)
    return [sorted(group, key=lambda row: (row.backbone is None) + (row.size is None) + (row.dim is None)) for group in groups]


def setting(recipe: dict[str, Any], key: str) -> Any:
    """The value at a dotted key of a resolved recipe; _UNKNOWN where there is no such key."""
    node: Any = recipe
    for part in key.split("."):
        if not isinstance(node, dict) or part not in node:
            return _UNKNOWN
        node = node[part]
    return node


def _agree(published: Any, own: Any) -> bool:
    """Whether a condition of a row holds here. A row without a condition, or with a network without a tag, accepts any."""
    is_untagged = isinstance(published, str) and isinstance(own, str) and "." not in published
    return published is None or published == (own.partition(".")[0] if is_untagged else own)


def _same(one: Row, other: Row) -> bool:
    shared = one.metrics.keys() & other.metrics.keys()
    exact = all(getattr(one, name) == getattr(other, name) for name in ("method", "loss_of", "settings", "protocol", "reduced"))
    stated = all(None in (a := {getattr(one, name), getattr(other, name)}) or len(a) == 1 for name in ("backbone", "dim", "size"))
    return exact and stated and bool(shared) and all(one.metrics[name].text == other.metrics[name].text for name in shared)


def _beside(groups: list[list[Row]], kinds: list[Ours]) -> list[tuple[Ours, list[list[Row]]]]:
    """Each kind of ours with the rows that stand beside it: MLRC's beside ensembles, reduced ones beside reduced ones, where there are any."""
    beside: dict[str, list[list[Row]]] = {one.kind: [] for one in kinds}
    for rows in groups:
        wanted = ENSEMBLES.get(rows[0].protocol, "reduced" if rows[0].reduced else "selected")
        beside[wanted if wanted in beside else "selected"].append(rows)
    return [(one, beside[one.kind]) for one in kinds if beside[one.kind]]


def _block(method: Shown, here: Ours, groups: list[list[Row]], columns: list[str]) -> dict[str, Any]:
    known = here.conditions
    return {
        "method": method,
        "kind": "" if here.kind == "selected" else f", {here.kind}",
        "conditions": ", ".join(f"{known[name]}{unit}" for name, unit in _UNITS.items() if known[name] is not _UNKNOWN),
        "cells": [_own(here, name) for name in columns],
        "rows": [_line(rows, here, columns) for rows in groups],
    }


def _line(rows: list[Row], here: Ours, columns: list[str]) -> dict[str, Any]:
    """A published row, said by one paper or several."""
    metrics = {name: number for row in rows[::-1] for name, number in row.metrics.items()}
    return {
        "name": " / ".join(dict.fromkeys(row.name for row in rows)),
        "sources": ", ".join(dict.fromkeys(row.source for row in rows)),
        "differences": differences(rows[0], here),
        "unstated": unstated(rows[0]),
        "notes": list(dict.fromkeys(row.note for row in rows if row.note)),
        "cells": [_cell(name, metrics.get(name), here) for name in columns],
    }


def _cell(name: str, number: Number | None, here: Ours) -> dict[str, str]:
    if number is None:
        return {"metric": name, "value": "", "difference": ""}
    own = here.values.get(name)
    difference = ""
    if own is not None and number.reliable:
        difference = f"{own - number.value:+.2f}".replace("-", "−") if name in PLAIN else signed_points(own - number.value / 100)
    return {"metric": name, "value": number.text + "†" * (not number.reliable), "difference": difference}


def _own(here: Ours, name: str) -> str:
    value = here.values.get(name)
    return "–" if value is None else f"{value:.2f}" if name in PLAIN else percent(value)


def _word(value: Any) -> str:
    """A setting in a word: of a part, its name."""
    if value is _UNKNOWN:
        return "nothing of the kind"
    if isinstance(value, dict):
        return str(value.get("name", "set"))
    return "none" if value is None else str(value)


def _reduced_to(protocol: dict[str, Any]) -> Any:
    """The dimensions of `reduced_...`, which the protocol says in words: `reduced_*: to 128 dimensions, ...`."""
    found = re.search(r"to (\d+) dimensions", str(protocol.get("reduction")))
    return int(found[1]) if found else _UNKNOWN


def _place(metric: str) -> tuple[bool, bool, str, int]:
    """Recall by K, then what a ranking gives besides, then the geometry."""
    stem, _, k = metric.rpartition("_")
    return metric in PLAIN, not metric.startswith("recall"), *((stem, int(k)) if k.isdigit() else (metric, 0))
