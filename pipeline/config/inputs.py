"""The files of data/resolved: the settings and the code on which a stage of a run depends. Stage `resolve`
writes them. Each stage reads one.

    data/resolved/<stage>/<dataset>.json                   ingest
    data/resolved/<stage>/<dataset>/<method>.json          train, export, evaluate, sweep, ensemble
    data/resolved/<stage>/<dataset>/<method>/<fold>.json   train_fold, export_fold
    data/resolved/<stage>.json                             analyze, report

A file contains the settings that can change the result of the stage, and a digest of each module that the
stage can reach (pipeline/runtime/code.py) and of each file of weights at which a training starts. Stages
read the settings of the machine (workers, threads, checkpoint interval) from params.yaml instead.
"""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field, ValidationError

from unseen.config.stages import Axis, ReportSettings, RunSettings
from unseen.data.ingest.settings import AnySource, IngestSettings, PartsSource
from unseen.evaluation.settings import AnalyzeSettings, EvaluateSettings
from unseen.methods.settings import AnyRecipe, Cost
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import regular
from unseen.runtime.parts import trusted
from unseen.runtime.running_code import require_recorded
from unseen.runtime.settings import Count, Strict

SCHEMA = 1
ROOT = Path("data/resolved")
Settings = TypeVar("Settings", bound=Strict)


class IngestInputs(Strict):
    """The source of a data set, and the settings of ingest."""

    source: AnySource
    ingest: IngestSettings


class TrainInputs(Strict):
    """The training of a method on a data set, for any seed; also that of a fold."""

    recipe: AnyRecipe


class ExportInputs(Strict):
    """How images are embedded (block `export`)."""

    batch_size: Count
    scales: tuple[float, ...]


class EvaluateInputs(Strict):
    """How embeddings are evaluated (block `evaluate`)."""

    evaluate: EvaluateSettings


class Trial(Strict):
    """One trial of a sweep: the values of the swept fields, and the recipe with these values."""

    values: dict[str, Any]
    recipe: AnyRecipe


class SweepInputs(Strict):
    """A search over recipe fields. The inputs contain the recipes of the trials, and so no adopted value of a
    swept field."""

    space: dict[str, Axis]
    seed: int  # of the draws
    seeds: tuple[int, ...]  # of the trainings of each trial
    iterations: int
    scheduler: Literal["asha", "none"]
    grace: int
    trials: tuple[Trial, ...]  # empty: the sweep does not include this data set
    proposed: Count | None = None  # trials that Optuna proposes; `trials` are then the corners of the space
    training_code: str  # digest of the code that a trial can reach


class EnsembleInputs(Strict):
    """The ensembles of one method on one data set (the MLRC protocol)."""

    folds: int
    seeds: tuple[int, ...]
    recall_at: tuple[int, ...]


class IntervalInputs(Strict):
    """Of the intervals of FNMR at FMR (block `evaluate`)."""

    confidence: Annotated[float, Field(gt=0, lt=1)]
    seed: int


class AnalyzeInputs(Strict):
    """How the runs of a method on a data set are analysed (block `analyze`)."""

    analyze: AnalyzeSettings
    intervals: IntervalInputs
    parts: PartsSource | None = None  # of a data set whose generator gives the position of the object


Form = Literal["bars", "epochs", "histograms", "energy", "hulls", "attributes", "positions", "gallery"]


class StudyRowInputs(Strict):
    """A row of a study in the run."""

    method: str  # its name in run.methods
    label: str
    like: str  # the published method
    recipe: dict[str, Any]  # dotted field -> value
    printed: str | None  # digest of method and recipe of the printed rows that it reproduces


class StudyInputs(Strict):
    """A study all of whose rows are in the run."""

    name: str
    title: str
    paper: str  # key of pipeline/experiments/printed; empty: a study of a user
    item: str
    table: str | None  # a printed table of the paper
    datasets: tuple[str, ...]  # of the study
    metric: str
    axes: dict[str, str]  # recipe field -> symbol
    tied: tuple[str, ...]
    baselines: dict[str, str | None]  # label of a row -> that of its baseline; None: the highest other
    gain: Literal["percent", "points"]
    contrasts: tuple[tuple[str, str], ...]  # methods of a row and of its control: one family of comparisons
    figures: tuple[Form, ...]
    shows: str
    missing: str
    rows: tuple[StudyRowInputs, ...]


