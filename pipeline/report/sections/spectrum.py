"""The spectrum of the embedding: singular values, variance over principal axes, decay without the largest
values.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator

from unseen.report.dataset import DataSet
from unseen.report.svg import MUTED, SMALL, Chart, few_ticks, inline, log_ticks, panel, plain, style_of
from unseen.report.words import decimals

Runs = Mapping[str, Sequence[Mapping[str, Any]]]  # method -> what analysis.json has of each seed
MODES = 10


def content(dataset: DataSet) -> dict[str, Any]:
    analysis, positions, anchor = dataset.analysis, dataset.positions, dataset.anchor
    charts = []
    if analysis.rows:
        charts = [
            singular_values(analysis.curves, positions, f"{anchor}-spectrum"),
            energy(analysis.curves, positions, f"{anchor}-energy"),
            modes(analysis.rows, positions, f"{anchor}-modes"),
        ]
    return {"figures": charts}


def singular_values(curves: Runs, positions: Mapping[str, int], name: str) -> Chart:
    """Normalised singular values relative to a flat spectrum, on a logarithmic axis."""
    with panel("Singular values, relative to flat", SMALL, 2.7) as (figure, axes):
        for method, runs in curves.items():
            colour, dashes, _ = style_of(positions[method])
            for run in runs:
                values = np.asarray(run["spectrum"])
                place = np.linspace(0, 100, len(values)) if len(values) > 1 else np.array([50.0])
                axes.plot(place, values * len(values), color=colour, linestyle=dashes)
        axes.axhline(1, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
        axes.set_yscale("log")
        low, high = np.log10(axes.get_ylim())
        log_ticks(axes, LogLocator(subs=(1, 2, 5) if high - low < 2.5 else (1,), numticks=9))
        axes.set_xlabel("rank, percent of the dimension")
        axes.set_ylabel("ratio to flat")
        text = f"Normalised singular values of {', '.join(curves)} in descending order, logarithmic"
        return inline(figure, name, text)


def energy(curves: Runs, positions: Mapping[str, int], name: str) -> Chart:
    """Cumulative share of the variance over principal axes, as a share of the dimension to compare
    dimensions.
    """
    with panel("Variance over principal axes", SMALL, 2.7) as (figure, axes):
        for method, runs in curves.items():
            colour, dashes, _ = style_of(positions[method])
            for run in runs:
                share = [0.0, *run["pca_energy"]]
                percents = [100 * value for value in share]
                place, label = np.linspace(0, 100, len(share)), plain(method) if run is runs[0] else None
                axes.plot(place, percents, color=colour, linestyle=dashes, label=label)
        axes.axhline(90, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
        axes.annotate("90 %", (100, 90), (0, -10), textcoords="offset points", ha="right", color=MUTED)
        axes.set_xlabel("principal axes, percent of the dimension")
        axes.set_ylabel("variance, percent")
        axes.set_ylim(0, 100)
        for line in axes.lines:
            line.set_clip_on(False)
        few_ticks(axes)
        return inline(figure, name, f"Cumulative variance over principal axes of {', '.join(curves)}")


def modes(rows: Runs, positions: Mapping[str, int], name: str) -> Chart:
    """Spectral decay over the number of excluded largest singular values: one line per run.

    Thin lines show the other direction of the divergence.
    """
    with panel("Decay without the largest values", SMALL, 2.7) as (figure, axes):
        decays = []
        for method, runs in rows.items():
            colour, dashes, _ = style_of(positions[method])
            for family, width in (("spectral_decay", 1.6), ("spectral_decay_reversed", 0.8)):
                for run in runs:
                    values = [run.get(family if m == 1 else f"{family}_at_{m}") for m in range(1, MODES + 1)]
                    points = [(dropped, value) for dropped, value in enumerate(values) if value is not None]
                    axes.plot(*zip(*points, strict=True), color=colour, linestyle=dashes, linewidth=width)
            decays.append(f"{method} {decimals(runs[0]['spectral_decay'])}")
        axes.set_xlabel("excluded largest singular values")
        axes.set_ylabel("divergence from flat")
        axes.set_ylim(bottom=0)
        few_ticks(axes, whole_x=True)
        text = "Spectral decay over the number of excluded largest singular values; with none excluded"
        return inline(figure, name, f"{text}: {', '.join(decays)}")
