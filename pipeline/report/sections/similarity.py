"""Cosine similarities of pairs of images, of the first seed: one chart per method on seen and on unseen
classes, and the errors of a threshold on unseen classes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from unseen.report.analysis import match_errors
from unseen.report.dataset import DataSet
from unseen.report.svg import INK, SMALL, Chart, few_ticks, inline, panel, plain, style_of
from unseen.report.words import decimals

Curves = Mapping[str, Any]  # of one run, as in analysis.json
SIDES = ("", "train_")  # prefixes of the histograms of unseen and of seen classes
KINDS = ("positive", "negative")  # pairs within a class and between classes
MIN_SHARE = 2e-4  # of a bin that the axis shows


def content(dataset: DataSet) -> dict[str, Any]:
    curves = dataset.analysis.first_curves
    panels = list(_panels(dataset))
    span = shared_span([histograms for _, _, histograms in panels]) if panels else (-1.0, 1.0)
    return {
        "figures": [
            seen_and_unseen(title, position, histograms, span, f"{dataset.anchor}-pairs-{place}")
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


def shared_span(curves: Sequence[Curves]) -> tuple[float, float]:
    """The similarities that occur in any of the histograms: the axis of all charts."""
    edges = np.asarray(curves[0]["edges"])
    shares = [run[f"{side}{kind}"]["share"] for run in curves for side in SIDES for kind in KINDS]
    used = np.flatnonzero(np.sum(shares, axis=0) > MIN_SHARE)
    return (float(edges[used[0]]), float(edges[used[-1] + 1])) if len(used) else (-1.0, 1.0)


def seen_and_unseen(
    method: str, position: int, curves: Curves, span: tuple[float, float], name: str
) -> Chart:
    """Pairs within a class (coloured) and between classes: unseen classes solid, seen classes dashed."""
    edges, colour = np.asarray(curves["edges"]), style_of(position)[0]
    with panel(plain(method), SMALL, 2.4) as (figure, axes):
        for kind, ink in zip(KINDS, (colour, INK), strict=True):
            unseen, seen = (100 * np.asarray(curves[f"{side}{kind}"]["share"]) for side in SIDES)
            if kind == "positive":
                axes.stairs(unseen, edges, fill=True, color=ink, alpha=0.45, linewidth=0)
            axes.stairs(unseen, edges, color=ink, linewidth=1.4, label=f"{kind}, unseen")
            axes.stairs(seen, edges, color=ink, linewidth=1.2, linestyle=(0, (3, 1.5)), label=f"{kind}, seen")
        axes.set_xlim(*span)
        top = 108 * max(max(curves[f"{side}{kind}"]["share"]) for side in SIDES for kind in KINDS) or 1
        axes.set_ylim(0, min(top, 100))
        axes.set_xlabel("cosine similarity")
        axes.set_ylabel("percent of pairs")
        few_ticks(axes, y=4)
        pairs = [(kind, *(decimals(curves[f"{side}{kind}"]["mean"]) for side in SIDES)) for kind in KINDS]
        means = "; ".join(
            f"{kind} pairs {seen} on seen and {unseen} on unseen classes" for kind, unseen, seen in pairs
        )
        return inline(
            figure, name, f"Cosine similarities of {method} on seen and unseen classes, means: {means}"
        )
