"""Two charts of the analysis: train against test classes, and density against spectral decay."""

from collections.abc import Mapping

from unseen.report.analysis import Means
from unseen.report.figures.svg import PAPER, WIDE, few_ticks, inline, method_rows, panel, style_of
from unseen.report.words import name_of, percent


def gaps(means: Mapping[str, Means], positions: Mapping[str, int], metric: str, name: str) -> str:
    """Train classes (hollow) to test classes (filled), one line per method."""
    ends = {
        method: (train, test)
        for method, row in means.items()
        if (train := row.get(f"train_{metric}")) is not None
        and (test := row.get(f"test_{metric}")) is not None
    }
    with panel(f"{name_of(metric)} on train and on test classes", WIDE, 2.8) as (figure, axes):
        for place, (method, (train, test)) in enumerate(reversed(ends.items())):
            colour = style_of(positions[method])[0]
            axes.plot([100 * test, 100 * train], [place, place], color=colour, linewidth=2)
            axes.plot(
                [100 * train], [place], marker="o", markersize=7, markerfacecolor=PAPER,
                markeredgecolor=colour, markeredgewidth=1.8,
            )  # fmt: skip
            axes.plot([100 * test], [place], marker="o", markersize=7, color=colour)
        method_rows(axes, list(ends), len(ends) - 0.4)
        values = "; ".join(f"{m} {percent(train)} to {percent(test)}" for m, (train, test) in ends.items())
        return inline(figure, name, f"{name_of(metric)} in percent from train to test classes: {values}")


def drift(means: Mapping[tuple[str, str], Means], positions: Mapping[str, int], name: str) -> str:
    """Density over spectral decay: from the network before training (cross) to the selected one."""
    with panel("Density and decay, before and after training", WIDE, 2.8) as (figure, axes):
        changes = []
        for method, position in positions.items():
            rows = [means.get((method, network), {}) for network in ("untrained", "selected")]
            points = [
                (x, y)
                for row in rows
                if (x := row.get("spectral_decay")) is not None
                and (y := row.get("embedding_density")) is not None
            ]
            if len(points) < 2:
                continue
            colour, _, marker = style_of(position)
            (x0, y0), (x1, y1) = points
            axes.plot([x0, x1], [y0, y1], color=colour, linewidth=1, alpha=0.6)
            axes.plot(
                [x0], [y0], marker="x", color=colour, linestyle="none", markersize=5, markeredgewidth=1.5
            )
            axes.plot([x1], [y1], marker=marker, color=colour, linestyle="none", markersize=7)
            changes.append(
                f"{method} from decay {x0:.2f}, density {y0:.2f} to decay {x1:.2f}, density {y1:.2f}"
            )
        axes.set_xlabel("spectral decay")
        axes.set_ylabel("density")
        axes.margins(0.08)
        few_ticks(axes)
        return inline(
            figure, name, f"Density and spectral decay before and after training: {'; '.join(changes)}"
        )
