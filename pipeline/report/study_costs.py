"""The printed costs and ImageNet accuracy of the networks of a study, beside our costs: columns of its table
(IRT tables 1 and 8). Ours contain the head."""

from collections.abc import Sequence
from dataclasses import replace

from unseen.config.inputs import StudyInputs
from unseen.experiments.printed.model import Number, PrintedCost, papers, printed_cost
from unseen.methods.settings import Cost
from unseen.report.study_cells import IMAGENET, Cell, Column, Line, Ours
from unseen.report.study_lines import Numbers


def with_costs(
    table: Numbers, study: StudyInputs, columns: Sequence[Column], lines: Sequence[Line]
) -> tuple[tuple[Column, ...], tuple[Line, ...]]:
    """The columns and lines of a table, and behind them a column of each printed kind of cost."""
    of_table = [
        cost
        for paper in papers()
        for cost in paper.costs
        if (paper.key, f"table {cost.table}") == (study.paper, study.item)
    ]
    printed = [_printed(cost) for cost in of_table]
    added = tuple(Column(name) for name in dict.fromkeys(name for numbers in printed for name in numbers))
    if not added:
        return tuple(columns), tuple(lines)
    return (*columns, *added), tuple(
        replace(line, cells=(*line.cells, *_cells(table, line.method, of_table, added))) for line in lines
    )


def _cells(
    table: Numbers, method: str | None, of_table: Sequence[PrintedCost], columns: Sequence[Column]
) -> list[Cell]:
    if method is None:
        return [Cell(None, None)] * len(columns)
    recipe = table.recipe(method)
    cost = printed_cost(recipe["backbone"]["name"], recipe["input"]["size"])
    printed = _printed(cost) if cost is not None and cost in of_table else {}
    own = table.report_data.costs.get(table.dataset, {}).get(method)
    ours = _ours(own) if own else {}
    return [Cell(printed.get(column.metric), ours.get(column.metric)) for column in columns]


def _printed(cost: PrintedCost) -> dict[str, Number]:
    numbers = {"million_parameters": cost.parameters.removesuffix("M"), "gflops": f"{cost.gflops}"}
    numbers |= {IMAGENET: "" if cost.imagenet is None else f"{cost.imagenet}"}
    return {name: Number(text=text) for name, text in numbers.items() if text}


def _ours(cost: Cost) -> dict[str, Ours]:
    numbers = {"million_parameters": cost.parameters / 1e6, "gflops": cost.flops / 1e9}
    return {name: Ours(value, None) for name, value in numbers.items()}
