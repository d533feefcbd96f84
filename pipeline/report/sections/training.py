"""Metrics on validation classes during training, all methods in one chart; on test classes where
training.watch_test is set."""

from collections.abc import Mapping, Sequence
from typing import Any

from unseen.report.dataset import DataSet
from unseen.report.networks import few_validation_classes, gallery_sizes, seeds_differ
from unseen.report.report_data import HistoryRow
from unseen.report.summary import HEADLINE
from unseen.report.svg import (
    WIDE,
    Chart,
    few_ticks,
    inline,
    marker_size,
    panel,
    plain,
    style_of,
    within_percent,
)
from unseen.report.words import name_of


def content(dataset: DataSet) -> dict[str, Any] | None:
    """None if no method was validated or watched."""
    curves, test_curves = _charts(dataset, ""), _charts(dataset, "test_")
    if dataset.histories and not curves and not test_curves:
        return None
    return {
        "curves": curves,
        "test_curves": test_curves,
        "sizes": gallery_sizes(dataset.report_data, dataset.name),
        "few": few_validation_classes(dataset.report_data, dataset.name),
        "seeds_differ": seeds_differ(dataset.report_data, dataset.name),
    }


def _charts(dataset: DataSet, prefix: str) -> list[Chart]:
    """A chart of each metric, of the methods whose histories contain `prefix` and its name."""
    histories = {
        method: runs
        for method, runs in dataset.histories.items()
        if any(prefix + HEADLINE in row for rows in runs for row in rows)
    }
    in_epochs = any("epochs" in study.figures for study in dataset.report_data.studies)
    steps = steps_of_epoch(dataset) if in_epochs else None
    return [
        validation(histories, dataset.positions, name, f"{dataset.anchor}-validation-{name}", steps)
        for name in (prefix + HEADLINE, f"{prefix}recall_at_1")
        if histories
    ]


def validation(
    histories: Mapping[str, Sequence[Sequence[HistoryRow]]],
    positions: Mapping[str, int],
    metric: str,
    name: str,
    epoch: Mapping[str, float] | None = None,
) -> Chart:
    """`metric` on held-out train classes over the iterations, or on test classes if its name starts with
    `test_`: one line per run; the seeds of a method look alike. Rows without it are omitted. epoch: its
    steps, of each method, for an axis of epochs.
    """
    is_test, unit = metric.startswith("test_"), "epoch" if epoch else "iteration"
    title, classes = name_of(metric.removeprefix("test_")), "test" if is_test else "held-out train"
    with panel(f"{title} on {'test' if is_test else 'validation'} classes", WIDE, 2.8) as (figure, axes):
        for method, runs in histories.items():
            colour, dashes, marker = style_of(positions[method])
            for rows in runs:
                validated = [row for row in rows if metric in row]
                x = [row["iteration"] / (epoch or {}).get(method, 1) for row in validated]
                y = [100 * row[metric] for row in validated]
                label = plain(method) if rows is runs[0] else None
                size = marker_size(x)
                axes.plot(x, y, color=colour, linestyle=dashes, marker=marker, markersize=size, label=label)
        axes.set_xlabel(unit)
        axes.set_ylabel("percent")
        within_percent(axes, "y")
        few_ticks(axes, whole_x=True)
        methods = ", ".join(histories)
        text = f"{title} on {classes} classes over the {unit}s, one line per run of {methods}"
        return inline(figure, name, text)


def steps_of_epoch(dataset: DataSet) -> dict[str, float]:
    """Training images / images of a batch, of each method."""
    images = dataset.shards.manifest["counts"]["train"]["images"]
    batches = {run.method: run.recipe["recipe"]["batch"] for run in dataset.runs()}
    return {m: images / (batch["classes"] * batch["images_per_class"]) for m, batch in batches.items()}
