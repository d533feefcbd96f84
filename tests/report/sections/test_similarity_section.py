"""Similarity of pairs: one chart per method, all on one axis, and the errors of a threshold."""

import re
from dataclasses import replace

import pytest

from pipeline.report.dataset import DataSet
from pipeline.report.figures.similarity import shared_span
from pipeline.report.sections.similarity import content
from tests.report.page_reader import Element


@pytest.mark.slow
def test_all_methods_share_one_axis(birds: DataSet) -> None:
    charts = content(birds)["figures"]
    assert len(charts) == 3
    lower, upper = shared_span(list(birds.analysis.first_curves.values()))
    assert -1 <= lower < upper <= 1
    ticks = [
        re.findall(r">(−?\d\.\d+)</text>", chart.split('id="set-0-pairs-')[1].split("matplotlib.axis_2")[0])
        for chart in charts
    ]
    assert ticks[0] == ticks[1] == ticks[2]


def test_the_table_has_fnmr_at_each_fmr_of_each_method(birds: DataSet, page: Element) -> None:
    table = page.first("details", **{"class": "similarity"}).first("table", **{"class": "match-errors"})
    text = [row.text() for row in table.all("tr")[1:]]
    expected = [
        (method.name if index == 0 else "", point)
        for method in birds.methods
        for index, point in enumerate(birds.analysis.first_curves[method.name]["operating_points"])
    ]
    assert len(text) == len(expected) >= 2 * len(birds.methods)
    for line, (name, point) in zip(text, expected, strict=True):
        assert line.startswith(name)
        for value in (point["fnmr"], point["low"], point["high"]):
            assert f"{100 * value:.1f}" in line
        assert f"{100 * point['rate']:g}" in line


def test_methods_without_operating_points_have_no_rows(birds: DataSet) -> None:
    entries = [
        {**entry, "curves": {**entry["curves"], "operating_points": []}}
        for entry in birds.report_data.analysis
    ]
    benchmark = replace(birds, report_data=replace(birds.report_data, analysis=entries))
    assert content(benchmark)["errors"] == []
