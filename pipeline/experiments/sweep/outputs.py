"""The outputs of a sweep: a table of all trials, the best values and the command that adopts them."""

import json
from pathlib import Path
from typing import Any

from unseen.config.command import change, literal
from unseen.config.definitions import Definitions
from unseen.experiments.sweep.record import Trial, groups_of, score_of
from unseen.experiments.sweep.space import Values
from unseen.runtime.errors import UserError
from unseen.runtime.files import atomic_directory, write_json
from unseen.runtime.sealed import write_digests
from unseen.runtime.text import aligned, write_csv


def best_of(trials: list[Trial], metric: str) -> list[Trial]:
    """The trials of the values with the highest mean metric over the seeds; of equal ones the first.

    Trainings that the scheduler stopped are shorter than the others, so that they are not compared. Raises
    UserError if no values have all their trainings.
    """
    complete = [group for group in groups_of(trials) if not any(trial.stopped_early for trial in group)]
    scored = [(score, group) for group in complete if (score := score_of(group, metric)) is not None]
    if not scored:
        ends = "; ".join(
            f"trial {trial.number}: "
            f"{trial.error_line or ('stopped early' if trial.stopped_early else 'no validation')}"
            for trial in trials[:3]
        )
        raise UserError(
            f"None of the {len(trials)} trials of the sweep is complete: {ends}.",
            "Correct the space or the recipe.",
        )
    return max(scored, key=lambda pair: pair[0])[1]


def write_results(output: Path, trials: list[Trial], metric: str, command: str) -> None:
    """Writes trials.csv and best.json into `output`, all or none. `command` adopts the best values."""
    best = best_of(trials, metric)
    with atomic_directory(output) as directory:
        write_trials(directory / "trials.csv", trials, metric)
        write_json(
            directory / "best.json",
            {
                "trials": [trial.number for trial in best],
                "values": best[0].values,
                "metric": metric,
                "value": score_of(best, metric),
                "adopt": command,
            },
        )
        write_digests(directory)


def write_times(path: Path, trials: list[Trial]) -> None:
    """Writes the seconds of each trial as JSON. Nothing depends on this file: times differ between equal
    runs."""
    write_json(path, {"seconds": {str(trial.number): round(trial.seconds, 1) for trial in trials}})


def write_trials(path: Path, trials: list[Trial], metric: str) -> None:
    """Writes trials.csv, one line for each trial."""
    rows = [row_of(trial, metric) for trial in trials]
    write_csv(path, [[*rows[0]], *([row[name] for name in rows[0]] for row in rows)])


def row_of(trial: Trial, metric: str) -> dict[str, Any]:
    """A row of trials.csv: number, seed, swept fields, iterations, best and last metrics, error."""
    last = trial.rows[-1] if trial.rows else {}
    last_metrics = {
        f"last_{name}": last.get(name, "") for name in ("loss", "recall_at_1", "r_precision", "map_at_r")
    }
    swept = {
        field: json.dumps(value) if isinstance(value, list | dict) or value is None else value
        for field, value in trial.values.items()
    }
    return {
        "trial": trial.number,
        "seed": trial.seed,
        **swept,
        "iterations": int(last.get("iteration", 0)),
        "stopped_early": trial.stopped_early,
        f"best_{metric}": "" if trial.best(metric) is None else trial.best(metric),
        **last_metrics,
        "error": "\n".join((trial.error or "").strip().splitlines()),
    }


def table(trials: list[Trial], metric: str) -> str:
    """The trials as aligned lines of text. `*` marks those of the best values."""
    best = best_of(trials, metric)
    head = ["", "trial", "seed", *trials[0].values, "iterations", metric, ""]
    lines = [head]
    for trial in trials:
        row, value = row_of(trial, metric), trial.best(metric)
        mark = "*" if trial in best else ""
        fields = [str(row[field]) for field in trial.values]
        score = "-" if value is None else f"{value:.4f}"
        end = "stopped early" if trial.stopped_early else ""
        if trial.error:
            end = f"failed: {trial.error_line}"
        lines.append([mark, str(trial.number), str(trial.seed), *fields, str(row["iterations"]), score, end])
    return "\n".join(aligned(lines))


def adopting_command(definitions: Definitions, dataset: str, method: str, values: Values) -> str:
    """The command that sets `values` for `method` on `dataset`. It changes no other data set and does not
    repeat the search. No argument changes a row of a study: for a row, the lines for its recipe."""
    if method in definitions.rows or method not in definitions.methods():
        lines = "; ".join(f"{field}: {literal(value)}" for field, value in values.items())
        return f"the recipe of row {method} in the file of its study: {lines}"
    options = (change(definitions, dataset, method, field, literal(value)) for field, value in values.items())
    return f"dvc exp run {' '.join(options)}"
