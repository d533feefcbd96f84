"""Sweeps: a chart per swept field, all trials, the command that adopts the best values."""

from typing import Any

from markupsafe import Markup

from unseen.report.dataset import DataSet
from unseen.report.figures import sweeps as figures
from unseen.report.report_data import Sweep
from unseen.report.words import counted, name_of, number, percent

LAST = ("last_recall_at_1", "last_r_precision", "last_map_at_r")  # of the last validation of a trial


def content(dataset: DataSet) -> dict[str, Any] | None:
    """None without a sweep."""
    sweeps = [
        _sweep(sweep, f"{dataset.anchor}-sweep-{place}")
        for place, sweep in enumerate(dataset.report_data.sweeps)
        if sweep.dataset == dataset.name
    ]
    return {"sweeps": sweeps} if sweeps else None


def _sweep(sweep: Sweep, anchor: str) -> dict[str, Any]:
    best, fields = sweep.best, list(sweep.best["values"])
    metric, metric_name = f"best_{best['metric']}", name_of(best["metric"])
    scored = [
        trial for trial in sweep.trials if isinstance(trial[metric], int | float) and not trial["error"]
    ]
    last = [name for name in LAST if any(name in trial for trial in sweep.trials)]
    titles = {
        metric: f"best {metric_name}",
        **{name: f"last {name_of(name.removeprefix('last_'))}" for name in last},
    }
    return {
        "method": sweep.method,
        "trials": counted(len(sweep.trials), "trial"),
        "fields": ", ".join(fields),
        "metric": metric_name,
        "best": text_of_best(sweep),
        "stopped": any(trial["stopped_early"] == "True" for trial in sweep.trials),
        "seeds": len(best["trials"]),
        "columns": ["trial", "seed", *fields, "iterations", *titles.values(), "end"],
        "rows": [
            {"best": trial["trial"] in best["trials"], "cells": _cells(trial, fields, list(titles))}
            for trial in sweep.trials
        ],
        "charts": [
            Markup(figures.sweep(scored, field, metric, best, f"{anchor}-{place}"))
            for place, field in enumerate(fields)
        ],
        "adopt": best["adopt"],
    }


def text_of_best(sweep: Sweep) -> str:
    """The best values of a sweep: `threshold 0.3, margin 0.1`."""
    values = sweep.best["values"].items()
    return ", ".join(f"{field.rpartition('.')[2]} {_text(value)}" for field, value in values)


def _text(value: Any) -> str:
    return number(value) if isinstance(value, int | float) else str(value)


def _cells(trial: dict[str, Any], fields: list[str], metrics: list[str]) -> list[str]:
    end = "failed" if trial["error"] else "stopped early" if trial["stopped_early"] == "True" else "complete"
    values = [_text(trial[field]) for field in ("seed", *fields, "iterations")]
    scores = [percent(trial[name]) if trial[name] != "" else "–" for name in metrics]
    return [str(trial["trial"]), *values, *scores, end]
