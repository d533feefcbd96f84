"""The data of the report: outputs of the other stages under data/."""

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from unseen.config.inputs import StudyInputs
from unseen.data.positions import Positions
from unseen.data.positions import read as read_positions
from unseen.data.shards import Shards
from unseen.data.tables import read_table
from unseen.methods.settings import Cost
from unseen.runtime.errors import UserError
from unseen.runtime.revision import Revision
from unseen.runtime.sealed import read_sealed_csv, recompute, require_digests, unsealed

VALIDATION = ("recall_at_1", "map_at_r", "r_precision")  # columns of a history
TEST = tuple(f"test_{name}" for name in VALIDATION)  # with training.watch_test
HistoryRow = dict[str, float]


@dataclass(frozen=True)
class RunResults:
    """The outputs of one training and its evaluation."""

    dataset: str
    method: str
    seed: int
    metrics: dict[str, Any]  # data/evaluation/<d>/<m>/<s>/metrics.json
    history: list[HistoryRow]
    recipe: dict[str, Any]  # data/models/<d>/<m>/<s>/recipe.json
    protocol: dict[str, Any]
    queries: pa.Table
    query_file: Path  # of `queries`; the files of the other networks are in the same directory
    neighbours: pa.Table
    weights: dict[str, Path]  # files of weights in the model directory
    # the machine of the training, data/logs/<d>/<m>/<s>.json; None: no log
    host: dict[str, Any] | None = None
    embeddings: Path = Path()  # data/embeddings/<d>/<m>/<s>/test.arrow; the section on own photos reads it


@dataclass(frozen=True)
class Sweep:
    """One search over recipe fields: trials in the order of trials.csv, and best.json."""

    dataset: str
    method: str
    trials: list[dict[str, Any]]
    best: dict[str, Any]


