"""Validation curves."""

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from tests.report.page_reader import Element
from unseen.config.inputs import StudyInputs
from unseen.report.dataset import DataSet
from unseen.report.report_data import RunResults
from unseen.report.sections import training
from unseen.report.sections.training import content

METRICS = ("recall_at_1", "map_at_r", "r_precision")


def test_few_validation_classes_are_reported(page: Element) -> None:
    text = "The iterate is selected by MAP@R on only 2 classes held out of training."
    assert text in page.first("section", id="set-0-training").text()


def test_different_validation_classes_of_seeds_are_reported(page: Element, two_seeds_page: Element) -> None:
    note = "Each seed holds out other classes"
    assert note in two_seeds_page.first("section", id="set-0-training").text()
    assert note not in page.first("section", id="set-0-training").text()


@pytest.mark.slow
def test_rows_without_a_validation_are_omitted(birds: DataSet) -> None:
    """Protocol published has no such row, refit has them in its first phase."""

    def without_metrics(rows: list[dict[str, float]]) -> list[dict[str, float]]:
        return [{name: value for name, value in row.items() if name not in METRICS} for row in rows]

    refit, *others = birds.report_data.runs
    longer = replace(refit, history=[*refit.history, *without_metrics(refit.history)])
    assert section_of(birds, [longer, *others])["curves"] == section_of(birds, [refit, *others])["curves"]
    published = [replace(run, history=without_metrics(run.history)) for run in birds.report_data.runs]
    assert section_of(birds, published) is None


def test_without_histories_there_are_no_charts(birds: DataSet) -> None:
    runs = [replace(run, history=[]) for run in birds.report_data.runs]
    assert section_of(birds, runs)["curves"] == []
    assert len(section_of(birds, birds.report_data.runs)["curves"]) == 2


def test_a_run_with_a_study_over_epochs_has_epochs_on_the_axis(
    birds: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 2.0
    monkeypatch.setattr(
        training, "steps_of_epoch", lambda data: dict.fromkeys(data.report_data.methods, steps)
    )
    (chart, _) = section_of(birds, birds.report_data.runs)["curves"]
    assert "over the iterations" in chart
    study = Mock(spec=StudyInputs, figures=("epochs",))
    in_epochs = replace(birds, report_data=replace(birds.report_data, studies=(study,)))
    section: Any = content(in_epochs)
    assert "over the epochs" in section["curves"][0]
    lines, in_steps = section["curves"][0].figure.axes[0].lines[0], chart.figure.axes[0].lines[0]
    assert lines.get_xdata() == pytest.approx([x / steps for x in in_steps.get_xdata()])


def section_of(birds: DataSet, runs: list[RunResults]) -> Any:
    return content(replace(birds, report_data=replace(birds.report_data, runs=runs)))
