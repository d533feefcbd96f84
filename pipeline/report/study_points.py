"""The points in the chart of a study."""

from collections.abc import Sequence
from typing import Any

from unseen.config.inputs import StudyInputs
from unseen.config.place import at
from unseen.experiments.catalogue import printed_key
from unseen.experiments.printed import Row
from unseen.report.recipes import text
from unseen.report.study_cells import Column, Point
from unseen.report.study_lines import kind_of
from unseen.report.study_numbers import Numbers


def points_of(table: Numbers, study: StudyInputs, printed: Sequence[Row]) -> tuple[Point, ...]:
    """The points of the chart: the rows that have a number for every axis."""
    if not study.axes:
        return ()
    hidden = {*study.axes, *study.tied}
    keys = [
        {field: value for field, value in row.recipe.items() if field not in hidden} for row in study.rows
    ]
    varied = [
        field
        for field in dict.fromkeys(field for key in keys for field in key)
        if len({text(key.get(field, "")) for key in keys}) > 1
    ]
    several_methods = len({row.like for row in study.rows}) > 1
    numbers = {
        printed_key(row.method, row.recipe): row.metrics[study.metric].value
        for row in reversed(printed)
        if study.metric in row.metrics and row.metrics[study.metric].reliable
    }
    kind = next((kind_of(row) for row in printed if study.metric in row.metrics), "selected")
    points = []
    for row in study.rows:
        recipe = table.recipe(row.method)
        place = [at(recipe, field) for field in study.axes]
        ours = table.of(row.method, Column(study.metric, kind)) or table.of(row.method, Column(study.metric))
        if ours is None or not all(_is_number(value) for value in place):
            continue
        parts = [row.like] if several_methods else []
        parts += [_series_part(field, at(recipe, field)) for field in varied]
        series = ", ".join(parts) or row.like
        printed_value = numbers.get(row.printed) if row.printed is not None else None
        points.append(Point(series, tuple(map(float, place)), ours, printed_value))
    return tuple(points)


def _series_part(field: str, value: Any) -> str:
    """`deit_small_patch16_224` for backbone.name, `dim 64` for dim."""
    return text(value) if field.endswith(".name") else f"{field.rpartition('.')[2]} {text(value)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
