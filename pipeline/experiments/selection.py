"""Sets the axes of block `run` in params.yaml to the cells of a study. Every other line stays."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from unseen.config.document import Document
from unseen.experiments.catalogue import Catalogued, entries, sets_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import atomic_file

MINI = "parts"  # the built-in set, with small networks


@dataclass(frozen=True)
class Change:
    """An axis of block `run`, before and after."""

    axis: str
    before: list[Any]
    after: list[Any]


def axes_of(
    item: Catalogued, datasets: tuple[str, ...] = (), seeds: tuple[int, ...] = (), mini: bool = False
) -> dict[str, list[Any]]:
    """Block `run` of a study: `datasets` and `seeds`, or those of the study; with `mini` the built-in set,
    and no ensembles. With `search` the rows are also swept. A data set for which the study has source
    settings gets them. Raises UserError for a study without rows."""
    study = item.study
    if not study.has_rows:
        reason = f"`{study.command}` shows it" if study.command else study.unavailable
        raise UserError(
            f"{item.name} ({study.title}) has no trainings: {reason}.",
            "`unseen study --list` prints the studies that have.",
        )
    methods = list(dict.fromkeys(entry.method for entry in entries(item)))
    names = [MINI] if mini else datasets or study.datasets
    return {
        "datasets": [each for name in names for each in sets_of(item, name)],
        "methods": methods,
        "seeds": list(seeds or study.seeds),
        "sweeps": list(methods) if study.search else [],
        "ensembles": list(methods) if study.ensemble and not mini else [],
    }


def set_axes(path: Path, axes: dict[str, list[Any]]) -> list[Change]:
    """Writes `axes` to block `run` of params.yaml; returns the changes. Only the lines of these lists change.

    Raises UserError for a file that is not valid YAML or has no block `run`, and for a list that this
    function cannot replace.
    """
    document = Document(path)
    run = document.block("run")
    if not run:
        raise UserError(f"{path}: block run is missing.", "Restore it: git checkout params.yaml")
    lines = path.read_text(encoding="utf-8").splitlines()
    changes = []
    for axis, values in axes.items():
        before = run.get(axis) or []
        if before != values:
            changes.append(Change(axis, before if isinstance(before, list) else [before], values))
            _replace(lines, axis, values)
    if changes:
        text = "\n".join([*lines, ""])
        _require(path, text, run | axes)
        with atomic_file(path) as partial:
            partial.write_text(text, encoding="utf-8")
    return changes


def _replace(lines: list[str], axis: str, values: list[Any]) -> None:
    """Replaces the list of an axis. Its style and the comment on its first line stay; an empty list is
    `[]`."""
    headings = [number for number, line in enumerate(lines) if re.match(r"run:\s*(#.*)?$", line)]
    if not headings:  # `run: {...}`
        return
    begin = headings[0] + 1
    end = next((number for number in range(begin, len(lines)) if re.match(r"\S", lines[number])), len(lines))
    for number in range(begin, end):
        key = re.match(rf"(\s+{axis}:)\s*(\[[^\]]*\]|[^#\s]*)\s*(#.*)?$", lines[number])
        if key is None:
            continue
        items = number + 1
        while items < end and re.match(r"\s*-\s", lines[items]):
            items += 1
        is_block = items > number + 1
        item = lines[number + 1] if is_block else ""
        indent = item[: len(item) - len(item.lstrip())]
        comment = f" {key[3]}" if key[3] else ""
        new = [f"{key[1]}{comment}", *(f"{indent}- {value}" for value in values)]
        lines[number:items] = (
            new if is_block and values else [f"{key[1]} [{', '.join(map(str, values))}]{comment}"]
        )
        return
    lines.insert(begin, f"  {axis}: [{', '.join(map(str, values))}]")


def _require(path: Path, text: str, run: dict[str, Any]) -> None:
    """Raises UserError unless the text is YAML whose block `run` is `run`."""
    try:
        written = YAML(typ="safe").load(text)["run"]
    except MarkedYAMLError:
        written = None
    if written != run:
        raise UserError(
            f"{path}: the lists of block run cannot be replaced: their form is not that of the file in git.",
            "Write them as `key: [a, b]`.",
        )
