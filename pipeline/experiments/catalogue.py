"""The studies of the project (pipeline/recipes/studies) and of a user (studies/ of the checkout), and their
rows as methods of a run.

The name of a row is `<study>-<row>`: `crt-table-8-k1-16`. Rows of several published studies with the same
training have one name, that of the first study, so that they are trained once. A data set with source
settings of a study is another data set in the run, with these settings in its name: `cifar10-split-images`.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from unseen.config.definitions import Definitions
from unseen.config.document import Document, Params
from unseen.config.inputs import digest
from unseen.config.layers import flat
from unseen.config.recipe_files import ROOT as RECIPES
from unseen.config.recipe_files import published as published_recipes
from unseen.config.stages import Axis
from unseen.config.study_row import StudyRow, StudySet, replaced_by_small
from unseen.experiments.printed.model import PAPERS, Row
from unseen.experiments.printed.model import rows as printed_rows
from unseen.experiments.study import Study
from unseen.experiments.sweep.space import values_of
from unseen.runtime.errors import UserError
from unseen.runtime.setting_names import checked_name, suggestion

State = Literal["complete", "partial", "command", "unavailable"]
PUBLISHED = RECIPES / "studies"
OF_USER = Path("studies")  # relative to the root of the project


@dataclass(frozen=True)
class Entry:
    """A row of a study."""

    method: str  # its name in run.methods
    row: StudyRow  # of a shared training: the first row with it
    label: str
    # method and recipe of the printed rows that it reproduces (pipeline/experiments/printed); None: not
    # printed
    printed: str | None


@dataclass(frozen=True)
class Catalogued:
    """A study, its name, and the file that defines it."""

    name: str
    study: Study
    document: Document

    @property
    def is_published(self) -> bool:
        return self.document.path.parent == PUBLISHED


def studies(of_user: Path = OF_USER) -> dict[str, Catalogued]:
    """All studies by name: those of the papers in the order of the papers, then those of the user. Raises
    UserError for a file that is not a valid study, and for a name that is used twice."""
    catalogue = dict(_published_studies())
    for path in sorted(of_user.glob("*.yaml")):
        for name, study in _read(Document(path)).items():
            if name in catalogue:
                other = catalogue[name].document
                raise UserError(
                    f"{study.document.label}:{study.document.line(name)}: study {name} is already defined in "
                    f"{other.label}.",
                    "Choose another name.",
                )
            catalogue[name] = study
    return catalogue


def study_of(name: str, of_user: Path = OF_USER) -> Catalogued:
    """The study of a name. Raises UserError for an unknown name."""
    catalogue = studies(of_user)
    if name not in catalogue:
        raise UserError(
            f"There is no study {name}.",
            f"{suggestion(name, catalogue)}`unseen study --list` prints all studies.",
        )
    return catalogue[name]


def entries(item: Catalogued) -> tuple[Entry, ...]:
    """The rows of a study in its order. Raises UserError for a table that is not printed."""
    drafts = list(_drafts(item))
    labels = {label for _, label, _, _ in drafts}
    named = [("baselines", label) for pair in item.study.baselines.items() for label in pair]
    for field, label in (*named, ("control", item.study.control)):
        if label is not None and label not in labels:
            raise UserError(
                f"{item.document.where(f'{item.name}.{field}')}: there is no row {label!r}.",
                suggestion(label, labels) or f"The rows are: {', '.join(sorted(labels))}.",
            )
    if not item.is_published:
        return tuple(Entry(f"{item.name}-{name}", row, label, key) for name, label, row, key in drafts)
    return tuple(Entry(*_shared()[_training(row)], label, key) for _, label, row, key in drafts)


def contrasts(study: Study, rows: Sequence[Entry]) -> tuple[tuple[str, str], ...]:
    """The comparisons of a study, which are one family: (method of a row, method of its control)."""
    method_of = {entry.label: entry.method for entry in reversed(rows)}  # of equal labels, the first row
    if study.baselines and None not in study.baselines.values():
        return tuple((method_of[row], method_of[str(other)]) for row, other in study.baselines.items())
    control = rows[0].method if study.control is None else method_of[study.control]
    methods = dict.fromkeys(entry.method for entry in rows)
    return tuple((method, control) for method in methods if method != control)


def sets_of(item: Catalogued, dataset: str) -> list[str]:
    """The names in run.datasets of the sets of a study that are like a data set."""
    return [_set_name(dataset, source) for source in item.study.sources_of(dataset)]


def in_order(name: str) -> list[str]:
    """The studies that `unseen study` trains, one after the other: those at whose networks its rows start,
    then the study itself. Raises UserError for an unknown name, and for a study that starts at itself."""
    names: list[str] = []
    next_name: str | None = name
    while next_name is not None:
        item = study_of(next_name)
        if next_name in names:
            where = item.document.where(f"{next_name}.start")
            raise UserError(f"{where}: it starts at itself.", "Name another study, or leave it out.")
        names.insert(0, next_name)
        next_name = item.study.start
    return names


def definitions(params: Params, *methods: str, datasets: tuple[str, ...] = ()) -> Definitions:
    """All methods and data sets of params.yaml, with the rows of studies among the methods of its run (and
    `methods`), and with the data sets of studies among its data sets (and `datasets`).

    Reads the studies if a name is in neither params.yaml nor the published files. Raises UserError as
    `studies` does.
    """
    known, of_user = Definitions(params), params.path.parent / OF_USER
    unknown_sets = _names(params, ("datasets",), datasets) - set(known.datasets())
    unknown = _names(params, ("methods", "ensembles", "sweeps"), methods) - set(known.methods())
    if not unknown and not unknown_sets:
        return known
    catalogue = studies(of_user).values()
    sets = _sets(catalogue) if unknown_sets else {}
    rows = {
        entry.method: entry.row
        for item in catalogue
        if any(name.startswith(_prefixes(item)) for name in unknown)
        for entry in entries(item)
        if entry.method in unknown
    }
    return Definitions(params, rows, {name: item for name, item in sets.items() if name in unknown_sets})


def _names(params: Params, axes: tuple[str, ...], more: tuple[str, ...]) -> set[str]:
    """The names of these axes of the run, and `more`."""
    run = params.block("run")
    lists = (value for axis in axes if isinstance(value := run.get(axis), list))
    names = (*more, *(name for names in lists for name in names))
    return {name for name in names if isinstance(name, str)}


def _sets(items: Iterable[Catalogued]) -> dict[str, StudySet]:
    """The data sets with source settings of studies, by name. Raises UserError if two studies give one name
    to different settings."""
    sets: dict[str, StudySet] = {}
    for item in items:
        study = item.study
        settings = [(dataset, each) for dataset in study.sources for each in study.sources_of(dataset)]
        for dataset, source in settings:
            if not source:  # the data set as it is
                continue
            key = f"{item.name}.sources.{dataset}"
            name = _set_name(dataset, source)
            new = StudySet(item.document, key, dataset, source)
            first = sets.setdefault(name, new)
            if first.source != source:
                where, other = (f"{s.document.label}:{s.document.line(s.key)}" for s in (new, first))
                raise UserError(
                    f"{where}: {key}: these settings give {dataset} the name {name}, as others do ({other}).",
                    "Change a value, such as the name of a folder.",
                )
    return sets


def _set_name(dataset: str, source: dict[str, Any]) -> str:
    """`cifar10-split-images`; the name of the data set itself without settings."""
    words = [f"{field} {_text(source[field])}" for field in sorted(source)]
    return "-".join([dataset, *map(_slug, words)])


def printed_key(method: str | None, recipe: dict[str, Any]) -> str:
    """A printed row's training: its method and the values of its recipe."""
    return digest([method, recipe])


