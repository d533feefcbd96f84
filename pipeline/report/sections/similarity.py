"""Cosine similarities of pairs of images, on seen and on unseen classes: one chart per method, of the first
seed.
"""

from typing import Any

from markupsafe import Markup

from pipeline.report.dataset import DataSet
from pipeline.report.figures import similarity as figures


def content(dataset: DataSet) -> dict[str, Any]:
    curves = dataset.analysis.first_curves
    charts = []
    if curves:
        span = figures.shared_span(list(curves.values()))
        for method, histograms in curves.items():
            position = dataset.positions[method]
            name = f"{dataset.anchor}-pairs-{position}"
            charts.append(Markup(figures.seen_and_unseen(method, position, histograms, span, name)))
    return {"figures": charts}
