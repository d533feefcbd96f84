"""Sets the axes of block `run` in params.yaml to the cells of a study. Comments and the other keys stay."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq

from pipeline.config.document import Document, plain
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import atomic_file
from pipeline.studies.catalogue import Catalogued, entries

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
    and no ensembles. Raises UserError for a study without rows."""
    study = item.study
    if not study.has_rows:
        reason = f"`{study.command}` shows it" if study.command else study.unavailable
        raise UserError(
            f"{item.name} ({study.title}) has no trainings: {reason}.",
            "`unseen study --list` prints the studies that have.",
        )
    methods = list(dict.fromkeys(entry.method for entry in entries(item)))
    return {
        "datasets": [MINI] if mini else list(datasets or study.datasets),
        "methods": methods,
        "seeds": list(seeds or study.seeds),
        "sweeps": [],
        "ensembles": list(methods) if study.ensemble and not mini else [],
    }


def set_axes(path: Path, axes: dict[str, list[Any]]) -> list[Change]:
    """Writes `axes` to block `run` of params.yaml; returns the changes. Raises UserError for a file that is
    not valid YAML or has no block `run`."""
    Document(path).block("run")
    yaml = YAML(typ="rt")
    yaml.width = 1 << 16  # never break a line
    yaml.preserve_quotes = True
    tree = yaml.load(path.read_text(encoding="utf-8"))
    run = tree.get("run")
    if run is None:
        raise UserError(f"{path}: block run is missing.", "Restore it: git checkout params.yaml")
    changes = []
    for axis, values in axes.items():
        before = plain(run.get(axis)) or []
        if before != values:
            changes.append(Change(axis, before if isinstance(before, list) else [before], values))
            _assign(run, axis, values)
    if changes:
        with atomic_file(path) as partial, partial.open("w", encoding="utf-8") as file:
            yaml.dump(tree, file)
    return changes


def _assign(run: Any, axis: str, values: list[Any]) -> None:
    """Replaces the items of a list in place, so that the comments beside it stay."""
    node = run.get(axis)
    if not isinstance(node, CommentedSeq):
        run[axis] = values
        return
    if not values:
        node.fa.set_flow_style()  # an empty list in block style is not YAML
    elif not node:
        node.fa.set_block_style()
    node[:] = values
