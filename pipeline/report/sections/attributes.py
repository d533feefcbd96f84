"""Attributes of the methods that pool by prototypes: their zero-shot transfer, and those of the first test
classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.patches import Rectangle

from unseen.report.analysis import Means
from unseen.report.dataset import DataSet
from unseen.report.names import shorten
from unseen.report.svg import INK, MUTED, WIDE, Chart, inline, method_rows, panel, plain, style_of
from unseen.report.words import percent

PROTOTYPES = 16  # columns of the attribute chart
LABEL = 24  # characters of a class name; two thirds of the width remain for the squares


def content(dataset: DataSet) -> dict[str, Any] | None:
    """None if no method has attributes."""
    analysis, positions, anchor = dataset.analysis, dataset.positions, dataset.anchor
    names = dataset.shards.class_names
    labels = dataset.labels
    charts = []
    if any(row.get("transfer_map_cosine") is not None for row in analysis.selected_means.values()):
        charts.append(transfer(analysis.means, positions, f"{anchor}-transfer"))
    for method, curves in analysis.first_curves.items():
        if "attributes" in curves:
            shares, position = curves["attributes"], positions[method]
            classes = [(labels[label], names[label]) for label in shares["labels"]]
            chart = attributes(method, position, shares, classes, f"{anchor}-attributes-{position}")
            charts.append(chart)
    return {"figures": charts} if charts else None


def attributes(
    method: str, position: int, shares: Mapping[str, Any], classes: Sequence[tuple[str, str]], name: str
) -> Chart:
    """Mean attributes of test classes: the opacity of a square is the share of the prototype (GSP fig. 5).

    The prototypes with the largest shares come first. shares: curve `attributes` of a run. classes: label and
    whole name of each of its classes.
    """
    values = np.asarray(shares["share"])
    columns = np.argsort(-values.mean(0), kind="stable")[:PROTOTYPES]
    values, colour = values[:, columns], style_of(position)[0]
    labels = [shorten(label, LABEL) for label, _ in classes]
    with panel("", WIDE, 1.1 + 0.2 * len(values)) as (figure, axes):
        title = f"{plain(shorten(method, LABEL))}: attributes of test classes"
        figure.suptitle(title, x=0.01, ha="left", fontsize=10, weight="bold")
        top = values.max() or 1.0
        for (row, column), share in np.ndenumerate(values):
            square = Rectangle(
                (column - 0.5, row - 0.5), 1, 1, facecolor=colour, alpha=float(share / top), linewidth=0
            )
            axes.add_patch(square)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(values) - 0.5, -0.5)
        axes.set_xticks(
            range(len(columns)), [str(column + 1) for column in columns], rotation=90, fontsize=8.5
        )
        axes.set_yticks(range(len(values)), [plain(label) for label in labels], color=INK)
        axes.grid(visible=False)
        axes.set_xlabel("prototype")
        largest = f"the largest share is {percent(top)} percent"
        text = f"Mean attributes of {len(values)} test classes of {method}; {largest}"
        titles = {label: whole for label, (_, whole) in zip(labels, classes, strict=True)}
        return inline(figure, name, text, titles)


def transfer(means: Mapping[tuple[str, str], Means], positions: Mapping[str, int], name: str) -> Chart:
    """MAP of predicted class embeddings of classes that the predictor was not fitted on.

    Mean and standard deviation over splits, the network before training (cross) and chance (tick).
    means: (method, network) -> numbers of the analysis; methods without attributes are excluded.
    """
    lines = [
        (
            f"{method}, {word}",
            positions[method],
            key,
            means[method, network],
            means.get((method, "untrained"), {}),
        )
        for (method, network) in means
        for key, word in (("cosine", "cosine"), ("l2", "distance"))
        if network == "selected" and means[method, network].get(f"transfer_map_{key}") is not None
    ]
    with panel("Zero-shot transfer of attributes, MAP", WIDE, 0.75 + 0.42 * len(lines)) as (figure, axes):
        texts = []
        for place, (label, position, key, row, untrained) in enumerate(reversed(lines)):
            colour = style_of(position)[0]
            value, std, chance = (row[f"transfer_map_{end}"] for end in (key, f"{key}_std", "chance"))
            assert value is not None
            assert std is not None
            assert chance is not None
            ends = [100 * max(value - std, 0.0), 100 * min(value + std, 1.0)]
            axes.plot(ends, [place, place], color=colour, linewidth=2.4, solid_capstyle="butt")
            axes.plot([100 * value], [place], marker="o", markersize=7, color=colour)
            axes.annotate(
                percent(value), (100 * value, place), (0, 6), textcoords="offset points", ha="center",
                fontsize=8.5, color=INK,
            )  # fmt: skip
            axes.plot(
                [100 * chance], [place], marker="|", linestyle="none", markersize=12, color=MUTED,
                label="chance" if place == 0 else "",
            )  # fmt: skip
            before = untrained.get(f"transfer_map_{key}")
            if before is not None:
                axes.plot(
                    [100 * before], [place], marker="x", linestyle="none", markersize=5, color=MUTED,
                    markeredgewidth=1.6, label="before training" if place == 0 else "",
                )  # fmt: skip
            texts.append(
                f"{label} {percent(value)}, before training {percent(before)}, chance {percent(chance)}"
            )
        method_rows(axes, [line[0] for line in lines], len(lines) - 0.25)
        text = f"Zero-shot transfer of attributes, MAP in percent: {'; '.join(reversed(texts))}"
        return inline(figure, name, text)