class ReportInputs(Strict):
    """The runs in the report, and the settings of the report."""

    run: RunSettings
    report: ReportSettings
    sweeps: tuple[tuple[str, str], ...]  # data set, method
    like: dict[str, str]  # method -> the published method that it is or is like
    costs: dict[str, dict[str, Cost]]  # data set -> method -> cost
    studies: tuple[StudyInputs, ...]  # that the run covers
    own_photos: tuple[str, ...] = ()  # data sets that are folders of a user


MODELS: dict[str, type[Strict]] = {
    "ingest": IngestInputs,
    "train": TrainInputs,
    "export": ExportInputs,
    "evaluate": EvaluateInputs,
    "sweep": SweepInputs,
    "train_fold": TrainInputs,
    "export_fold": ExportInputs,
    "ensemble": EnsembleInputs,
    "analyze": AnalyzeInputs,
    "report": ReportInputs,
}


@dataclass(frozen=True)
class Inputs(Generic[Settings]):
    """The content of a resolved file."""

    settings: Settings
    code: dict[str, str]
    weights: dict[str, str] = field(default_factory=dict)

    @property
    def code_digest(self) -> str:
        """One digest of all modules."""
        return digest(self.code)


def path_of(stage: str, *cell: str | int) -> Path:
    """The resolved file of a stage, relative to the root of the project; `cell` is data set, method and
    fold."""
    parts = (stage, *map(str, cell))
    return ROOT.joinpath(*parts).with_name(f"{parts[-1]}.json")


def content_of(
    settings: Strict, code: dict[str, str], weights: dict[str, str] | None = None
) -> dict[str, Any]:
    """The content of a resolved file, as plain values. weights: sha256 of each file of weights by its
    path."""
    content = {"schema": SCHEMA, "settings": settings.model_dump(mode="json"), "code": code}
    return content | ({"weights": weights} if weights else {})


def read_inputs(model: type[Settings], stage: str, *cell: str | int) -> Inputs[Settings]:
    """The resolved file of this stage. Raises UserError if it is missing, of another version, or if the code
    of this process or a file of weights is not that of the file."""
    inputs = resolved(model, stage, *cell)
    require_recorded(inputs.code)
    for name, sha256 in inputs.weights.items():
        if not Path(name).is_file() or sha256_of(Path(name)) != sha256:
            raise UserError(
                f"{name} is not the file of weights that stage `resolve` recorded.",
                "Run `dvc repro -f -s resolve`, then the same command again.",
            )
    return inputs


def resolved(model: type[Settings], stage: str, *cell: str | int) -> Inputs[Settings]:
    """The resolved file of a stage. Raises UserError if it is missing or of another version."""
    path = path_of(stage, *cell)
    try:
        text = regular(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path} is missing.", "Run `dvc repro`: stage `resolve` writes it.") from None
    return parse_inputs(model, text, str(path))


def parse_inputs(model: type[Settings], text: str, where: str) -> Inputs[Settings]:
    """A resolved file from its text. Raises UserError if this version did not write it."""
    try:
        content = json.loads(text)
        schema = content.get("schema") if isinstance(content, dict) else None
        if schema != SCHEMA:
            raise ValueError(f"schema {schema!r}, expected {SCHEMA}")
        code, weights = (
            {str(name): str(value) for name, value in digests.items()}
            for digests in (content["code"], content.get("weights", {}))
        )
        with trusted():
            return Inputs(model.parse(content["settings"]), code, weights)
    except (ValueError, KeyError, ValidationError) as error:
        raise UserError(
            f"{where} is not a file that this version of stage `resolve` wrote: {error}.",
            "Run `dvc repro -f -s resolve`.",
        ) from None


def digest(value: Any) -> str:
    """16 hexadecimal digits of the sha256 of a plain value's sorted JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
