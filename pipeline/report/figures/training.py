"""A metric on validation classes during training."""

from collections.abc import Mapping, Sequence

from unseen.report.figures.svg import WIDE, few_ticks, inline, marker_size, panel, style_of, within_percent
from unseen.report.report_data import HistoryRow
from unseen.report.words import name_of


def validation(
    histories: Mapping[str, Sequence[Sequence[HistoryRow]]],
    positions: Mapping[str, int],
    metric: str,
    name: str,
) -> str:
    """`metric` on held-out train classes over the iterations, or on test classes if its name starts with
    `test_`: one line per run; the seeds of a method look alike. Rows without it are omitted.
    """
    is_test = metric.startswith("test_")
    title, classes = name_of(metric.removeprefix("test_")), "test" if is_test else "held-out train"
    with panel(f"{title} on {'test' if is_test else 'validation'} classes", WIDE, 2.8) as (figure, axes):
        for method, runs in histories.items():
            colour, dashes, marker = style_of(positions[method])
            for rows in runs:
                validated = [row for row in rows if metric in row]
                x = [row["iteration"] for row in validated]
                y = [100 * row[metric] for row in validated]
                axes.plot(x, y, color=colour, linestyle=dashes, marker=marker, markersize=marker_size(x))
        axes.set_xlabel("iteration")
        axes.set_ylabel("percent")
        within_percent(axes, "y")
        few_ticks(axes, whole_x=True)
        methods = ", ".join(histories)
        text = f"{title} on {classes} classes over the iterations, one line per run of {methods}"
        return inline(figure, name, text)
