"""The table of pairs: difference, interval, p value and result; many pairs are collapsed."""

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

from tests.report.conftest import METHODS
from tests.report.page_reader import Element, read_page
from tests.report.test_method_pairs import pair
from unseen.evaluation.statistics.seeds import Average
from unseen.report.dataset import styles_of
from unseen.report.page import build
from unseen.report.report_data import read_report_data
from unseen.report.sections.comparison import table_of


def test_a_row_has_the_difference_of_the_metrics(page: Element, project: Path) -> None:
    table = page.first("table", **{"class": "pairs"})
    cell = table.first("tr", **{"data-pair": "good poor"}).first("td", **{"data-metric": "map_at_r"})
    files = {
        method: json.loads((project / f"evaluation/birds/{method}/0/metrics.json").read_text())
        for method in METHODS
    }
    assert cell.text().startswith(f"+{100 * (files['good']['map_at_r'] - files['poor']['map_at_r']):.1f}")
    results = {cell.text() for cell in table.all("td", **{"class": "result"})}
    assert results == {"good is higher over classes", "fair is higher over classes"}
    assert "Each method was trained once" in page.first("section", id="set-0-results").text()


@pytest.mark.parametrize(
    ("seeds", "result", "none"),
    [
        (None, "a is higher over classes", "not distinct from zero"),
        (Average(0.02, 0.01, 0.01, 0.03), "a is better", "not significant"),
        (Average(0.02, 0.1, -0.3, 0.3), "not significant over seeds", "not significant"),
    ],
)
def test_a_result_names_the_better_method(seeds: Average | None, result: str, none: str) -> None:
    rows = table_of([pair(0.01, 0.05, 0.01, seeds)], styles_of("ab", "set-0"))["rows"]
    assert [cell["result"] for row in rows for cell in row["cells"]] == [result]
    rows = table_of([pair(-0.01, 0.05, 0.01, seeds)], styles_of("ab", "set-0"))["rows"]
    assert [cell["result"] for row in rows for cell in row["cells"]] == [none]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 3])
def test_one_rule_decides_verdict_bold_values_and_pairs(
    make_project: Callable[..., Path], seeds: int
) -> None:
    """Both runs have a difference that is distinct from zero over classes in both metrics."""
    root = make_project(noise={"good": 0.25, "poor": 4.0}, seeds=tuple(range(seeds)))
    inputs = read_report_data(root, ("birds",), ("poor", "good"), tuple(range(seeds)))
    page = read_page(build(inputs, "A report", 4, 3, 24).html)
    row = page.first("tr", **{"data-pair": "good poor"})
    results = [cell.text() for cell in row.all("td", **{"class": "result"})]
    verdict = page.first("p", **{"class": "lede"}).text()
    bold = {
        (row["data-method"], cell["data-metric"])
        for row in page.all("tr", **{"data-network": None})
        for cell in row.all("td")
        if cell.all("b")
    }
    assert "good has the highest MAP@R" in verdict
    if seeds > 1:
        assert results == ["good is better"] * 2
        assert verdict.count("is significant.") == 1
        assert bold == {("good", "map_at_r"), ("good", "recall_at_1")}
    else:
        assert results == ["good is higher over classes"] * 2
        assert "is distinct from zero over these classes, with one training each." in verdict
        assert bold == set()
        assert "significant" not in page.text()


def test_many_pairs_are_collapsed_after_those_of_the_best_method() -> None:
    names = "abcdefg"
    pairs = [pair(0.01, 0.05, 0.01, names=first + second) for first, second in combinations(names, 2)]
    table = table_of(pairs, styles_of(names, "set-0"))
    assert (len(table["rows"]), len(table["collapsed"]), table["tests"]) == (6, 15, 21)
    assert {row["first"].name for row in table["rows"]} == {"a"}
