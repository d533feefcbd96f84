"""The loss of a method during training, and its terms."""

from collections.abc import Sequence

from unseen.report.figures.svg import (
    INK,
    SERIES,
    SMALL,
    few_ticks,
    inline,
    marker_size,
    panel,
    plain,
    style_of,
)
from unseen.report.report_data import HistoryRow


def losses(method: str, runs: Sequence[Sequence[HistoryRow]], terms: Sequence[str], name: str) -> str:
    """The weighted terms and their sum, as means over seeds and over the steps between validations."""
    with panel(plain(method), SMALL, 2.5) as (figure, axes):
        iterations = [row["iteration"] for row in min(runs, key=len)]
        for position, term in enumerate(["loss", *terms] if len(terms) > 1 else ["loss"]):
            mean = [sum(rows[i][term] for rows in runs) / len(runs) for i in range(len(iterations))]
            _, dashes, marker = style_of(position)
            axes.plot(
                iterations,
                mean,
                color=INK if term == "loss" else SERIES[(position + 4) % len(SERIES)],
                linestyle=dashes,
                marker=marker,
                markersize=marker_size(iterations, 3.5),
                label=plain("sum" if term == "loss" else term.replace("_", " ")),
            )
        axes.set_xlabel("iteration")
        few_ticks(axes, whole_x=True)
        if len(terms) > 1:
            figure.legend(loc="outside lower center", ncols=3)  # over no curve
        text = f"Loss of {method} over the iterations: the sum and its terms {', '.join(terms)}"
        return inline(figure, name, text)
