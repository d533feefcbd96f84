"""Density, spectral decay and other numbers of the embedding: the table of the analysis stage, and two
charts.
"""

from typing import Any

from markupsafe import Markup

from unseen.report.analysis import NETWORKS
from unseen.report.dataset import DataSet
from unseen.report.figures import geometry as figures
from unseen.report.networks import before
from unseen.report.summary import HEADLINE
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
            Markup(figures.drift(analysis.means, positions, f"{dataset.anchor}-drift")),
            Markup(figures.gaps(analysis.selected_means, positions, HEADLINE, f"{dataset.anchor}-gap")),
        ]
    return {
        "columns": [title for _, title, _ in _COLUMNS],
        "rows": rows,
        "floored": floored,
        "figures": charts,
    }
