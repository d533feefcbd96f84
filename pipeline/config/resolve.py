"""Validates the blocks of params.yaml: those of stages, sources of data sets, sweeps."""

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.place import Place, explained
from unseen.config.recipe_files import published, recall_at_of, source_of, sweep_of
from unseen.config.stages import (
    EnsembleBlock,
    EnsembleSettings,
    RowSearch,
    RowSweepBlock,
    RunSettings,
    SweepSettings,
)
from unseen.config.study_row import StudyRow
from unseen.data.ingest.settings import SOURCES, AnySource, IngestSettings, Source
from unseen.evaluation.settings import EvaluateBlock, EvaluateSettings
from unseen.runtime.errors import UserError
from unseen.runtime.parts import trusted
from unseen.runtime.settings import Strict, as_json

Settings = TypeVar("Settings", bound=Strict)
_SOURCE: TypeAdapter[Source] = TypeAdapter(AnySource)


def settings(params: Params, key: str, model: type[Settings]) -> Settings:
    """The block `key` as `model`. Raises UserError naming file, line and key."""
    return _validated([Place.of(params, key)], params.read(key), model)


def dataset_settings(definitions: Definitions, dataset: str) -> tuple[Source, IngestSettings]:
    """The source of a data set, and the settings of ingest. The default path of a folder set, or of a reader
    of a user, is data/raw/<dataset>."""
    params, data = definitions.params, definitions.dataset(dataset)
    kind, name = data.kind, data.like
    published_name = next((known for known in (name, kind) if known in published("datasets")), None)
    published_source = source_of(published_name) if published_name is not None else {}
    if published_source.get("kind") != kind or data.reader is not None:
        published_source = {}
    value = {**published_source, **data.source}
    cls = data.reader or SOURCES.get(kind)
    fields = cls.model_fields if cls else {}
    if "path" in fields and fields["path"].is_required() and value.get("path") is None:
        value["path"] = f"data/raw/{name}"
    places = [Place.of(params, f"datasets.{name}.source")]
    if dataset in definitions.sets:
        places.append(Place.of(definitions.sets[dataset].document, definitions.sets[dataset].key))
    try:
        source = _SOURCE.validate_json(as_json(value))
    except ValidationError as error:
        raise explained(error, [(place, {}) for place in places], dict.fromkeys(fields)) from None
    return source, settings(params, "ingest", IngestSettings)


def evaluate_settings(definitions: Definitions, block: EvaluateBlock, dataset: str) -> EvaluateSettings:
    """Block `evaluate` for a data set, with its K of Recall@K."""
    return EvaluateSettings(**_with_ranks(definitions, block, dataset))


def ensemble_settings(definitions: Definitions, block: EnsembleBlock, dataset: str) -> EnsembleSettings:
    """Block `ensemble` for a data set, with its K of Recall@K."""
    return EnsembleSettings(**_with_ranks(definitions, block, dataset))


def sweep_settings(definitions: Definitions, method: str) -> SweepSettings:
    """The sweep of a method: the published one, overridden by the blocks `sweep.<m>` of its lineage, its
    block last, and by `run.budget`. A row of a study with `search` has that search alone; params.yaml may set
    `concurrent` for it.

    A key of a block replaces the whole value of that key. Raises UserError if no layer defines a search
    space.
    """
    row = definitions.rows.get(method)
    if row is not None and row.search is not None:
        return _row_sweep(definitions, method, row, row.search)
    params, family = definitions.params, definitions.lineage(method)
    keys = [f"sweep.{name}" for name in family if name in params.names("sweep")]
    merged = dict((sweep_of(family[0]) if family[0] in published("methods") else None) or {})
    for key in keys:
        merged |= params.block(key)
    places = [Place.of(params, key) for key in keys]
    if "space" not in merged:
        raise UserError(
            f"{params.label}: sweep.{method} is missing, and {method} has no published search space.",
            f"Add sweep.{method} with a `space`; docs/recipes.md describes it.",
        )
    if params.names("run") and (budget := settings(params, "run", RunSettings).budget) is not None:
        merged |= budget.model_dump()
        places.insert(0, Place.of(params, "run.budget"))
    return _validated(places or [Place.of(params, f"sweep.{method}")], merged, SweepSettings)


def _row_sweep(definitions: Definitions, method: str, row: StudyRow, search: RowSearch) -> SweepSettings:
    """The sweep of a row: the search of its study, in its own space or in the published one of the method."""
    first = definitions.lineage(method)[0]
    published_sweep = (sweep_of(first) if first in published("methods") else None) or {}
    where = row.document.where(f"{row.study}.search")
    values = search.model_dump(mode="json")
    space = values["space"] or published_sweep.get("space")
    if space is None:
        raise UserError(f"{where}: {first} of {method} has no published search space.", "Add `space`.")
    merged = values | {"space": space, "concurrent": _row_concurrent(definitions.params, method)}
    try:
        return _validated([Place.of(row.document, f"{row.study}.search")], merged, SweepSettings)
    except UserError as error:
        raise UserError(f"{error.what.rstrip('.')} (row {method}).", error.remedy) from None


def _row_concurrent(params: Params, method: str) -> int:
    key = f"sweep.{method}"
    return _validated([Place.of(params, key)], params.block(key), RowSweepBlock).concurrent


def concurrent_trials(definitions: Definitions, method: str) -> int:
    """`concurrent` of the sweep of a method; of a row of a study if `definitions` lack it, as in a stage."""
    if method in definitions.methods():
        return sweep_settings(definitions, method).concurrent
    return _row_concurrent(definitions.params, method)


def sweep_space(definitions: Definitions, method: str) -> str:
    """Where the space of a sweep is defined: `params.yaml:12: sweep.gsp.space`."""
    row = definitions.rows.get(method)
    if row is not None and row.search is not None:
        place = Place.of(row.document, f"{row.study}.search")
    else:
        place = Place.of(definitions.params, f"sweep.{method}")
    line = place.line("space") or place.line()
    return f"{place.label}{f':{line}' if line else ''}: {place.key}.space"


def _with_ranks(
    definitions: Definitions, block: EvaluateBlock | EnsembleBlock, dataset: str
) -> dict[str, Any]:
    """A block with the published K of Recall@K of the kind of a data set's source, unless it has its own."""
    kind = definitions.dataset(dataset).kind
    ranks = recall_at_of(kind) if kind in published("datasets") else EvaluateSettings().recall_at
    return dict(block) | {"recall_at": block.recall_at or ranks}


def _validated(places: Sequence[Place], value: Any, model: type[Settings]) -> Settings:
    try:
        with trusted():
            return model.parse(value)
    except ValidationError as error:
        known = dict.fromkeys(model.model_fields) | (value if isinstance(value, dict) else {})
        raise explained(error, [(place, {}) for place in places], known) from None