def printed(item: Catalogued) -> tuple[Row, ...]:
    """The printed rows of the table of a study."""
    source = item.study.source
    if source is None or item.study.table is None:
        return ()
    rows = tuple(row for row in printed_rows() if (row.paper, row.table) == (source.paper, item.study.table))
    if not rows:
        raise UserError(
            f"{item.document.where(f'{item.name}.table')}: pipeline/experiments/printed/{source.paper}.yaml "
            f"has no table {item.study.table!r}.",
            "Correct `table`.",
        )
    return rows


def missing(item: Catalogued) -> str:
    """What of the item the command of its study does not show; empty if it is whole: if it trains each row
    that the paper trained, on each of its data sets. Quoted numbers stay as printed."""
    untrained = [row.name for row in printed(item) if row.method is None and not row.quoted]
    sets = {row.dataset for row in printed(item)} - set(item.study.datasets)
    lacking = [
        f"{kind}: {', '.join(dict.fromkeys(names))}"
        for kind, names in (("rows", untrained), ("data sets", sets))
        if names
    ]
    return "; ".join(filter(None, (item.study.missing, *lacking, item.study.unavailable)))


def as_printed(item: Catalogued) -> str:
    """The quoted numbers of an item that stay as printed: columns, and rows of methods without a recipe."""
    names = dict.fromkeys(row.name for row in printed(item) if row.method is None and row.quoted)
    return ", ".join(filter(None, (item.study.quoted, *names)))


