"""Ensembles of the MLRC protocol."""

from dataclasses import replace

from tests.report.page_reader import Element
from unseen.report.dataset import DataSet
from unseen.report.sections.ensembles import content


def test_both_kinds_of_ensembles_have_a_row(page: Element) -> None:
    table = page.first("table", **{"class": "ensembles"})
    assert [[cell.text() for cell in row.children] for row in table.first("tbody").all("tr")] == [
        ["good, separated", "12", "81", "128", "50.0 ± 50.0", "37.5 ± 37.5", "25.0 ± 25.0"],
        ["good, concatenated", "12", "81", "512", "50.0 ± 50.0", "37.5 ± 37.5", "25.0 ± 25.0"],
    ]


def test_without_ensembles_there_is_no_section(birds: DataSet) -> None:
    assert content(replace(birds, report_data=replace(birds.report_data, ensembles={}))) is None
