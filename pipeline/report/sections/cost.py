"""Parameters and operations of each method beside the printed ones and its accuracy."""

from typing import Any

from unseen.experiments.printed.model import printed_cost
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
        name, size = recipe["backbone"]["name"], recipe["input"]["size"]
        printed = printed_cost(name, size)
        rows.append(
            {
                "method": dataset.styles[method],
                "network": name,
                "size": size,
                "parameters": f"{costs[method].parameters / 1e6:.2f}",
                "flops": f"{costs[method].flops / 1e9:.2f}",
                "printed_parameters": (printed and printed.parameters) or "–",
                "printed_flops": f"{printed.gflops:.1f}" if printed else "–",
                "value": percent(value.value) if value else "–",
            }
        )
    is_printed = any(row["printed_flops"] != "–" for row in rows)
    return {"headline": name_of(summary.headline), "rows": rows, "is_printed": is_printed}
