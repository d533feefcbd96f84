"""Gradient noise during training."""

from collections.abc import Mapping, Sequence

from matplotlib.ticker import LogLocator, MaxNLocator

from unseen.report.figures.svg import WIDE, inline, log_ticks, marker_size, panel, style_of
from unseen.report.report_data import HistoryRow


def gradient_noise(
    histories: Mapping[str, Sequence[Sequence[HistoryRow]]],
    positions: Mapping[str, int],
    title: str,
    column: str,
    name: str,
) -> str:
    """Nuclear norm of a covariance over the iterations: one line per run. The axis is logarithmic without
    zeros.
    """
    with panel(title, WIDE, 2.8) as (figure, axes):
        for method, runs in histories.items():
            colour, dashes, marker = style_of(positions[method])
            for rows in runs:
                x, y = [row["iteration"] for row in rows], [row[column] for row in rows]
                axes.plot(x, y, color=colour, linestyle=dashes, marker=marker, markersize=marker_size(x))
        if all(row[column] > 0 for runs in histories.values() for rows in runs for row in rows):
            axes.set_yscale("log")
            log_ticks(axes, LogLocator(subs=(1, 2, 5), numticks=9))
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_xlabel("iteration")
        axes.set_ylabel("nuclear norm")
        return inline(figure, name, f"{title}: nuclear norm over the iterations of {', '.join(histories)}")
