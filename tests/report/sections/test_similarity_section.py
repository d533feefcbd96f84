"""Similarity of pairs: one chart per method, all on one axis."""

import re

import pytest

from pipeline.report.dataset import DataSet
from pipeline.report.figures.similarity import shared_span
from pipeline.report.sections.similarity import content


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
