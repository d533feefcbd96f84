"""The table of pairs: difference, interval, p value and result; many pairs are collapsed."""

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

from pipeline.evaluation.statistics.seeds import Average
from pipeline.report.dataset import styles_of
from pipeline.report.page import build
from pipeline.report.report_data import read_report_data
from pipeline.report.sections.comparison import table_of
from tests.report.conftest import METHODS
from tests.report.page_reader import Element, read_page
from tests.report.test_method_pairs import pair


def test_a_row_has_the_difference_of_the_metrics(page: Element, project: Path) -> None:
    table = page.first("table", **{"class": "pairs"})
    cell = table.first("tr", **{"data-pair": "good poor"}).first("td", **{"data-metric": "map_at_r"})
    files = {
        method: json.loads((project / f"evaluation/birds/{method}/0/metrics.json").read_text())
        for method in METHODS
    }
    assert cell.text().startswith(f"+{100 * (files['good']['map_at_r'] - files['poor']['map_at_r']):.1f}")
    results = {cell.text() for cell in table.all("td", **{"class": "result"})}
    assert results == {"not significant"}, "seven classes: the smallest adjusted p value is 0.09"
    assert "Each method was trained once" in page.first("section", id="set-0-results").text()


def test_without_significance_no_method_is_called_better(page: Element) -> None:
    text = page.first("header").text() + page.first("section", id="set-0-results").text()
    for claim in ("is better", "is significant.", "are significant.", "outperform", "state of the art"):
        assert claim not in text.replace("No difference from another method is significant.", ""), claim


@pytest.mark.parametrize(
    ("seeds", "result"),
    [
        (None, "a is better"),
        (Average(0.02, 0.01, 0.01, 0.03), "a is better, also over seeds"),
        (Average(0.02, 0.1, -0.3, 0.3), "a is better, but not over seeds"),
    ],
)
def test_a_result_names_the_better_method_and_the_seeds(seeds: Average | None, result: str) -> None:
    rows = table_of([pair(0.01, 0.05, 0.01, seeds)], styles_of("ab", "set-0"))["rows"]
    assert [cell["result"] for row in rows for cell in row["cells"]] == [result]
    rows = table_of([pair(-0.01, 0.05, 0.01, seeds)], styles_of("ab", "set-0"))["rows"]
    assert [cell["result"] for row in rows for cell in row["cells"]] == ["not significant"]


@pytest.mark.slow
def test_a_significant_difference(make_project: Callable[..., Path]) -> None:
    root = make_project(noise={"good": 0.25, "poor": 4.0})
    page = read_page(
        build(read_report_data(root, ("birds",), ("poor", "good"), (0,)), "A report", 4, 3, 24).html
    )
    row = page.first("tr", **{"data-pair": "good poor"})
    assert [cell.text() for cell in row.all("td", **{"class": "result"})] == ["good is better"] * 2
    sentence = page.first("p", **{"class": "lede"}).text()
    assert "good has the highest MAP@R" in sentence
    assert sentence.count("is significant.") == 1


def test_many_pairs_are_collapsed_after_those_of_the_best_method() -> None:
    names = "abcdefg"
    pairs = [pair(0.01, 0.05, 0.01, names=first + second) for first, second in combinations(names, 2)]
    table = table_of(pairs, styles_of(names, "set-0"))
    assert (len(table["rows"]), len(table["collapsed"]), table["tests"]) == (6, 15, 21)
    assert {row["first"].name for row in table["rows"]} == {"a"}
