"""Parameters and operations of each method beside its accuracy."""

from typing import Any

from unseen.report.dataset import DataSet
from unseen.report.words import name_of, percent


def content(dataset: DataSet) -> dict[str, Any] | None:
    """The methods by their headline metric. None if no costs are known."""
    costs, summary = dataset.report_data.costs.get(dataset.name, {}), dataset.summary
    if not costs:
        return None
    rows = []
    for method in summary.ranked():
        value = summary.of(method, summary.headline)
        recipe = dataset.runs(method)[0].recipe["recipe"]
        rows.append(
            {
                "method": dataset.styles[method],
                "network": recipe["backbone"]["name"],
                "size": recipe["input"]["size"],
                "parameters": f"{costs[method].parameters / 1e6:.2f}",
                "flops": f"{costs[method].flops / 1e9:.2f}",
                "value": percent(value.value) if value else "–",
            }
        )
    return {"headline": name_of(summary.headline), "rows": rows}
