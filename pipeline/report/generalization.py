"""Figures of what carries over to classes never seen: decay with the largest values left out, similarities of seen and of unseen classes, attributes
of classes and their transfer, gradient noise in training."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from pipeline.report.figures import SMALL, WIDE, within_percent
from pipeline.report.names import shorten
from pipeline.report.svg import INK, MUTED, few_ticks, inline, panel, plain, style_of
from pipeline.report.words import decimals, percent

Row = Mapping[str, Any]  # of one run, as in analysis.json
MODES = 10
PROTOTYPES = 16  # columns of the attribute chart
LABEL = 24  # characters beside it: two thirds of its width are left for the squares


def modes(rows: Mapping[str, Sequence[Row]], positions: Mapping[str, int], name: str) -> str:
    """Spectral decay over the number of largest singular values left out: one line per run, and the other direction of the divergence thin."""
    with panel("Decay without the largest values", SMALL, 2.7) as (figure, axes):
        said = []
        for method, runs in rows.items():
            colour, dashes, _ = style_of(positions[method])
            for family, width in (("spectral_decay", 1.6), ("spectral_decay_reversed", 0.8)):
                for run in runs:
                    values = [run.get(family if m == 1 else f"{family}_at_{m}") for m in range(1, MODES + 1)]
                    there = [(dropped, value) for dropped, value in enumerate(values) if value is not None]
                    axes.plot(*zip(*there, strict=True), color=colour, linestyle=dashes, linewidth=width)
            said.append(f"{method} {decimals(runs[0]['spectral_decay'])}")
        axes.set_xlabel("largest singular values left out")
        axes.set_ylabel("divergence from flat")
        axes.set_ylim(bottom=0)
        few_ticks(axes, whole_x=True)
        return inline(figure, name, f"Spectral decay over the number of largest singular values left out; none left out: {', '.join(said)}")


def seen_and_unseen(method: str, position: int, curves: Row, span: tuple[float, float], name: str) -> str:
    """Cosine similarities of pairs within a class (filled: unseen classes, dashed: seen ones) and between classes (outlined, dashed alike)."""
    edges, colour = np.asarray(curves["edges"]), style_of(position)[0]
    with panel(plain(method), SMALL, 2.4) as (figure, axes):
        for kind, ink in (("positive", colour), ("negative", INK)):
            unseen, seen = (100 * np.asarray(curves[f"{side}{kind}"]["share"]) for side in ("", "train_"))
            if kind == "positive":
                axes.stairs(unseen, edges, fill=True, color=ink, alpha=0.45, linewidth=0)
            axes.stairs(unseen, edges, color=ink, linewidth=1.4)
            axes.stairs(seen, edges, color=ink, linewidth=1.2, linestyle=(0, (3, 1.5)))
        axes.set_xlim(*span)
        top = 108 * max(max(curves[f"{side}{kind}"]["share"]) for side in ("", "train_") for kind in ("positive", "negative")) or 1
        axes.set_ylim(0, min(top, 100))
        axes.set_xlabel("cosine similarity")
        axes.set_ylabel("percent of pairs")
        few_ticks(axes, y=4)
        means = "; ".join(
            f"{kind} pairs {decimals(curves[f'train_{kind}']['mean'])} on seen and {decimals(curves[kind]['mean'])} on unseen classes"
            for kind in ("positive", "negative")
        )
        return inline(figure, name, f"Cosine similarities of {method} on seen and unseen classes, means: {means}")


def attributes(method: str, position: int, shares: Row, classes: Sequence[tuple[str, str]], name: str) -> str:
    """Mean attributes of test classes: the darker, the larger the share of the prototype (GSP fig. 5). The prototypes that hold most come first.

    shares: curve `attributes` of a run. classes: label and whole name of each of its classes.
    """
    values = np.asarray(shares["share"])
    columns = np.argsort(-values.mean(0), kind="stable")[:PROTOTYPES]
    values, colour = values[:, columns], style_of(position)[0]
    labels = [shorten(label, LABEL) for label, _ in classes]
    with panel("", WIDE, 1.1 + 0.2 * len(values)) as (figure, axes):
        figure.suptitle(f"{plain(shorten(method, LABEL))}: what test classes are made of", x=0.01, ha="left", fontsize=10, weight="bold")
        top = values.max() or 1.0
        for (row, column), share in np.ndenumerate(values):
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, alpha=float(share / top), linewidth=0))
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(values) - 0.5, -0.5)
        axes.set_xticks(range(len(columns)), [str(column) for column in columns], rotation=90, fontsize=8.5)
        axes.set_yticks(range(len(values)), [plain(label) for label in labels], color=INK)
        axes.grid(visible=False)
        axes.set_xlabel("prototype")
        said = f"Mean attributes of {len(values)} test classes of {method}; the largest share is {percent(top)} percent"
        return inline(figure, name, said, {label: whole for label, (_, whole) in zip(labels, classes, strict=True)})


def transfer(means: Mapping[tuple[str, str], Mapping[str, float | None]], positions: Mapping[str, int], name: str) -> str:
    """MAP of predicted class embeddings of classes that the predictor was not fitted on: mean and standard deviation over splits, the network
    before training (cross) and chance (tick) beside it. means: (method, network) -> numbers of the table; methods without attributes are left out."""
    lines = [
        (f"{method}, {word}", positions[method], key, means[method, network], means.get((method, "untrained"), {}))
        for (method, network) in means
        for key, word in (("cosine", "cosine"), ("l2", "distance"))
        if network == "selected" and means[method, network].get(f"transfer_map_{key}") is not None
    ]
    with panel("Zero-shot transfer of attributes, MAP", WIDE, 0.75 + 0.42 * len(lines)) as (figure, axes):
        said = []
        for place, (label, position, key, row, untrained) in enumerate(reversed(lines)):
            colour, (value, std, chance) = style_of(position)[0], (row[f"transfer_map_{end}"] for end in (key, f"{key}_std", "chance"))
            assert value is not None
            assert std is not None
            assert chance is not None
            axes.plot([100 * max(value - std, 0.0), 100 * min(value + std, 1.0)], [place, place], color=colour, linewidth=2.4, solid_capstyle="butt")
            axes.plot([100 * value], [place], marker="o", markersize=7, color=colour)
            axes.annotate(percent(value), (100 * value, place), (0, 6), textcoords="offset points", ha="center", fontsize=8.5, color=INK)
            axes.plot([100 * chance], [place], marker="|", markersize=12, color=MUTED)
            before = untrained.get(f"transfer_map_{key}")
            if before is not None:
                axes.plot([100 * before], [place], marker="x", markersize=5, color=MUTED, markeredgewidth=1.6)
            said.append(f"{label} {percent(value)}, before training {percent(before)}, chance {percent(chance)}")
        axes.set_yticks(range(len(lines)), [plain(line[0]) for line in reversed(lines)], color=INK)
        axes.set_ylim(-0.6, len(lines) - 0.25)
        axes.grid(axis="y", visible=False)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("percent")
        within_percent(axes, "x")
        return inline(figure, name, f"Zero-shot transfer of attributes, MAP in percent: {'; '.join(reversed(said))}")


def gradient_noise(histories: Mapping[str, Sequence[Sequence[Row]]], positions: Mapping[str, int], title: str, column: str, name: str) -> str:
    """Nuclear norm of a covariance over the iterations: one line per run, on a logarithmic axis."""
    with panel(title, WIDE, 2.8) as (figure, axes):
        for method, runs in histories.items():
            colour, dashes, marker = style_of(positions[method])
            for rows in runs:
                x, y = [row["iteration"] for row in rows], [row[column] for row in rows]
                axes.plot(x, y, color=colour, linestyle=dashes, marker=marker, markersize=4 if len(x) < 30 else 0)
        if all(row[column] > 0 for runs in histories.values() for rows in runs for row in rows):
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_xlabel("iteration")
        axes.set_ylabel("nuclear norm")
        return inline(figure, name, f"{title}: nuclear norm over the iterations of {', '.join(histories)}")
