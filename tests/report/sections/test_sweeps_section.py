"""Sweeps: all trials, the best one bold, the command that adopts its values."""

import pytest

from tests.report.page_reader import Element
from unseen.report.dataset import DataSet, GallerySize
from unseen.report.report_data import ReportData
from unseen.report.sections.sweeps import content


def test_all_trials_are_listed_and_the_best_is_bold(page: Element) -> None:
    section = page.first("section", id="set-0-sweep")
    rows = section.first("tbody").all("tr")
    assert [[cell.text() for cell in row.children if cell.tag in ("td", "th")] for row in rows] == [
        ["0", "0", "0.6", "60", "21.0", "50.0", "30.0", "21.0", "complete"],
        ["1", "0", "0.1", "30", "12.5", "50.0", "30.0", "12.5", "stopped early"],
        ["2", "0", "0.3", "60", "34.0", "50.0", "30.0", "30.0", "complete"],
        ["3", "0", "0.9", "0", "–", "–", "–", "–", "failed"],
    ]
    bold = [cell.text() for cell in section.all("b")]
    assert bold == ["0", "0.3", "60", "34.0", "50.0", "30.0", "30.0", "complete"]
    assert "dvc exp run -S 'methods.good.pooling.transport_ratio=0.3'" in section.text()


@pytest.mark.slow
def test_sweeps_belong_to_their_data_set(two_seeds_inputs: ReportData) -> None:
    for anchor, name in (("set-0", "birds"), ("set-1", "my-birds")):
        variables = content(DataSet(two_seeds_inputs, name, anchor, GallerySize(4, 3, 24)))
        assert variables is not None
        assert [sweep["method"] for sweep in variables["sweeps"]] == ["good"]
    assert content(DataSet(two_seeds_inputs, "other", "set-2", GallerySize(4, 3, 24))) is None
