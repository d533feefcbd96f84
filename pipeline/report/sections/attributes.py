"""Attributes of the methods that pool by prototypes: their zero-shot transfer, and those of the first test
classes.
"""

from typing import Any

from markupsafe import Markup

from unseen.report.dataset import DataSet
from unseen.report.figures import attributes as figures
from unseen.report.names import labels_of


def content(dataset: DataSet) -> dict[str, Any] | None:
    """None if no method has attributes."""
    analysis, positions, anchor = dataset.analysis, dataset.positions, dataset.anchor
    names = dataset.shards.class_names
    labels = labels_of(names)
    charts = []
    if any(row.get("transfer_map_cosine") is not None for row in analysis.selected_means.values()):
        charts.append(Markup(figures.transfer(analysis.means, positions, f"{anchor}-transfer")))
    for method, curves in analysis.first_curves.items():
        if "attributes" in curves:
            shares, position = curves["attributes"], positions[method]
            classes = [(labels[label], names[label]) for label in shares["labels"]]
            chart = figures.attributes(method, position, shares, classes, f"{anchor}-attributes-{position}")
            charts.append(Markup(chart))
    return {"figures": charts} if charts else None
