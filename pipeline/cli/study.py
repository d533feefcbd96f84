"""The command `unseen study`: the list of studies, and the selection of one in params.yaml."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from unseen.config.command import literal
from unseen.config.document import Params
from unseen.experiments.catalogue import (
    OF_USER,
    Catalogued,
    State,
    as_printed,
    entries,
    missing,
    state_of,
    studies,
    study_of,
)
from unseen.experiments.plan.files import count, is_of_fold, plan, trainings
from unseen.experiments.printed.model import papers, quoted_methods
from unseen.experiments.selection import axes_of, set_axes
from unseen.report.words import counted
from unseen.runtime.text import aligned

PARAMS = Path("params.yaml")


@dataclass(frozen=True)
class Line:
    """A study in the list."""

    name: str
    paper: str  # its short name; empty for a study of a user
    item: str
    title: str
    rows: str
    state: State
    note: str
    reason: str  # why its command does not show the whole item; empty if it does
    as_printed: str  # its quoted numbers that stay as printed


def states() -> list[Line]:
    """All studies, those of papers first."""
    return [line_of(item) for item in studies(OF_USER).values()]


def line_of(item: Catalogued) -> Line:
    """A study in the list."""
    study = item.study
    names = {paper.key: paper.name for paper in papers()}
    paper = names[study.source.paper] if study.source else ""
    reason = missing(item)
    notes = [
        f"`{study.command}`" if study.command else "",
        f"starts at: `unseen study {study.start}`, which the command trains before" if study.start else "",
        f"also: {study.shows}" if study.shows else "",
        f"missing: {reason}" if reason and not study.unavailable else "",
        f"stay as printed: {quoted}" if (quoted := as_printed(item)) else "",
        f"chosen: {study.chosen}" if study.chosen else "",
        f"the paper prints no {study.unprinted}" if study.unprinted else "",
        study.unavailable,
    ]
    return Line(
        name=item.name,
        paper=paper,
        item=f"{paper} {study.item}".strip() or ("start" if item.is_published else "own"),
        title=study.title,
        rows=str(len(entries(item))) if study.has_rows else "",
        state=state_of(item),
        note="; ".join(filter(None, notes)),
        reason=reason,
        as_printed=quoted,
    )


def listing() -> str:
    """One line per study: its name, the item of the paper, its state."""
    rows = [(line.name, line.item, line.state, line.title) for line in states()]
    return "\n".join([*aligned(rows), "", coverage(), "docs/studies.md explains the states.", ""])


def coverage() -> str:
    """How many items of the papers their commands show as a whole, of how many nothing is quoted or chosen
    besides, and how many quoted methods train."""
    items = [item for item in studies().values() if item.study.source and not item.study.unavailable]
    items = [item for item in items if item.is_published]
    whole = [item for item in items if not missing(item)]
    own = sum(not as_printed(item) and not item.study.chosen for item in whole)
    quoted = [*quoted_methods().values()]
    return (
        f"Whole by one command: {len(whole)} of {len(items)} items with results.\n"
        f"Of these without numbers that stay as printed, and without what the study chooses: {own}.\n"
        f"Quoted methods with a recipe: {sum(quoted)} of {len(quoted)}; the others stay as printed."
    )


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
        run = plan(Params(PARAMS))
    except BaseException:
        PARAMS.write_text(before, encoding="utf-8")
        raise
    of_rows = len(axes["datasets"]) * len(axes["methods"]) * len(axes["seeds"])
    of_folds = sum(count(run, training) for training in trainings(run) if is_of_fold(training))
    lines = [f"{name}: {item.study.title}", f"{counted(of_rows, 'training')}: data sets x rows x seeds"]
    if of_folds:
        lines.append(
            f"{counted(of_folds, 'training')} of folds: the numbers of the table are those of their ensembles"
        )
    if axes["sweeps"] and item.study.search is not None:
        lines.append(f"search of each row on each data set: {counted(item.study.search.total, 'trial')}")
    lines += [f"params.yaml: run.{change.axis} = {literal(change.after)}" for change in changes]
    if changes:
        lines.append("before:")
        lines += [f"  run.{change.axis} = {literal(change.before)}" for change in changes]
    else:
        lines.append("params.yaml contains these axes already")
    return "\n".join([*lines, ""])


def price(name: str, datasets: tuple[str, ...], seeds: tuple[int, ...], mini: bool) -> str:
    """The price of the trainings of a study. params.yaml keeps its content. Raises UserError as `select`
    does, and as `cost` does."""
    from unseen.cli.cost import cost  # imports torch

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(PARAMS, folder))
        set_axes(copy, axes_of(study_of(name), datasets, seeds, mini))
        return cost(Params(PARAMS, text=copy.read_text(encoding="utf-8")))
