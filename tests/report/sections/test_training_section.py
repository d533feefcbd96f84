"""Validation curves."""

from dataclasses import replace

from pipeline.report.dataset import DataSet
from pipeline.report.sections.training import content
from tests.report.page_reader import Element


def test_few_validation_classes_are_reported(page: Element) -> None:
    text = "The iterate is selected by MAP@R on only 2 classes held out of training."
    assert text in page.first("section", id="set-0-training").text()


def test_different_validation_classes_of_seeds_are_reported(page: Element, two_seeds_page: Element) -> None:
    note = "Each seed holds out other classes"
    assert note in two_seeds_page.first("section", id="set-0-training").text()
    assert note not in page.first("section", id="set-0-training").text()


def test_without_histories_there_are_no_charts(birds: DataSet) -> None:
    runs = [replace(run, history=[]) for run in birds.report_data.runs]
    assert content(replace(birds, report_data=replace(birds.report_data, runs=runs)))["curves"] == []
    assert len(content(birds)["curves"]) == 2
