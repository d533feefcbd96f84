"""What a sweep leaves: every trial in a table, a figure, the best values and the one line that adopts
them."""

import csv
import json
from pathlib import Path
from typing import Any

from pipeline.config import Params, SweepSettings
from pipeline.config.command import change, literal
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import atomic_directory, write_json
from pipeline.studies.sweep.figure import draw_figure
from pipeline.studies.sweep.record import Trial
from pipeline.studies.sweep.space import Values


def best_of(trials: list[Trial], metric: str) -> Trial:
    """The trial with the highest validation metric, the first of equals. Raises UserError when every trial
    failed."""
    judged = [trial for trial in trials if trial.error is None and trial.best(metric) is not None]
    if not judged:
        errors = "; ".join(f"trial {trial.number}: {trial.why or 'no validation'}" for trial in trials[:3])
        raise UserError(
            f"All {len(trials)} trials of the sweep failed: {errors}.", "Correct the space or the recipe."
        )
    return max(judged, key=lambda trial: (trial.best(metric), -trial.number))


def write_results(
    output: Path, trials: list[Trial], settings: SweepSettings, metric: str, title: str, line: str
) -> None:
    """Writes trials.csv, sweep.svg and best.json into `output`, all or none."""
    best = best_of(trials, metric)
    with atomic_directory(output) as directory:
        write_trials(directory / "trials.csv", trials, metric)
        draw_figure(directory / "sweep.svg", trials, settings, metric, title)
        write_json(
            directory / "best.json",
            {
                "trial": best.number,
                "values": best.values,
                "metric": metric,
                "value": best.best(metric),
                "adopt": line,
            },
        )


def write_trials(path: Path, trials: list[Trial], metric: str) -> None:
    """Writes trials.csv, one line for each trial."""
    rows = [row_of(trial, metric) for trial in trials]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def row_of(trial: Trial, metric: str) -> dict[str, Any]:
    """A line of trials.csv: number, swept fields, how far it came, its best and its last numbers, how it
    ended."""
    last = trial.rows[-1] if trial.rows else {}
    numbers = {
        f"last_{name}": last.get(name, "") for name in ("loss", "recall_at_1", "r_precision", "map_at_r")
    }
    return {
        "trial": trial.number,
        **{
            field: json.dumps(value) if isinstance(value, list | dict) or value is None else value
            for field, value in trial.values.items()
        },
        "iterations": int(last.get("iteration", 0)),
        "stopped_early": trial.stopped_early,
        f"best_{metric}": "" if trial.best(metric) is None else trial.best(metric),
        **numbers,
        "seconds": round(trial.seconds, 1),
        "error": "\n".join((trial.error or "").strip().splitlines()),
    }


def table(trials: list[Trial], metric: str) -> str:
    """The trials as lines of a terminal, the best one marked."""
    best = best_of(trials, metric)
    head = ["", "trial", *trials[0].values, "iterations", metric, ""]
    lines = [head]
    for trial in trials:
        row, value = row_of(trial, metric), trial.best(metric)
        end = f"failed: {trial.why}" if trial.error else "stopped early" if trial.stopped_early else ""
        shown = "-" if value is None else f"{value:.4f}"
        fields = [str(row[field]) for field in trial.values]
        lines.append(
            ["*" if trial is best else "", str(trial.number), *fields, str(row["iterations"]), shown, end]
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def adopting_line(params: Params, dataset: str, method: str, values: Values) -> str:
    """The command that makes `values` the setting of `method` on `dataset`: no other data set changes, and
    the search is not repeated."""
    options = (change(params, dataset, method, field, literal(value)) for field, value in values.items())
    return f"dvc exp run {' '.join(options)}"
