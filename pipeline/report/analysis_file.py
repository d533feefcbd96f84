"""analysis.csv: the measures of the analysis of all runs, a row for each run and network."""

import csv
from pathlib import Path

from unseen.evaluation.analysis.analyze import COLUMNS
from unseen.report.report_data import ReportData


def write_analysis(report_data: ReportData, path: Path) -> None:
    """Writes `path`. An undefined measure is an empty cell."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for network in report_data.analysis:
            row = network["row"]
            writer.writerow({name: "" if row[name] is None else row[name] for name in COLUMNS})
