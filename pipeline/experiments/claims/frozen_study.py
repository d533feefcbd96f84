"""Studies of the papers on frozen networks: each row is a head, trained with several seeds.

`frozen_studies.yaml` names the studies. A row has its changes of the published recipe, except those of
network, images, dimensions, batch, optimizer, schedule and length, which `setting` of claims.yaml and
`recipe` of the study define; a method without training is not trained. All numbers are means over the splits
(and networks). The deviation is over seeds (divisor S - 1). The verdicts on the differences from the
reference row, the control, are one family (evaluation/statistics/better.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field
from scipy.stats import spearmanr

from unseen.config.document import Document
from unseen.config.inputs import digest
from unseen.config.recipe_files import method_file
from unseen.config.study_row import replaced_by_small
from unseen.evaluation.record import FLOOR, Record, Run
from unseen.evaluation.statistics.better import CONFIDENCE, Outcome, against, judge
from unseen.evaluation.statistics.seeds import over_seeds
from unseen.evaluation.statistics.table import of_records
from unseen.experiments.catalogue import Catalogued, Entry, entries, printed, printed_key, study_of
from unseen.experiments.claims.claim import Claims, claims
from unseen.experiments.claims.photos import Plan, available, computed
from unseen.experiments.claims.results import Computed, Effect, read
from unseen.experiments.claims.run import change, effect_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json
from unseen.runtime.settings import Scalar, Strict
from unseen.runtime.text import aligned

PATH = Path(__file__).with_name("frozen_studies.yaml")
COMMITTED = Path(__file__).with_name("frozen_studies.json")
RESULTS = "studies.json"  # in the output directory
METRICS = ("map_at_r", "recall_at_1")


class FrozenStudy(Strict):
    """A study of the papers whose rows are heads."""

    networks: tuple[str, ...] = Field(min_length=1)  # of claims.yaml
    reference: str  # the row from which the others differ
    rows: str = ""  # the rows whose names start with it
    recipe: dict[str, Scalar] = Field(default={})  # changes of every row


class Value(Strict):
    """Mean and deviation over seeds, as a share."""

    mean: float
    deviation: float


class RowResult(Strict):
    """The numbers of a row."""

    label: str
    map_at_r: Value
    recall_at_1: Value
    effect: Effect | None  # on MAP@R: the difference from the reference; None: the reference
    p_value: float | None  # adjusted in the family of all rows; None: the reference
    verdict: Outcome | None  # as p_value
    printed: float | None  # the number of the paper for `printed_dataset`, in its unit


class StudyResult(Strict):
    """The numbers of a study."""

    definition: str
    rows: dict[str, RowResult]
    rank_correlation: float | None  # of the printed numbers and ours; None: too few numbers


class StudyResults(Computed):
    """All results of a run."""

    studies: dict[str, StudyResult]


@cache
def frozen_studies(path: Path = PATH) -> dict[str, FrozenStudy]:
    """The studies of a file. Raises UserError for an unknown key, study, row or network."""
    document = Document(path, f"pipeline/experiments/claims/{path.name}" if path == PATH else None)
    result = {}
    for name in document.names():
        study, where = document.parsed(FrozenStudy, "Correct it.", name), document.where(name)
        if study.reference not in {entry.method for entry in _rows(study_of(name), study)}:
            raise UserError(f"{where}: unknown row {study.reference} in `reference`.", "Correct it.")
        if unknown := set(study.networks) - claims().networks.keys():
            raise UserError(f"{where}: unknown network {min(unknown)}.", "Name one of claims.yaml.")
        result[name] = study
    return result


def head_of(entry: Entry, study: FrozenStudy, setting: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The published method of a row, and its changes by dotted field."""
    fields = {field: value for field, value in entry.row.recipe.items() if not replaced_by_small(field)}
    if method_file(entry.row.like).recipe.get("training", {}).get("iterations") == 0:
        fields["training.iterations"] = 0
    return entry.row.like, {**setting, **study.recipe, **fields}


def definition(name: str, study: FrozenStudy, of_claims: Claims) -> str:
    """A digest of what determines the result of a study."""
    networks = {key: of_claims.networks[key].model_dump(mode="json") for key in study.networks}
    rows = {entry.method: head_of(entry, study, of_claims.setting) for entry in _rows(study_of(name), study)}
    value = [rows, study.reference, networks]
    return digest(value)


