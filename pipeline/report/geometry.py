"""Figures of the analysis: where the variance lies, what is lost between train and test classes, what training did to density and decay."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from pipeline.report.figures import SMALL, WIDE, within_percent
from pipeline.report.svg import INK, MUTED, PAPER, few_ticks, inline, panel, plain, style_of
from pipeline.report.words import name_of, percent

Curves = Mapping[str, Any]  # of one run, as in analysis.json


def energy(curves: Mapping[str, Sequence[Curves]], positions: Mapping[str, int], name: str) -> str:
    """Cumulative share of the variance over principal axes, as a share of the dimension, so that methods of different width compare."""
    with panel("Variance over principal axes", SMALL, 2.7) as (figure, axes):
        for method, runs in curves.items():
            colour, dashes, _ = style_of(positions[method])
            for run in runs:
                share = [0.0, *run["pca_energy"]]
                axes.plot(np.linspace(0, 100, len(share)), [100 * value for value in share], color=colour, linestyle=dashes)
        axes.axhline(90, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
        axes.annotate("90 %", (100, 90), (0, -10), textcoords="offset points", ha="right", color=MUTED)
        axes.set_xlabel("principal axes, percent of the dimension")
        axes.set_ylabel("variance, percent")
        axes.set_ylim(0, 100)
        for line in axes.lines:
            line.set_clip_on(False)
        few_ticks(axes)
        return inline(figure, name, f"Cumulative variance over principal axes of {', '.join(curves)}")


def spectra(curves: Mapping[str, Sequence[Curves]], positions: Mapping[str, int], name: str) -> str:
    """Normalised singular values relative to a flat spectrum, on a logarithmic axis: the steeper, the larger the spectral decay."""
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
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high - low < 2.5 else (1,), numticks=9))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("rank, percent of the dimension")
        axes.set_ylabel("ratio to flat")
        return inline(figure, name, f"Normalised singular values of {', '.join(curves)} in descending order, logarithmic")


def shared_span(curves: Sequence[Curves]) -> tuple[float, float]:
    """The similarities that occur in any of the histograms: one axis for all, so that they compare at sight."""
    edges = np.asarray(curves[0]["edges"])
    kinds = [f"{side}{kind}" for side in ("", "train_") for kind in ("positive", "negative")]
    used = np.flatnonzero(np.sum([run[kind]["share"] for run in curves for kind in kinds], axis=0) > 2e-4)
    return (float(edges[used[0]]), float(edges[used[-1] + 1])) if len(used) else (-1.0, 1.0)


def gaps(rows: Mapping[str, Mapping[str, float | None]], positions: Mapping[str, int], metric: str, name: str) -> str:
    """Train classes (hollow) to test classes (filled), one line per method."""
    have = {method: row for method, row in rows.items() if row.get(f"train_{metric}") is not None and row.get(f"test_{metric}") is not None}
    with panel(f"{name_of(metric)} on train and on test classes", WIDE, 2.8) as (figure, axes):
        said = []
        for place, (method, row) in enumerate(reversed(have.items())):
            colour = style_of(positions[method])[0]
            train, test = row[f"train_{metric}"], row[f"test_{metric}"]
            assert train is not None
            assert test is not None
            axes.plot([100 * test, 100 * train], [place, place], color=colour, linewidth=2)
            axes.plot([100 * train], [place], marker="o", markersize=7, markerfacecolor=PAPER, markeredgecolor=colour, markeredgewidth=1.8)
            axes.plot([100 * test], [place], marker="o", markersize=7, color=colour)
            said.append(f"{method} {percent(train)} to {percent(test)}")
        axes.set_yticks(range(len(have)), [plain(method) for method in reversed(have)], color=INK)
        axes.set_ylim(-0.6, len(have) - 0.4)
        axes.grid(axis="y", visible=False)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("percent")
        within_percent(axes, "x")
        return inline(figure, name, f"{name_of(metric)} in percent from train to test classes: {'; '.join(reversed(said))}")


def drift(means: Mapping[tuple[str, str], Mapping[str, float | None]], positions: Mapping[str, int], name: str) -> str:
    """Density over spectral decay: from the network before training (cross) to the selected one (dot)."""
    with panel("Density and decay, before and after training", WIDE, 2.8) as (figure, axes):
        said = []
        for method, position in positions.items():
            rows = [means.get((method, network), {}) for network in ("untrained", "selected")]
            points = [(x, y) for row in rows if (x := row.get("spectral_decay")) is not None and (y := row.get("embedding_density")) is not None]
            if len(points) < 2:
                continue
            colour, _, marker = style_of(position)
            (x0, y0), (x1, y1) = points
            axes.plot([x0, x1], [y0, y1], color=colour, linewidth=1, alpha=0.6)
            axes.plot([x0], [y0], marker="x", color=colour, linestyle="none", markersize=5, markeredgewidth=1.5)
            axes.plot([x1], [y1], marker=marker, color=colour, linestyle="none", markersize=7)
            said.append(f"{method} from decay {x0:.2f}, density {y0:.2f} to decay {x1:.2f}, density {y1:.2f}")
        axes.set_xlabel("spectral decay")
        axes.set_ylabel("density")
        axes.margins(0.08)
        few_ticks(axes)
        return inline(figure, name, f"Density and spectral decay before and after training: {'; '.join(said)}")
