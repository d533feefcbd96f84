"""Similarity of pairs: one chart per method, all on one axis, and the errors of a threshold."""

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.report.page_reader import Element
from unseen.report.dataset import DataSet, GallerySize
from unseen.report.report_data import ReportData
from unseen.report.sections.similarity import content, shared_span


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
    assert not content(birds)["by_ground_truth"]


def section_of(inputs: ReportData, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """The section of data set `birds` with these entries of the analysis."""
    return content(DataSet(replace(inputs, analysis=entries), "birds", "set-0", GallerySize(1, 1, 8)))


@pytest.mark.slow
def test_a_landmark_set_has_a_chart_per_benchmark(inputs: ReportData) -> None:
    entries = []
    for entry in inputs.analysis:
        curves = entry["curves"]
        pairs = {"positive": curves["negative"], "negative": curves["positive"]}
        entries.append(entry | {"curves": curves | {"benchmarks": {"oxford": {}, "paris": pairs}}})
    section = section_of(inputs, entries)
    assert section["by_ground_truth"]
    titles = [re.search(r"Cosine similarities of (\S+, \S+) on", chart)[1] for chart in section["figures"]]
    assert titles == [f"{run}, {name}" for run in inputs.methods for name in ("oxford", "paris")]
    means = [re.search(r"positive pairs \S+ on seen and (\S+)", chart)[1] for chart in section["figures"]]
    assert means[0] != means[1]


@pytest.mark.slow
def test_reduced_embeddings_have_charts_of_their_own(inputs: ReportData) -> None:
    entries = []
    for entry in inputs.analysis:
        curves = entry["curves"]
        sides = {
            f"{side}{kind}": curves["negative"]
            for side in ("", "train_")
            for kind in ("positive", "negative")
        }
        reduced = {"dim": 256, **sides, "benchmarks": {"paris": {"positive": curves["positive"]}}}
        entries.append(entry | {"curves": curves | {"benchmarks": {"paris": {}}, "reduced": reduced}})
    section = section_of(inputs, entries)
    assert section["is_reduced"]
    titles = [re.search(r"Cosine similarities of (.+?) on seen", chart)[1] for chart in section["figures"]]
    assert titles == [f"{run}, paris{end}" for run in inputs.methods for end in ("", ", reduced to 256")]
    means = [re.search(r"negative pairs \S+ on seen and (\S+)", chart)[1] for chart in section["figures"]]
    seen = [re.search(r"positive pairs (\S+) on seen", chart)[1] for chart in section["figures"]]
    assert means[0] == means[1] == seen[1] != seen[0]


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
