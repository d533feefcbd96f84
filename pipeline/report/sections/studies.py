"""Studies that the run covers: the printed table with our numbers, and its chart."""

from typing import Any

from unseen.experiments.printed.model import names as papers
from unseen.report import study_figures as figures
from unseen.report.dataset import DataSet
from unseen.report.sections.comparison import cell_of
from unseen.report.sections.sweeps import text_of_best
from unseen.report.study_cells import Cell, Column, Line, StudyTable, is_plain, outcome_of
from unseen.report.study_document import FILES
from unseen.report.study_table import study_table
from unseen.report.words import listed, name_of, percent, signed_number, signed_points


def content(dataset: DataSet) -> dict[str, Any] | None:
    """None without a study."""
    tables = [study_table(dataset.report_data, dataset.name, study) for study in dataset.report_data.studies]
    if not tables:
        return None
    return {
        "studies": [
            _study(table, f"{dataset.anchor}-study-{place}", dataset.seeds) | _search(dataset, table)
            for place, table in enumerate(tables)
        ]
    }


def _study(table: StudyTable, anchor: str, seeds: int) -> dict[str, Any]:
    study, charts = table.study, figures.charts(table, anchor)
    return {
        "of": table,
        "item": f"{papers()[study.paper]} {study.item}" if study.paper else "",
        "is_heat_map": len(study.axes) == 2 and any(point.printed is not None for point in table.points),
        "reference": listed(sorted({c.printed_for for c in table.columns if c.printed_for}) or [""]),
        "several_seeds": seeds > 1,
        "lines": [
            (line, list(map(_cell, line.cells, table.columns)), _verdict(table, line)) for line in table.lines
        ],
        "metric": name_of(study.metric),
        "tests": len(table.verdicts),
        "unit": "" if is_plain(study.metric) else " in points",
        "over_seeds": any(not pair.verdict.comparison.classes for pair in table.verdicts.values()),
        "gains": _gains(table),
        "doubtful": any(
            cell.printed and not cell.printed.reliable for line in table.lines for cell in line.cells
        ),
        "ranks": [(rank, f"{rank.rho:+.2f}".replace("-", "−")) for rank in table.ranks],
        "charts": charts,
        "files": [f"studies/{study.name}/{name}" for name in FILES],
        "figures": f"studies/{study.name}/{table.dataset}*.svg" if charts or study.figures else "",
    }


def _verdict(table: StudyTable, line: Line) -> dict[str, str]:
    """The comparison of a row with its control; empty without one."""
    pair = table.verdicts.get(line.method or "")
    if pair is None:
        return {}
    return cell_of(pair, signed_number if is_plain(pair.metric) else signed_points) | {
        "result": outcome_of(pair)
    }


def _gains(table: StudyTable) -> list[tuple[str, list[tuple[str, str]]]]:
    """Title, and (printed, ours) of each column, of the differences from baselines."""
    rows: dict[str, list[tuple[str, str]]] = {}
    for place, column in enumerate(table.columns):
        for gain in table.gains.get(column, ()):
            cells = rows.setdefault(gain.title, [("", "")] * len(table.columns))
            cells[place] = (gain.text(gain.printed), gain.text(gain.ours))
    return list(rows.items())


def _search(dataset: DataSet, table: StudyTable) -> dict[str, Any]:
    """The search of each row, if the run has one for every row."""
    sweeps = {sweep.method: sweep for sweep in dataset.report_data.sweeps if sweep.dataset == dataset.name}
    rows = [(line.label, sweeps[line.method]) for line in table.lines if line.method in sweeps]
    if len(rows) < len(table.study.rows):
        return {"search": []}
    return {
        "search_metric": name_of(rows[0][1].best["metric"]),
        "search": [
            {
                "label": label,
                "trials": len(sweep.trials),
                "best": text_of_best(sweep),
                "value": percent(sweep.best["value"]),
            }
            for label, sweep in rows
        ],
    }


def _cell(cell: Cell, column: Column) -> dict[str, str]:
    digits = 3 if is_plain(column.metric) else 1
    ours, difference = cell.ours, cell.difference
    printed = ""
    if cell.printed is not None:
        spread = f" ± {cell.printed.deviation}" if cell.printed.deviation else ""
        printed = f"{cell.printed.text}{'' if cell.printed.reliable else '†'}{spread}"
    text = "" if ours is None else f"{ours.value:.{digits}f}"
    spread = "" if ours is None or ours.deviation is None else f"± {ours.deviation:.{digits}f}"
    return {
        "printed": printed,
        "ours": text,
        "spread": spread,
        "difference": "" if difference is None else f"{difference:+.{digits}f}".replace("-", "−"),
    }
