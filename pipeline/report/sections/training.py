"""Metrics on validation classes during training, all methods in one chart; on test classes where
training.watch_test is set."""

from typing import Any

from markupsafe import Markup

from unseen.report.dataset import DataSet
from unseen.report.figures import training as figures
from unseen.report.networks import few_validation_classes, seeds_differ
from unseen.report.summary import HEADLINE


def content(dataset: DataSet) -> dict[str, Any] | None:
    """None if no method was validated or watched."""
    curves, test_curves = _charts(dataset, ""), _charts(dataset, "test_")
    if dataset.histories and not curves and not test_curves:
        return None
    return {
        "curves": curves,
        "test_curves": test_curves,
        "few": few_validation_classes(dataset.report_data, dataset.name),
        "seeds_differ": seeds_differ(dataset.report_data, dataset.name),
    }


def _charts(dataset: DataSet, prefix: str) -> list[Markup]:
    """A chart of each metric, of the methods whose histories contain `prefix` and its name."""
    histories = {
        method: runs
        for method, runs in dataset.histories.items()
        if any(prefix + HEADLINE in row for rows in runs for row in rows)
    }
    return [
        Markup(figures.validation(histories, dataset.positions, name, f"{dataset.anchor}-validation-{name}"))
        for name in (prefix + HEADLINE, f"{prefix}recall_at_1")
        if histories
    ]
