"""Writes docs/published.md from the tables: `python -m tools.docs.published > docs/published.md`."""

import sys
from collections.abc import Iterator
from typing import Any

from tools.docs.markdown import wrapped
from unseen.experiments.printed.model import Columns, Paper, Printed, Table, groups, papers, stated

_HEAD = """# Published numbers

The tables of the four papers, as the report compares them with our numbers. `python -m
tools.docs.published` writes this page from `pipeline/experiments/printed/*.yaml`;
`unseen.experiments.printed.published("cub", "ms")` returns the same rows.

Numbers are percent as printed, except density and decay. Column "recipe" contains the recipe of this project
that reproduces the row, and the values that it must have ([papers.md](papers.md) lists the options). Network,
dimensions and size are empty if the paper does not state them. *Italic* rows are quoted: the paper copies
them from other papers, or evaluates weights of others. A number with † is not reliable; the reason is below
the table. ? is a number that is not legible. Names are without citation marks.
"""
_METRICS = {
    "map_at_r": "MAP@R",
    "embedding_density": "density",
    "spectral_decay": "decay",
    "roxford5k_medium_map": "ROxford M",
    "roxford5k_hard_map": "ROxford H",
    "rparis6k_medium_map": "RParis M",
    "rparis6k_hard_map": "RParis H",
}
_SETTINGS = {"mlrc-separated": "separated", "mlrc-concatenated": "concatenated"}


def markdown() -> str:
    """The page."""
    return wrapped("\n".join([_HEAD, *(_paper(paper) for paper in papers())]))


def _paper(paper: Paper) -> str:
    left_out = [f"Omitted: {'; '.join(paper.left_out)}.", ""] if paper.left_out else []
    about = f"{paper.title}, {paper.authors}, {paper.venue}. Selection: {paper.selection}."
    parts = [f"## {paper.name}", "", about, "", *left_out]
    return "\n".join([*parts, *_costs(paper), *(_table(paper, table) for table in paper.tables)])


def _costs(paper: Paper) -> Iterator[str]:
    if not paper.costs:
        return
    tables = " and ".join(dict.fromkeys(cost.table for cost in paper.costs))
    yield f"### {paper.name} tables {tables}: cost of networks\n"
    yield _line(["network", "px", "parameters", "GFLOPs", "ImageNet top-1", "note"])
    yield _line(["---"] * 6)
    for cost in paper.costs:
        numbers = (cost.size, cost.parameters, cost.gflops, cost.imagenet)
        yield _line([cost.network, *map(_text, numbers), cost.note])
    yield ""


def _table(paper: Paper, table: Table) -> str:
    place = f"table {table.table}" if table.table.isdigit() else table.table
    heads = [f"{_group(group)} {_metric(name)}" for group in table.columns for name in group.metrics]
    lines = [
        f"### {paper.name} {place}: {table.what}",
        "",
        _line(["row", "recipe", "network", "dim", "px", *heads]),
        _line(["---"] * (5 + len(heads))),
    ]
    lines += [_row(table, row) for row in table.rows]
    notes = {
        f"{row.name}: {note}": None for row in table.rows for note in (row.note, *row.notes.values()) if note
    }
    lines += ["", *(f"- {note}" for note in notes)] if notes else []
    return "\n".join([*lines, ""])


def _row(table: Table, row: Printed) -> str:
    quoted = table.quoted if row.quoted is None else row.quoted
    values = ", ".join(f"{key}={_text(value) or 'null'}" for key, value in row.recipe.items())
    recipe = f"`{row.method}`" + (f" {values}" if values else "") if row.method else ""
    dim = stated("dim", row, table)
    dimensions = f"{dim} (PCA)" if row.reduced else dim
    conditions = [stated("backbone", row, table), dimensions, stated("size", row, table)]
    cells = [cell for group in groups(row.values) for cell in group]
    name = f"*{row.name}*" if quoted else row.name
    return _line([name, recipe, *map(_text, conditions), *map(_cell, cells)])


def _group(group: Columns) -> str:
    words = (group.dataset, _text(group.dim), _SETTINGS.get(group.setting), group.label)
    return " ".join(filter(None, words))


def _metric(name: str) -> str:
    return _METRICS.get(name, f"R@{name.rpartition('_')[2]}")


def _cell(cell: str) -> str:
    return "–" if cell == "-" else cell.replace("!", "†").replace("±", " ± ")


def _text(value: Any) -> str:
    """A value as YAML writes it; an empty text for a condition that the paper does not state."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


if __name__ == "__main__":
    sys.stdout.write(markdown())
