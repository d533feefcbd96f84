"""Cosine similarities of pairs of images, of the first seed: one chart per method on seen and on unseen
classes, and the errors of a threshold on unseen classes.
"""

from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from unseen.report.dataset import DataSet
from unseen.report.figures import similarity as figures
from unseen.report.match_errors import match_errors


def content(dataset: DataSet) -> dict[str, Any]:
    curves = dataset.analysis.first_curves
    panels = list(_panels(dataset))
    span = figures.shared_span([histograms for _, _, histograms in panels]) if panels else (-1.0, 1.0)
    return {
        "figures": [
            Markup(
                figures.seen_and_unseen(title, position, histograms, span, f"{dataset.anchor}-pairs-{place}")
            )
            for place, (position, title, histograms) in enumerate(panels)
        ],
        "is_reduced": any(histograms.get("reduced") for histograms in curves.values()),
        "by_ground_truth": any(histograms.get("benchmarks") for histograms in curves.values()),
        "errors": [
            {"method": method, "rows": match_errors(curves[method.name]["operating_points"])}
            for method in dataset.methods
            if curves.get(method.name, {}).get("operating_points")
        ],
    }


def _panels(dataset: DataSet) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """(position of the method, title, histograms) of each chart: of the embeddings of each method, and of the
    reduced ones. A landmark set has a chart per benchmark, whose ground truth defines the pairs of test
    images."""
    for method, curves in dataset.analysis.first_curves.items():
        reduced = curves.get("reduced")
        kinds = {"": curves}
        if reduced:
            kinds[f"reduced to {reduced['dim']}"] = {"edges": curves["edges"], **reduced}
        for kind, histograms in kinds.items():
            for benchmark, pairs in (histograms.get("benchmarks") or {"": {}}).items():
                title = ", ".join(filter(None, (method, benchmark, kind)))
                yield dataset.positions[method], title, {**histograms, **pairs}