def state_of(item: Catalogued) -> State:
    """Whether its command shows the item (docs/studies.md)."""
    if item.study.unavailable:
        return "unavailable"
    if item.study.command:
        return "command"
    return "partial" if missing(item) else "complete"


def _prefixes(item: Catalogued) -> tuple[str, ...]:
    """A row of a published study may have the name of a row of another published study."""
    return ("",) if item.is_published else (f"{item.name}-",)


@cache
def _published_studies() -> dict[str, Catalogued]:
    files = (Document(PUBLISHED / f"{key}.yaml", f"pipeline/recipes/studies/{key}.yaml") for key in PAPERS)
    return {name: study for file in files for name, study in _read(file).items()}


@cache
def _shared() -> dict[str, tuple[str, StudyRow]]:
    """Training -> the name of the first row of a published study with it, and this row. Its embeddings are
    reduced, for the evaluation and for the analysis, if a study with that training needs it."""
    shared: dict[str, tuple[str, StudyRow]] = {}
    for item in _published_studies().values():
        for name, _, row, _ in _drafts(item):
            first_name, first = shared.setdefault(_training(row), (f"{item.name}-{name}", row))
            needed = replace(
                first,
                reduce=first.reduce or row.reduce,
                analyze_reduce=first.analyze_reduce or row.analyze_reduce,
            )
            shared[_training(row)] = (first_name, needed)
    return shared


def _training(row: StudyRow) -> str:
    """A digest of all that defines the training of a row."""
    overriding = sorted(field for field in row.kept or () if field in row.recipe and replaced_by_small(field))
    return digest([row.like, row.recipe, row.protocol, overriding])


def _read(document: Document) -> dict[str, Catalogued]:
    result = {}
    for name in document.names():
        study = document.parsed(Study, "docs/studies.md describes the form of a study.", name)
        try:
            checked_name(name)
        except ValueError as error:
            raise UserError(f"{document.where(name)}: {error}.", "Rename it.") from None
        result[name] = Catalogued(name, study, document)
    return result


def _drafts(item: Catalogued) -> Iterator[tuple[str, str, StudyRow, str | None]]:
    """(name, label, row, printed) of each row."""
    study = item.study
    points = list(_points(study.space))
    names: set[str] = set()
    for base, label, like, recipe, key in (*_of_table(item), *_of_methods(item)):
        for point in points:
            values = [f"{field.rpartition('.')[2]} {_text(point[field])}" for field in study.space]
            changes = {**flat(study.recipe), **recipe, **point}
            unique = _unique(_slug(" ".join([base, *values])), names)
            yield (
                unique,
                ", ".join([label, *values]),
                StudyRow(
                    item.document,
                    item.name,
                    like=like,
                    recipe=changes,
                    protocol=study.protocol,
                    kept=(*study.numeric_axes, *study.tied, *study.kept) if item.is_published else None,
                    reduce=study.reduce,
                    analyze_reduce=study.analyze_reduce,
                    search=study.search,
                ),
                key if not point else None,
            )


def _points(space: dict[str, Axis]) -> Iterator[dict[str, Any]]:
    """Every combination of the grids; tied fields have equal values. One empty point without grids."""
    for values in itertools.product(*(axis.grid or () for axis in space.values())):
        yield values_of(space, values)


def _of_table(item: Catalogued) -> Iterator[tuple[str, str, str, dict[str, Any], str | None]]:
    """(name, label, method, recipe, printed) of each different training of the printed table."""
    keys = set()
    for row in printed(item):
        key = printed_key(row.method, row.recipe)
        if row.method is None or key in keys:
            continue
        keys.add(key)
        yield row.name, row.name, row.method, row.recipe, key


def _of_methods(item: Catalogued) -> Iterator[tuple[str, str, str, dict[str, Any], None]]:
    for name, block in item.study.methods.items():
        recipe = flat({key: value for key, value in block.items() if key not in ("like", "label")})
        if block["like"] not in published_recipes("methods") and item.is_published:
            raise UserError(
                f"{item.document.where(f'{item.name}.methods.{name}')}: there is no published method "
                f"{block['like']}.",
                suggestion(block["like"], published_recipes("methods")) or "Correct `like`.",
            )
        yield name, block.get("label", name), block["like"], recipe, None


def _slug(text: str) -> str:
    """The text as part of a name: lower case, hyphens between its words."""
    words = text.lower().replace("+", " plus ").replace("w/o", "without")
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")


def _unique(name: str, names: set[str]) -> str:
    number, result = 2, name
    while result in names:
        result, number = f"{name}-{number}", number + 1
    names.add(result)
    return result


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
