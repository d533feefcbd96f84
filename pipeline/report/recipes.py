"""Settings of a resolved recipe as text, and what a variant changes in the method that it is like."""

from pathlib import PurePath
from typing import Any

from unseen.config.layers import flat
from unseen.report.report_data import ReportData
from unseen.report.words import number


def text(value: Any) -> str:
    """A setting in the form of YAML. A path outside the project is shown as the name of its file: a report is
    shared, and the folders of a machine contain names of users."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(map(text, value)) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and abs(value) >= 10_000:
        return number(value)
    if isinstance(value, str) and value.startswith(("/", "~")):
        return f".../{PurePath(value).name}"
    return "none" if value == {} else str(value)


def changes_of(report_data: ReportData, dataset: str, method: str) -> list[tuple[str, str, str]] | None:
    """(key, value, value of the other method) of the settings in which a variant differs from the method it
    is like.

    Empty for a published method; None if the other method is not in the report.
    """
    like = report_data.published_name(method)
    if like == method:
        return []
    if like not in report_data.methods:
        return None
    mine, theirs = (
        {key: text(value) for key, value in flat(report_data.of(dataset, name)[0].recipe["recipe"]).items()}
        for name in (method, like)
    )
    return [
        (key, mine.get(key, "not set"), theirs.get(key, "not set"))
        for key in dict.fromkeys((*mine, *theirs))
        if mine.get(key) != theirs.get(key)
    ]
