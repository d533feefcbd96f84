"""The loss of each method during training and its weighted terms, one chart per method."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from unseen.report.dataset import DataSet
from unseen.report.report_data import TEST, VALIDATION, HistoryRow
from unseen.report.sections.gradient_noise import NOISE
from unseen.report.svg import INK, SERIES, SMALL, few_ticks, inline, marker_size, panel, plain, style_of
from unseen.training.flat_terms import is_flat, remark

_OTHER_COLUMNS = {  # of a history
    "phase", "iteration", "epoch", "lr", "loss", *NOISE, "grad_norm", *VALIDATION, *TEST,
}  # fmt: skip


def content(dataset: DataSet) -> dict[str, Any]:
    curves, flat = [], []
    for method, histories in dataset.histories.items():
        terms = [name for name in histories[0][0] if name not in _OTHER_COLUMNS]
        name = f"{dataset.anchor}-loss-{dataset.positions[method]}"
        curves.append(losses(method, histories, terms, name))
        named = [term for term in terms if len(terms) > 1 and is_flat(histories, term)]
        flat += [(method, remark(term, method)) for term in named]
    return {"curves": curves, "flat": flat}


def losses(method: str, runs: Sequence[Sequence[HistoryRow]], terms: Sequence[str], name: str) -> Markup:
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
