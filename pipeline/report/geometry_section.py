"""What the page says of the geometry of the embeddings of one data set: the analysis stage's table, and its curves."""

import statistics
from typing import Any

from markupsafe import Markup

from pipeline.report import generalization, geometry
from pipeline.report.generalization_section import TRANSFER, attributes_section, noise_section
from pipeline.report.inputs import Inputs
from pipeline.report.networks import before
from pipeline.report.outcome import Shown
from pipeline.report.summary import HEADLINE
from pipeline.report.words import decimals, name_of, number, percent, signed_points

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
NETWORKS = ("selected", "untrained")


def geometry_section(inputs: Inputs, dataset: str, anchor: str, shown: list[Shown]) -> dict[str, Any]:
    """Table (means over seeds) and charts."""
    entries = [entry for entry in inputs.analysis if entry["row"]["dataset"] == dataset]
    found = {
        (method.name, network): [
            e for e in entries if (e["row"]["method"], e["row"]["network"]) == (method.name, network) and e["row"]["seed"] in inputs.seeds
        ]
        for method in shown
        for network in NETWORKS
    }
    means = {key: _means([entry["row"] for entry in group]) for key, group in found.items() if group}
    rows = [
        {
            "method": method,
            "network": network,
            "label": before(inputs.of(dataset, method.name)[0]),
            "cells": [shape(means[method.name, network].get(key)) for key, _, shape in _COLUMNS],
        }
        for method in shown
        for network in NETWORKS
        if (method.name, network) in means
    ]
    positions = {method.name: method.position for method in shown}
    selected = {method.name: found[method.name, "selected"] for method in shown if found[method.name, "selected"]}
    curves = {method: [entry["curves"] for entry in group] for method, group in selected.items()}
    first = {method: group[0] for method, group in curves.items()}
    floored = sorted({entry["row"]["method"] for entry in entries if entry["row"]["floored_singular_values"]})
    note = ""
    if floored:
        note = f"Singular values of {', '.join(floored)} below the resolution of float32 were lifted to it: directions that are not used."
    charts, spectra, pairs = [], [], []
    if selected:
        span = geometry.shared_span(list(first.values()))
        charts = [
            Markup(geometry.drift(means, positions, f"{anchor}-drift")),
            Markup(geometry.gaps({method: means[method, "selected"] for method in selected}, positions, HEADLINE, f"{anchor}-gap")),
        ]
        spectra = [
            Markup(geometry.spectra(curves, positions, f"{anchor}-spectrum")),
            Markup(geometry.energy(curves, positions, f"{anchor}-energy")),
            Markup(generalization.modes({m: [e["row"] for e in group] for m, group in selected.items()}, positions, f"{anchor}-modes")),
        ]
        pairs = [
            Markup(generalization.seen_and_unseen(method, positions[method], run, span, f"{anchor}-pairs-{positions[method]}"))
            for method, run in first.items()
        ]
    return {
        "columns": [title for _, title, _ in _COLUMNS],
        "rows": rows,
        "floored": note,
        "charts": charts,
        "spectra": spectra,
        "pairs": pairs,
        "attributes": attributes_section(inputs, dataset, anchor, positions, first, means),
        "noise": noise_section(inputs, dataset, anchor, shown),
    }


def _means(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    """Of each number over seeds; None where a seed has none. A deviation over splits becomes that over splits and seeds together."""
    names = [*(key for key, _, _ in _COLUMNS), *TRANSFER]
    there = {name: [row[name] for row in rows] for name in names if all(row.get(name) is not None for row in rows)}
    means: dict[str, float | None] = {name: statistics.fmean(there[name]) if name in there else None for name in names}
    for name in (name for name in TRANSFER if name.endswith("_std") and name in there):
        within, between = statistics.fmean(value**2 for value in there[name]), statistics.pvariance(there[name.removesuffix("_std")])
        means[name] = (within + between) ** 0.5  # as many splits for each seed
    return means
