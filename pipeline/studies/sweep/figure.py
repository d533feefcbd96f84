"""The figure of a sweep: the metric against each swept field, and the course of every trial."""

from pathlib import Path

import matplotlib

from pipeline.config import SweepSettings
from pipeline.studies.sweep.record import Trial

matplotlib.use("svg")
import matplotlib.pyplot as plt

_NAMES = {"map_at_r": "MAP@R", "recall_at_1": "Recall@1", "r_precision": "R-precision"}


def draw_figure(path: Path, trials: list[Trial], settings: SweepSettings, metric: str, title: str) -> None:
    """Writes `path`. Hollow points were stopped early: their value is of a shorter training."""
    name = f"{_NAMES[metric]} on validation classes"
    judged = [trial for trial in trials if trial.best(metric) is not None]
    with plt.rc_context(
        {
            "svg.hashsalt": "unseen",
            "svg.fonttype": "none",
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    ):
        figure, axes = plt.subplots(
            1,
            len(settings.space) + 1,
            figsize=(4.2 * (len(settings.space) + 1), 3.4),
            squeeze=False,
            layout="constrained",
        )
        colours = plt.get_cmap("viridis")
        for axis, field in zip(axes[0], settings.space, strict=False):
            values = [trial.values[field] for trial in judged]
            numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
            labels = list(dict.fromkeys(map(str, values)))
            for trial, value in zip(judged, values, strict=True):
                colour = colours(trial.number / max(len(trials) - 1, 1))
                place = float(value) if numeric else labels.index(str(value))
                axis.plot(
                    place,
                    trial.best(metric),
                    "o",
                    color=colour,
                    markerfacecolor="none" if trial.stopped_early else colour,
                )
            if settings.space[field].loguniform is not None:
                axis.set_xscale("log")
            if not numeric:
                axis.set_xticks(range(len(labels)), labels)
            axis.set_xlabel(field)
            axis.set_ylabel(name)
        for trial in judged:
            label = ", ".join(f"{value}" for value in trial.values.values())
            course = [(row["iteration"], row[metric]) for row in trial.rows]
            axes[0][-1].plot(
                *zip(*course, strict=True),
                marker=".",
                color=colours(trial.number / max(len(trials) - 1, 1)),
                label=label,
            )
        axes[0][-1].set_xlabel("iteration")
        axes[0][-1].set_ylabel(name)
        axes[0][-1].legend(
            frameon=False, fontsize="small", title=", ".join(settings.space) if len(judged) <= 12 else None
        )
        figure.suptitle(title)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
