"""Metrics on validation classes during training, all methods in one chart."""

from typing import Any

from markupsafe import Markup

from pipeline.report.dataset import DataSet
from pipeline.report.figures import training as figures
from pipeline.report.networks import few_validation_classes, seeds_differ
from pipeline.report.summary import HEADLINE


def content(dataset: DataSet) -> dict[str, Any] | None:
    """None if no method was validated."""
    histories = {
        method: runs
        for method, runs in dataset.histories.items()
        if any(HEADLINE in row for rows in runs for row in rows)
    }
    if dataset.histories and not histories:
        return None
    curves = [
        Markup(figures.validation(histories, dataset.positions, name, f"{dataset.anchor}-validation-{name}"))
        for name in (HEADLINE, "recall_at_1")
        if histories
    ]
    return {
        "curves": curves,
        "few": few_validation_classes(dataset.report_data, dataset.name),
        "seeds_differ": seeds_differ(dataset.report_data, dataset.name),
    }
