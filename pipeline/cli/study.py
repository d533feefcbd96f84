"""The command `unseen study`: the list of studies, and the selection of one in params.yaml."""

from pathlib import Path

from tools.docs.studies import states
from unseen.config.command import literal
from unseen.config.document import Params
from unseen.experiments.catalogue import study_of
from unseen.experiments.plan.files import plan
from unseen.experiments.selection import axes_of, set_axes
from unseen.report.words import counted

PARAMS = Path("params.yaml")


def listing() -> str:
    """One line per study: its name, the item of the paper, its state."""
    rows = [(line.name, line.item, line.state, line.title) for line in states()]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join((*map(str.ljust, row[:3], widths), row[3])).rstrip() for row in rows]
    return "\n".join([*lines, "", "docs/studies.md explains the states.", ""])


def select(name: str, datasets: tuple[str, ...], seeds: tuple[int, ...], mini: bool) -> str:
    """Sets the axes of the run in params.yaml to a study; returns what it set.

    Raises UserError for an unknown study or data set, and for a study without trainings. If the new run is
    not valid, params.yaml keeps its content.
    """
    item = study_of(name)
    axes = axes_of(item, datasets, seeds, mini)
    before = PARAMS.read_text(encoding="utf-8")
    changes = set_axes(PARAMS, axes)
    try:
        plan(Params(PARAMS))
    except BaseException:
        PARAMS.write_text(before, encoding="utf-8")
        raise
    trainings = len(axes["datasets"]) * len(axes["methods"]) * len(axes["seeds"])
    lines = [f"{name}: {item.study.title}", f"{counted(trainings, 'training')}: data sets x rows x seeds"]
    if axes["sweeps"] and item.study.search is not None:
        lines.append(f"search of each row on each data set: {counted(item.study.search.total, 'trial')}")
    lines += [f"params.yaml: run.{change.axis} = {literal(change.after)}" for change in changes]
    if changes:
        lines.append("before:")
        lines += [f"  run.{change.axis} = {literal(change.before)}" for change in changes]
    else:
        lines.append("params.yaml contains these axes already")
    return "\n".join([*lines, ""])
