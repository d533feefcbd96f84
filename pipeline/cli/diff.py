"""The command `unseen diff`: whether the numbers of two revisions differ by more than noise.

The results per query, which stage `evaluate` computed from the embeddings of both, are compared by the one
rule for "better" (pipeline/evaluation/statistics/better.py), paired by query and seed. The family contains
all data sets, methods and metrics whose results differ. The floor of a comparison is that of its better side.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from unseen.cli.at_revision import AtRevision
from unseen.config.document import Document
from unseen.evaluation.statistics.better import LEAST, Comparison, Verdict, compare, decide, flips_of
from unseen.evaluation.statistics.table import of_queries
from unseen.evaluation.tables import read_runs
from unseen.report.comparison import COMPARED, bounds
from unseen.report.joint_intervals import column_of
from unseen.report.summary import FLOOR, PREFIX
from unseen.report.words import listed, name_of, percent, signed_points
from unseen.runtime.errors import UserError
from unseen.runtime.sealed import DIGESTS, recompute, require_digests
from unseen.runtime.text import aligned

_PARAMS = Path("params.yaml")
# The default graph's `ms` on one machine, with all its instructions and limited to AVX2.
_PROCESSORS = (
    "Equal code rounds differently there: `ms` on `parts` reached MAP@R .1317 with AVX-512 and .1296 when "
    "limited to AVX2 (training.precision auto)."
)
_WITHOUT_CACHE = (
    "`dvc metrics diff` compares the averages, which are in git. Those of another kind of processor differ. "
    f"{_PROCESSORS}"
)


class MethodOnSet(NamedTuple):
    """A method on a data set."""

    dataset: str
    method: str


class Side(NamedTuple):
    """The results of a cell at a revision, one for each seed."""

    revision: str
    queries: list[Path]
    metrics: list[dict[str, Any]]
    protocol: dict[str, Any]
    processors: set[str]  # of the trainings

    def floor(self, metric: str) -> float | None:
        """The mean over seeds of the features before training; None for a metric without it."""
        values = [file[name] for file in self.metrics if (name := PREFIX[FLOOR] + metric) in file]
        return sum(values) / len(values) if values else None


def difference(first: str, second: str | None = None) -> str:
    """The differences `second - first` in the metrics of COMPARED, as a table. second: None is the workspace.

    Compares the data sets, methods and seeds that `run` of params.yaml has at both revisions.

    Raises UserError for an unknown revision, if the two have no data set, method and seed in common, if a
    file is missing in DVC's cache or differs from its sha256, and for results of different images or
    protocols.
    """
    before, after = AtRevision(first), AtRevision(second)
    runs = [Document(_PARAMS, f"{_PARAMS} of {at.name}", at.read(_PARAMS).decode()) for at in (before, after)]
    datasets, methods, seeds = (_common(runs, f"run.{axis}") for axis in ("datasets", "methods", "seeds"))
    with TemporaryDirectory() as folder:
        cells = {
            cell: [
                _side(at, Path(folder, str(number)), cell, seeds) for number, at in enumerate((before, after))
            ]
            for cell in map(MethodOnSet._make, product(datasets, methods))
        }
        return "\n".join([*_table(cells, [before.name, after.name]), *_processors(cells), ""])


def _common(runs: Sequence[Document], axis: str) -> list[Any]:
    (first, _), (second, _) = values = [(document.read(axis), document.label) for document in runs]
    if common := [value for value in second if value in first]:
        return common
    of_both = " and ".join(f"{axis} of {label} ({listed([*map(str, names)])})" for names, label in values)
    raise UserError(
        f"{of_both} have nothing in common.",
        "Compare two revisions that trained the same method on the same data set with the same seed.",
    )


def _side(at: AtRevision, folder: Path, cell: MethodOnSet, seeds: Sequence[int]) -> Side:
    files, metrics, processors, protocol = [], [], set(), {}
    for seed in map(str, seeds):
        evaluation = _copied(at, folder, Path("data/evaluation", *cell, seed))
        files.append(evaluation / "queries.parquet")
        metrics.append(json.loads((evaluation / "metrics.json").read_text(encoding="utf-8")))
        protocol = json.loads((evaluation / "protocol.json").read_text(encoding="utf-8"))
        processors.add(_processor(at, Path("data/logs", *cell, f"{seed}.json")))
    return Side(at.name, files, metrics, protocol, processors)


def _copied(at: AtRevision, folder: Path, evaluation: Path) -> Path:
    """A copy of the results below `folder`. Raises UserError if one differs from its recorded sha256."""
    copy = folder / evaluation
    copy.mkdir(parents=True)
    for name in ("queries.parquet", "metrics.json", "protocol.json", DIGESTS):
        (copy / name).write_bytes(at.read(evaluation / name, _WITHOUT_CACHE))
    remedy = recompute(f"evaluate@{'-'.join(evaluation.parts[2:])}")
    try:
        require_digests(copy, remedy)
    except UserError as error:
        raise UserError(f"At {at.name}: {error.what.removeprefix(f'{folder}/')}", remedy) from error
    return copy


def _processor(at: AtRevision, log: Path) -> str:
    try:
        return str(json.loads(at.read(log))["host"]["device"])
    except UserError:  # no result depends on a log, and a remote may lack it
        return "an unknown processor (no log)"


def _table(cells: dict[MethodOnSet, list[Side]], names: list[str]) -> Iterator[str]:
    compared: list[tuple[MethodOnSet, str, Comparison]] = []
    equal: list[str] = []
    for cell, sides in cells.items():
        _require_one_protocol(cell, sides)
        differing = [(cell, metric, comparison) for metric, comparison in _comparisons(sides) if comparison]
        compared += differing
        if not differing:
            equal.append(f"{cell.method} on {cell.dataset}")
    if equal:
        yield f"equal for each query: {', '.join(equal)}"
    if not compared:
        return
    confidence = next(iter(cells.values()))[1].protocol["confidence"]
    floors = [_floor(cells[cell], metric) for cell, metric, _ in compared]
    least = [LEAST[metric] for _, metric, _ in compared]
    verdicts = decide([comparison for *_, comparison in compared], least, floors, confidence)
    interval = f"{100 * confidence:g}% interval"
    heads = ("data set", "method", "metric", *names, "difference", interval, "p (Holm)", "verdict")
    rows = [
        _row(cell, metric, verdict) for (cell, metric, _), verdict in zip(compared, verdicts, strict=True)
    ]
    yield from aligned([heads, *rows], right=range(3, 8))
    yield "In percent and points. Intervals are over classes, and over seeds where there are two or more."
    if any(verdict.comparison.seeds is None for verdict in verdicts):
        yield "One seed: the table does not contain what trainings with other seeds vary."


def _comparisons(sides: Sequence[Side]) -> Iterator[tuple[str, Comparison | None]]:
    """Of both sides in each metric; None if the values of all queries are equal."""
    for metric in COMPARED:
        runs = read_runs([file for side in sides for file in side.queries], column_of(metric))
        values = np.split(runs.values, 2)
        protocol = sides[1].protocol
        if np.array_equal(values[0], values[1], equal_nan=True):
            yield metric, None
            continue
        flips = flips_of(len(COMPARED), protocol["confidence"])
        table = of_queries(values, runs.label)
        yield metric, compare(table, [(0, 1)], flips, protocol["confidence"], protocol["seed"])[0]


def _floor(sides: Sequence[Side], metric: str) -> float | None:
    return max(sides, key=lambda side: sum(file[metric] for file in side.metrics)).floor(metric)


def _require_one_protocol(cell: MethodOnSet, sides: Sequence[Side]) -> None:
    """Raises UserError if the sides were evaluated by other definitions, or by a table instead of classes."""
    first, second = (side.protocol for side in sides)
    where = f"{cell.method} on {cell.dataset}"
    if "map_at_r" not in second:
        raise UserError(
            f"{where} is evaluated by a table as ground truth, which has no classes to compare over.",
            f"Remove {cell.dataset} from run.datasets of params.yaml.",
        )
    others = [key for key in second if key != "recall_at" and first.get(key) != second[key]]
    if others:
        raise UserError(
            f"{where}: the protocols of {sides[0].revision} and {sides[1].revision} differ in "
            f"{listed(others)}.",
            "Evaluate both revisions with the same block `evaluate` of params.yaml and the same protocol.",
        )


def _row(cell: MethodOnSet, metric: str, verdict: Verdict) -> tuple[str, ...]:
    comparison = verdict.comparison
    return (
        *cell,
        name_of(metric),
        percent(comparison.first),
        percent(comparison.second),
        signed_points(comparison.difference),
        bounds(comparison),
        f"{verdict.adjusted:.3g}",
        verdict.outcome,
    )


def _processors(cells: dict[MethodOnSet, list[Side]]) -> Iterator[str]:
    """The kinds of processors, if the sides were trained on others, and what that changes."""
    first, second = (set().union(*(sides[side].processors for sides in cells.values())) for side in (0, 1))
    if first != second:
        names = [side.revision for side in next(iter(cells.values()))]
        kinds = ", ".join(
            f"{name} on {' and '.join(sorted(kinds))}"
            for name, kinds in zip(names, (first, second), strict=True)
        )
        yield f"Trained on other kinds of processors: {kinds}. {_PROCESSORS}"
