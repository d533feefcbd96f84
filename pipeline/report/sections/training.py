"""Metrics on validation classes during training, all methods in one chart."""

from typing import Any

from markupsafe import Markup

from pipeline.report.dataset import DataSet
from pipeline.report.figures import training as figures
from pipeline.report.networks import few_validation_classes, seeds_differ
from pipeline.report.summary import HEADLINE


def content(dataset: DataSet) -> dict[str, Any]:
    curves = [
        Markup(
            figures.validation(
                dataset.histories, dataset.positions, name, f"{dataset.anchor}-validation-{name}"
            )
        )
        for name in (HEADLINE, "recall_at_1")
        if dataset.histories
    ]
    return {
        "curves": curves,
        "few": few_validation_classes(dataset.report_data, dataset.name),
        "seeds_differ": seeds_differ(dataset.report_data, dataset.name),
    }
