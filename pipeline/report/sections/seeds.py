"""Mean, deviation and t interval over seeds of each method's selected network."""

from typing import Any

import numpy as np

from unseen.evaluation.statistics.seeds import over_seeds
from unseen.report.dataset import DataSet
from unseen.report.sections.results import metrics_over_queries
from unseen.report.summary import Value
from unseen.report.words import name_of, percent, span


def content(dataset: DataSet) -> dict[str, Any] | None:
    """None with one seed.

    Student's t is not bounded. Of the interval, the part within 0 and 100 percent is printed; `cut` marks the
    rest.
    """
    if dataset.seeds < 2:
        return None
    confidence = dataset.runs()[0].protocol["confidence"]
    metrics = metrics_over_queries(dataset.summary)
    rows: list[dict[str, Any]] = []
    for method in dataset.methods:
        values = [(metric, dataset.summary.of(method.name, metric)) for metric in metrics]
        rows.append(
            {"method": method, "cells": [_cell(metric, value, confidence) for metric, value in values]}
        )
    is_cut = any(cell["cut"] for row in rows for cell in row["cells"])
    return {"metrics": [name_of(metric) for metric in metrics], "rows": rows, "is_cut": is_cut}


def _cell(metric: str, value: Value | None, confidence: float) -> dict[str, Any]:
    if value is None:
        return {"metric": metric, "value": "–", "interval": "", "cut": False}
    average = over_seeds(np.array(value.each), confidence)
    return {
        "metric": metric,
        "value": f"{percent(average.mean)} ± {percent(average.deviation)}",
        "interval": span(max(average.low, 0.0), min(average.high, 1.0)),
        "cut": average.low < 0 or average.high > 1,
    }
