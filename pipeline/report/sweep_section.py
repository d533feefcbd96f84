"""What the page says of the sweeps of one data set: a chart per swept field, every trial, the line that adopts the best."""

from typing import Any

from markupsafe import Markup

from pipeline.report import figures
from pipeline.report.inputs import Inputs, Sweep
from pipeline.report.words import counted, name_of, number, percent


def sweep_section(inputs: Inputs, dataset: str, anchor: str) -> list[dict[str, Any]]:
    """One entry per sweep of the data set."""
    return [_section(found, f"{anchor}-sweep-{place}") for place, found in enumerate(inputs.sweeps) if found.dataset == dataset]


def _section(found: Sweep, anchor: str) -> dict[str, Any]:
    fields, metric = list(found.best["values"]), f"best_{found.best['metric']}"
    scored = [trial for trial in found.trials if isinstance(trial[metric], int | float) and not trial["error"]]
    last = [name for name in ("last_recall_at_1", "last_r_precision", "last_map_at_r") if any(name in trial for trial in found.trials)]
    names = {metric: f"best {name_of(found.best['metric'])}", **{name: f"last {name_of(name.removeprefix('last_'))}" for name in last}}
    return {
        "method": found.method,
        "note": f"{counted(len(found.trials), 'trial')} over {', '.join(fields)}, judged by {name_of(found.best['metric'])} on validation classes. "
        "Nothing else on this page depends on them: trials are short, and early stopping makes their length depend on their order.",
        "columns": ["trial", *fields, "iterations", *names.values(), "end"],
        "rows": [{"best": trial["trial"] == found.best["trial"], "cells": _cells(trial, fields, list(names))} for trial in found.trials],
        "charts": [Markup(figures.sweep(scored, field, metric, found.best, f"{anchor}-{place}")) for place, field in enumerate(fields)],
        "adopt": found.best["adopt"],
    }


def _cells(trial: dict[str, Any], fields: list[str], metrics: list[str]) -> list[str]:
    end = "failed" if trial["error"] else "stopped early" if trial["stopped_early"] == "True" else "whole"
    shown = [number(value) if isinstance(value := trial[field], int | float) else str(value) for field in fields]
    return [str(trial["trial"]), *shown, number(trial["iterations"]), *(percent(trial[name]) if trial[name] != "" else "–" for name in metrics), end]