def run_studies(studies: Mapping[str, FrozenStudy], of_claims: Claims, plan: Plan) -> StudyResults:
    """The results of the studies `plan.names`. Writes OUTPUT/studies.json, and keeps the records of the
    trainings, which it shares with claims.

    Raises UserError for photos that cannot be read, too few classes, and if a network is not available.
    """
    chosen = {name: studies[name] for name in plan.names}
    names_of_networks = [network for study in chosen.values() for network in study.networks]
    networks = available(of_claims.networks, names_of_networks, plan)
    if missing := [name for name in names_of_networks if name not in networks]:
        raise UserError(
            f"The weights of {missing[0]} are not available.",
            f"Name its file with --weights {missing[0]}=FILE, or set --download.",
        )
    rows = {name: _rows(study_of(name), study) for name, study in chosen.items()}
    arms = {
        network: {
            entry.method: head_of(entry, study, of_claims.setting)
            for name, study in chosen.items()
            for entry in (rows[name] if network in study.networks else ())
        }
        for network in networks
    }
    values = computed("studies", arms, networks, plan)
    results = StudyResults(
        **values.fields,
        studies={
            name: _result(name, study, of_claims, rows[name], values.places(study.networks), values.records)
            for name, study in chosen.items()
        },
    )
    write_json(plan.output / RESULTS, results.model_dump(mode="json"))
    return results


def load_studies(path: Path = COMMITTED) -> StudyResults:
    """The results of studies in a file. Raises UserError as `read` does."""
    return read(path, StudyResults)


def printed_dataset(item: Catalogued) -> str:
    """The data set of the printed numbers: the first of the study."""
    return item.study.datasets[0]


def study_lines(results: StudyResults) -> Iterator[str]:
    """The numbers as text."""
    for name, result in results.studies.items():
        yield name
        rows = [
            (
                f"  {row.label}",
                f"MAP@R {points(row.map_at_r)}",
                f"{change(row.effect)}  {row.verdict}" if row.effect else "reference",
            )
            for row in result.rows.values()
        ]
        yield from aligned(rows)


def points(value: Value) -> str:
    """`25.13 ± 0.20`: mean and deviation in points."""
    return f"{100 * value.mean:.2f} ± {100 * value.deviation:.2f}"


def _rows(item: Catalogued, study: FrozenStudy) -> list[Entry]:
    return [entry for entry in entries(item) if entry.method.startswith(study.rows)]


def _result(
    name: str,
    study: FrozenStudy,
    of_claims: Claims,
    rows: Sequence[Entry],
    places: Sequence[str],
    records: Mapping[Run, Record],
) -> StudyResult:
    item = study_of(name)
    numbers = _printed_numbers(item)
    family = against(study.reference, [entry.method for entry in rows], "map_at_r", FLOOR, places)
    verdicts = dict(zip((question.second for question in family), judge(records, family), strict=True))
    results = {}
    for entry in rows:
        verdict = verdicts.get(entry.method)
        values = {metric: _value(records, entry.method, metric, places) for metric in METRICS}
        results[entry.method] = RowResult(
            label=entry.label,
            **values,
            effect=verdict and effect_of(verdict.comparison),
            p_value=verdict and round(verdict.adjusted, 5),
            verdict=verdict and verdict.outcome,
            printed=numbers.get(entry.printed or ""),
        )
    rank = [row for row in results.values() if row.printed is not None]
    ours, theirs = ([getattr(row, item.study.metric).mean for row in rank], [row.printed for row in rank])
    has_order = len(rank) > 2 and len(set(ours)) > 1 and len(set(theirs)) > 1
    return StudyResult(
        definition=definition(name, study, of_claims),
        rows=results,
        rank_correlation=round(float(spearmanr(ours, theirs).statistic), 3) if has_order else None,
    )


def _printed_numbers(item: Catalogued) -> dict[str, float]:
    """The number of the paper of each printed training, for the metric of the study on `printed_dataset`."""
    return {
        printed_key(row.method, row.recipe): row.metrics[item.study.metric].value
        for row in printed(item)
        if item.study.metric in row.metrics and row.dataset == printed_dataset(item)
    }


def _value(records: Mapping[Run, Record], row: str, metric: str, places: Sequence[str]) -> Value:
    """Mean and deviation over seeds of the mean over places."""
    average = over_seeds(of_records(records, (row,), metric, places).by_seed()[0], CONFIDENCE)
    return Value(mean=round(average.mean, 5), deviation=round(average.deviation, 5))
