"""The loss of each method during training and its weighted terms, one chart per method."""

from typing import Any

from markupsafe import Markup

from unseen.report.dataset import DataSet
from unseen.report.figures import losses as figures
from unseen.report.report_data import TEST, VALIDATION
from unseen.report.sections.gradient_noise import NOISE

_OTHER_COLUMNS = {  # of a history
    "phase", "iteration", "epoch", "lr", "loss", *NOISE, "grad_norm", *VALIDATION, *TEST,
}  # fmt: skip


def content(dataset: DataSet) -> dict[str, Any]:
    curves = []
    for method, histories in dataset.histories.items():
        terms = [name for name in histories[0][0] if name not in _OTHER_COLUMNS]
        name = f"{dataset.anchor}-loss-{dataset.positions[method]}"
        curves.append(Markup(figures.losses(method, histories, terms, name)))
    return {"curves": curves}
