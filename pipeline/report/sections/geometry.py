"""Density, spectral decay and other numbers of the embedding: the table of the analysis stage, and two
charts.
"""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from unseen.report.analysis import NETWORKS, Means
from unseen.report.dataset import DataSet
from unseen.report.networks import before
from unseen.report.summary import HEADLINE
from unseen.report.svg import PAPER, WIDE, few_ticks, inline, method_rows, panel, style_of
from unseen.report.words import decimals, name_of, number, percent, signed_points

_COLUMNS = (
    ("embedding_density", "density", decimals),
    ("density_intra", "within classes", decimals),
    ("density_inter", "between centres", decimals),
    ("spectral_decay", "spectral decay", decimals),
    ("pca_dims_90", "axes for 90\u00a0% of variance", number),
    ("dim", "dimension", number),
    ("similarity_overlap", "overlap of pairs, %", percent),
    (f"train_{HEADLINE}", f"train {name_of(HEADLINE)}", percent),
    (f"test_{HEADLINE}", f"test {name_of(HEADLINE)}", percent),
    (f"{HEADLINE}_gap", "gap, points", signed_points),
)


def content(dataset: DataSet) -> dict[str, Any]:
    analysis, positions = dataset.analysis, dataset.positions
    rows = [
        {
            "method": method,
            "network": network,
            "label": before(dataset.runs(method.name)[0]),
            "cells": [form(analysis.means[method.name, network].get(key)) for key, _, form in _COLUMNS],
        }
        for method in dataset.methods
        for network in NETWORKS
        if (method.name, network) in analysis.means
    ]
    floored = ""
    if analysis.floored:
        floored = (
            f"Singular values of {', '.join(analysis.floored)} are below the resolution of float32 "
            "and were raised to it. Their directions are unused."
        )
    charts = []
    if analysis.rows:
        charts = [
            drift(analysis.means, positions, f"{dataset.anchor}-drift"),
            gaps(analysis.selected_means, positions, HEADLINE, f"{dataset.anchor}-gap"),
        ]
    return {
        "columns": [title for _, title, _ in _COLUMNS],
        "rows": rows,
        "floored": floored,
        "figures": charts,
    }


def gaps(means: Mapping[str, Means], positions: Mapping[str, int], metric: str, name: str) -> Markup:
    """Train classes (hollow) to test classes (filled), one line per method."""
    ends = {
        method: (train, test)
        for method, row in means.items()
        if (train := row.get(f"train_{metric}")) is not None
        and (test := row.get(f"test_{metric}")) is not None
    }
    with panel(f"{name_of(metric)} on train and on test classes", WIDE, 2.8) as (figure, axes):
        for place, (method, (train, test)) in enumerate(reversed(ends.items())):
            colour = style_of(positions[method])[0]
            axes.plot([100 * test, 100 * train], [place, place], color=colour, linewidth=2)
            axes.plot(
                [100 * train], [place], marker="o", markersize=7, markerfacecolor=PAPER,
                markeredgecolor=colour, markeredgewidth=1.8,
            )  # fmt: skip
            axes.plot([100 * test], [place], marker="o", markersize=7, color=colour)
        method_rows(axes, list(ends), len(ends) - 0.4)
        values = "; ".join(f"{m} {percent(train)} to {percent(test)}" for m, (train, test) in ends.items())
        return inline(figure, name, f"{name_of(metric)} in percent from train to test classes: {values}")


def drift(means: Mapping[tuple[str, str], Means], positions: Mapping[str, int], name: str) -> Markup:
    """Density over spectral decay: from the network before training (cross) to the selected one."""
    with panel("Density and decay, before and after training", WIDE, 2.8) as (figure, axes):
        changes = []
        for method, position in positions.items():
            rows = [means.get((method, network), {}) for network in ("untrained", "selected")]
            points = [
                (x, y)
                for row in rows
                if (x := row.get("spectral_decay")) is not None
                and (y := row.get("embedding_density")) is not None
            ]
            if len(points) < 2:
                continue
            colour, _, marker = style_of(position)
            (x0, y0), (x1, y1) = points
            axes.plot([x0, x1], [y0, y1], color=colour, linewidth=1, alpha=0.6)
            axes.plot(
                [x0], [y0], marker="x", color=colour, linestyle="none", markersize=5, markeredgewidth=1.5
            )
            axes.plot([x1], [y1], marker=marker, color=colour, linestyle="none", markersize=7)
            changes.append(
                f"{method} from decay {x0:.2f}, density {y0:.2f} to decay {x1:.2f}, density {y1:.2f}"
            )
        axes.set_xlabel("spectral decay")
        axes.set_ylabel("density")
        axes.margins(0.08)
        few_ticks(axes)
        return inline(
            figure, name, f"Density and spectral decay before and after training: {'; '.join(changes)}"
        )
