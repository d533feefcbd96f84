"""The spectrum of the embedding: singular values, variance over principal axes, decay without the largest
values.
"""

from typing import Any

from markupsafe import Markup

from unseen.report.dataset import DataSet
from unseen.report.figures import spectrum as figures


def content(dataset: DataSet) -> dict[str, Any]:
    analysis, positions, anchor = dataset.analysis, dataset.positions, dataset.anchor
    charts = []
    if analysis.rows:
        charts = [
            Markup(figures.singular_values(analysis.curves, positions, f"{anchor}-spectrum")),
            Markup(figures.energy(analysis.curves, positions, f"{anchor}-energy")),
            Markup(figures.modes(analysis.rows, positions, f"{anchor}-modes")),
        ]
    return {"figures": charts}
