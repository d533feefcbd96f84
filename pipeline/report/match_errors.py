"""FNMR at FMR (pipeline/evaluation/analysis/verification.py) as cells of a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from unseen.report.words import decimals, percent, span


def match_errors(points: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """One row for each operating point of a file of stage `analyze`."""
    return [
        {
            "rate": f"{100 * point['rate']:g}",
            "similarity": decimals(point["threshold"]),
            "fnmr": percent(point["fnmr"]),
            "interval": span(point["low"], point["high"]),
        }
        for point in points
    ]
