"""Cosine similarities of pairs of images, of the first seed: one chart per method on seen and on unseen
classes, and the errors of a threshold on unseen classes.
"""

from typing import Any

from markupsafe import Markup

from pipeline.report.dataset import DataSet
from pipeline.report.figures import similarity as figures
from pipeline.report.match_errors import match_errors


def content(dataset: DataSet) -> dict[str, Any]:
    curves = dataset.analysis.first_curves
    charts = []
    if curves:
        span = figures.shared_span(list(curves.values()))
        for method, histograms in curves.items():
            position = dataset.positions[method]
            name = f"{dataset.anchor}-pairs-{position}"
            charts.append(Markup(figures.seen_and_unseen(method, position, histograms, span, name)))
    errors = [
        {"method": method, "rows": match_errors(curves[method.name].get("operating_points", []))}
        for method in dataset.methods
        if method.name in curves
    ]
    return {"figures": charts, "errors": [each for each in errors if each["rows"]]}