@dataclass(frozen=True)
class ReportData:
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    runs: list[RunResults]
    shards: dict[str, Shards]
    analysis: list[dict[str, Any]]  # {"row", "curves", "files"} of each run and network, from data/analysis
    sweeps: list[Sweep]
    ensembles: dict[tuple[str, str], dict[str, Any]]  # data/metrics/<d>/<m>/ensemble.json by (d, m)
    # variant -> the published method that it is like; published methods may be mapped to themselves
    like: dict[str, str] = field(default_factory=dict)
    revision: Revision | None = None  # of the code
    costs: dict[str, dict[str, Cost]] = field(default_factory=dict)  # data set -> method -> cost
    studies: tuple[StudyInputs, ...] = ()  # that the run covers
    # data/positions of the first seed, by (d, m)
    positions: dict[tuple[str, str], Positions] = field(default_factory=dict)
    object_shares: list[dict[str, Any]] = field(default_factory=list)  # of the stage analyze
    own_photos: tuple[str, ...] = ()  # data sets that are folders of a user
    control: str | None = None  # the method that all others are compared with; None: all pairs
    keys: dict[str, str] = field(
        default_factory=dict
    )  # name of a method -> its name in run.methods, if another

    def published_name(self, method: str) -> str:
        """The method in the published tables: the method itself, or that which a variant is like."""
        return self.like.get(method, method)

    def of(self, dataset: str, method: str | None = None) -> list[RunResults]:
        return [run for run in self.runs if run.dataset == dataset and method in (None, run.method)]

    def analysed(self, dataset: str, method: str, network: str = "selected") -> list[dict[str, Any]]:
        """The entries of `analysis` of a network, one per seed."""
        key = dataset, method, network
        entries = ((entry, entry["row"]) for entry in self.analysis)
        return [
            entry
            for entry, row in entries
            if (row["dataset"], row["method"], row["network"]) == key and row["seed"] in self.seeds
        ]

    def under_labels(self, study: StudyInputs) -> "ReportData":
        """The results of the rows of a study, with their labels as names of the methods. Rows with one label
        keep the name of their method."""
        labels = Counter(row.label for row in study.rows)
        names = {row.method: row.label if labels[row.label] == 1 else row.method for row in study.rows}
        return self._renamed({method: name for method, name in names.items() if method in self.methods})

    def _renamed(self, names: Mapping[str, str]) -> "ReportData":
        """The results of the methods in `names`, under these names."""

        def rows(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
            return [
                entry | {"method": names[entry["method"]]} for entry in entries if entry["method"] in names
            ]

        return replace(
            self,
            methods=tuple(names.values()),
            runs=[replace(run, method=names[run.method]) for run in self.runs if run.method in names],
            analysis=[entry | {"row": row} for entry in self.analysis for row in rows([entry["row"]])],
            sweeps=[
                replace(sweep, method=names[sweep.method]) for sweep in self.sweeps if sweep.method in names
            ],
            ensembles={(d, names[m]): entry for (d, m), entry in self.ensembles.items() if m in names},
            like={
                name: names.get(like := self.published_name(method), like) for method, name in names.items()
            },
            costs={
                dataset: {names[method]: cost for method, cost in costs.items() if method in names}
                for dataset, costs in self.costs.items()
            },
            studies=tuple(_study_of(study, names) for study in self.studies),
            positions={(d, names[m]): entry for (d, m), entry in self.positions.items() if m in names},
            object_shares=rows(self.object_shares),
            control=None if self.control is None else names.get(self.control),
            keys={name: method for method, name in names.items() if name != method},
        )

    def object_shares_of(self, dataset: str) -> list[dict[str, Any]]:
        """The shares of weight on the object; empty for a data set that does not know its object."""
        return [row for row in self.object_shares if row["dataset"] == dataset]


def _study_of(study: StudyInputs, names: Mapping[str, str]) -> StudyInputs:
    """A study whose methods have other names."""
    rows = [row.model_copy(update={"method": names.get(row.method, row.method)}) for row in study.rows]
    contrasts = [tuple(names.get(method, method) for method in pair) for pair in study.contrasts]
    return study.model_copy(update={"rows": tuple(rows), "contrasts": tuple(contrasts)})


def read_report_data(
    root: Path,
    datasets: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    sweeps: Sequence[tuple[str, str]] = (),
    ensembles: Sequence[str] = (),
) -> ReportData:
    """Reads the outputs of the runs datasets x methods x seeds, of the sweeps and of the ensembles under
    `root`, data/.

    sweeps: (data set, method) pairs. The fields that no file has keep their defaults.
    Raises UserError naming the first file that is missing or cannot be read.
    """
    analyses = [
        read_sealed(root / "analysis", "analyze", dataset, method, str(seed))
        for dataset in datasets
        for method in methods
        for seed in seeds
    ]
    return ReportData(
        datasets=tuple(datasets),
        methods=tuple(methods),
        seeds=tuple(seeds),
        runs=[
            _run(root, dataset, method, seed) for dataset in datasets for method in methods for seed in seeds
        ],
        shards={dataset: Shards(root / "shards" / dataset) for dataset in datasets},
        analysis=[network for analysis in analyses for network in analysis["networks"]],
        sweeps=[_sweep(root, dataset, method) for dataset, method in sweeps],
        ensembles={
            (dataset, method): read_sealed(root / "metrics", "ensemble", dataset, method, "ensemble")
            for dataset in datasets
            for method in ensembles
        },
        positions={
            (dataset, method): read_positions(root / "positions" / dataset / method / f"{seeds[0]}.arrow")
            for dataset in datasets
            for method in methods
        },
        object_shares=[row for analysis in analyses for row in analysis["object_shares"]],
    )


def _run(root: Path, dataset: str, method: str, seed: int) -> RunResults:
    name = Path(dataset, method, str(seed))
    model = root / "models" / name
    log = root / "logs" / dataset / method / f"{seed}.json"
    require_digests(root / "evaluation" / name, recompute(f"evaluate@{dataset}-{method}-{seed}"))
    return RunResults(
        dataset=dataset,
        method=method,
        seed=seed,
        metrics=read_json(root / "evaluation" / name / "metrics.json"),
        history=read_history(root / "history" / f"{name}.csv", recompute(f"train@{dataset}-{method}-{seed}")),
        recipe=read_json(model / "recipe.json"),
        protocol=read_json(root / "evaluation" / name / "protocol.json"),
        queries=_parquet(root / "evaluation" / name / "queries.parquet"),
        embeddings=root / "embeddings" / name / "test.arrow",
        query_file=root / "evaluation" / name / "queries.parquet",
        neighbours=_parquet(root / "evaluation" / name / "neighbours.parquet"),
        weights={
            path.stem: _present(path) for path in (model / "weights.safetensors", model / "last.safetensors")
        },
        # The log is not a dependency of the stage. Its times are not read: equal inputs give equal bytes.
        host=read_json(log)["host"] if log.is_file() else None,
    )


def _sweep(root: Path, dataset: str, method: str) -> Sweep:
    directory = root / "sweep" / dataset / method
    require_digests(directory, recompute(f"sweep@{dataset}-{method}"))
    return Sweep(dataset, method, read_trials(directory / "trials.csv"), read_json(directory / "best.json"))


def read_history(path: Path, remedy: str) -> list[HistoryRow]:
    """The rows of a training's history, without the empty cells (metrics of a step without validation).
    Raises UserError for a missing or changed file."""
    rows = read_sealed_csv(_present(path), remedy)
    return [{name: float(cell) for name, cell in row.items() if cell} for row in rows]


def read_sealed(root: Path, stage: str, dataset: str, method: str, name: str) -> Any:
    """The content of <root>/<dataset>/<method>/<name>.json, which `stage` wrote, without its seal. Raises
    UserError if the file is missing or changed."""
    path = root / dataset / method / f"{name}.json"
    run = f"{dataset}-{method}" if name == stage else f"{dataset}-{method}-{name}"
    return unsealed(path, read_json(path), recompute(f"{stage}@{run}"))


def read_trials(path: Path) -> list[dict[str, Any]]:
    """The rows of a sweep's trials. Raises UserError for a missing or damaged file."""
    return [{key: _scalar(value) for key, value in row.items()} for _, row in _csv(path)]


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises UserError if the file is missing or truncated."""
    try:
        return json.loads(_present(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno} is not valid JSON: {error.msg}.", _REMEDY) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text: {error.reason}.", _REMEDY) from None


_REMEDY = "Run `dvc repro` to build it."


def _present(path: Path) -> Path:
    if not path.is_file():
        raise UserError(f"{path} is missing.", _REMEDY)
    return path


def _csv(path: Path) -> list[tuple[int, dict[str, str]]]:
    """The last line and the cells of each row. Raises UserError for a missing or damaged file."""
    try:
        with _present(path).open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            rows = [(reader.line_num, row) for row in reader]
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a CSV file: {error}.", _REMEDY) from None
    for line, row in rows:
        if None in row or None in row.values():  # more or fewer cells
            raise UserError(f"{path}:{line} has another number of cells than the first line.", _REMEDY)
    return rows


def _parquet(path: Path) -> pa.Table:
    return read_table(_present(path), _REMEDY)


def _scalar(text: str) -> Any:
    """A CSV cell as a JSON value (a number, true, null, a list) if it is one, else as text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # ValueError: also an integer of too many digits
        return text
