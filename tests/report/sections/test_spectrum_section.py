"""Spectrum: three charts of the singular values."""

from dataclasses import replace

import pytest

from unseen.report.dataset import DataSet
from unseen.report.sections.spectrum import content


@pytest.mark.slow
def test_there_are_three_charts_of_all_methods(birds: DataSet) -> None:
    charts = content(birds)["figures"]
    assert len(charts) == 3
    assert all(method in chart for chart in charts for method in birds.positions)


def test_without_analysis_there_are_no_charts(birds: DataSet) -> None:
    assert content(replace(birds, report_data=replace(birds.report_data, analysis=[])))["figures"] == []
