"""Gradient noise of the methods that measure it."""

from dataclasses import replace

import pytest

from tests.oracles import gradient_noise as oracle
from tests.report.page_reader import Element
from unseen.report.dataset import DataSet
from unseen.report.sections.gradient_noise import NOISE, content, over_training
from unseen.training import gradient_noise


def test_the_table_has_means_over_training(page: Element) -> None:
    table = page.first("section", id="set-0-geometry").first("table", **{"class": "compact"})
    assert table.first("tbody").first("th").text() == "poor"
    cells = [cell.text() for cell in table.first("tbody").all("td")]
    assert cells == ["pair", "0.0408", "0.5"]  # mean of 1/10, 1/20, ... 1/60


def test_mean_noise_equals_that_of_the_training() -> None:
    assert NOISE == gradient_noise.NAMES
    rows = [
        {"iteration": 3.0, NOISE[0]: 3.0},
        {"iteration": 5.0, NOISE[0]: 5.5},
        {"iteration": 11.0, NOISE[0]: 0.25},
    ]
    assert over_training(rows, NOISE[0]) == pytest.approx(oracle.over_training(rows, NOISE[0]))


def test_without_measurements_there_is_no_section(birds: DataSet) -> None:
    other_methods = replace(birds, report_data=replace(birds.report_data, methods=("good", "fair")))
    assert content(other_methods) is None
