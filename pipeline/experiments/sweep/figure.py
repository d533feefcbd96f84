"""The figure of a sweep: the metric over each swept field, and the learning curve of every trial.

With several seeds, a point is a mean over them with its 95% t interval."""

from pathlib import Path

import matplotlib
import numpy as np

from unseen.config.stages import SweepSettings
from unseen.evaluation.statistics.seeds import over_seeds
from unseen.experiments.sweep.record import Trial, groups_of

matplotlib.use("svg")
import matplotlib.pyplot as plt

_CONFIDENCE = 0.95
_NAMES = {"map_at_r": "MAP@R", "recall_at_1": "Recall@1", "r_precision": "R-precision"}
_STYLE = {
    "svg.hashsalt": "unseen",
    "svg.fonttype": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw_figure(path: Path, trials: list[Trial], settings: SweepSettings, metric: str, title: str) -> None:
    """Writes `path`. Hollow points are trials that were stopped early, whose training was shorter: only
    filled ones are compared."""
    name = f"{_NAMES[metric]} on validation classes"
    validated = [trial for trial in trials if trial.best(metric) is not None]
    colour_map = plt.get_cmap("viridis")
    colours = {trial.number: colour_map(trial.number / max(len(trials) - 1, 1)) for trial in validated}
    columns = len(settings.space) + 1
    with plt.rc_context(_STYLE):
        figure, axes = plt.subplots(
            1, columns, figsize=(4.2 * columns, 3.4), squeeze=False, layout="constrained"
        )
        for axis, field in zip(axes[0], settings.space, strict=False):
            values = [trial.values[field] for trial in validated]
            numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
            labels = list(dict.fromkeys(map(str, values)))
            for group in groups_of(validated):
                value, colour = group[0].values[field], colours[group[0].number]
                x = float(value) if numeric else labels.index(str(value))
                fill = "none" if any(trial.stopped_early for trial in group) else colour
                scores = np.array([trial.best(metric) for trial in group], np.float64)
                if len(scores) > 1:
                    average = over_seeds(scores, _CONFIDENCE)
                    axis.vlines(x, average.low, average.high, color=colour)
                axis.plot(x, scores.mean(), "o", color=colour, markerfacecolor=fill)
            if settings.space[field].loguniform is not None:
                axis.set_xscale("log")
            if not numeric:
                axis.set_xticks(range(len(labels)), labels)
            axis.set_xlabel(field)
            axis.set_ylabel(name)
        curves = axes[0][-1]
        for trial in validated:
            label = ", ".join(f"{value}" for value in trial.values.values())
            points = [(row["iteration"], row[metric]) for row in trial.rows]
            curves.plot(*zip(*points, strict=True), marker=".", color=colours[trial.number], label=label)
        curves.set_xlabel("iteration")
        curves.set_ylabel(name)
        legend_title = ", ".join(settings.space) if len(validated) <= 12 else None
        curves.legend(frameon=False, fontsize="small", title=legend_title)
        figure.suptitle(title)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
