"""The table of pairs: difference, interval, p value and result; many pairs are collapsed."""

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

from tests.report.conftest import METHODS
from tests.report.page_reader import Element, read_page
from tests.report.test_method_pairs import SEEDS, pair, with_control
from unseen.report.comparison import Pair
from unseen.report.dataset import DataSet, styles_of
from unseen.report.page import build
from unseen.report.report_data import read_report_data
from unseen.report.sections.comparison import content, table_of


def test_a_row_has_the_difference_of_the_metrics(page: Element, project: Path) -> None:
    table = page.first("table", **{"class": "pairs"})
    cell = table.first("tr", **{"data-pair": "good poor"}).first("td", **{"data-metric": "map_at_r"})
    files = {
        method: json.loads((project / f"evaluation/birds/{method}/0/metrics.json").read_text())
        for method in METHODS
    }
    assert cell.text().startswith(f"+{100 * (files['good']['map_at_r'] - files['poor']['map_at_r']):.1f}")
    results = {cell.text() for cell in table.all("td", **{"class": "result"})}
    assert results == {"good is higher over these classes", "fair is higher over these classes"}
    assert "Each method was trained once" in page.first("section", id="set-0-results").text()


@pytest.mark.parametrize(
    ("compared", "result"),
    [
        (pair(0.01, 0.05, 0.01), "a is higher over these classes"),
        (pair(-0.05, -0.01, 0.01, SEEDS), "b is better"),
        (pair(-0.01, 0.05, 0.01, SEEDS), "open"),
        (pair(-0.002, 0.001, 0.9, SEEDS), "equal"),
        (pair(None, None, 0.01, SEEDS, classes=7), "too few classes to decide"),
    ],
)
def test_a_result_names_the_better_method(compared: Pair, result: str) -> None:
    (row,) = table_of([compared], styles_of("ab", "set-0"))["rows"]
    assert [cell["result"] for cell in row["cells"]] == [result]


def test_a_control_is_named_and_compared_with_all(birds: DataSet) -> None:
    values = content(with_control(birds, "poor"))
    assert values is not None
    assert [(row["first"].name, row["second"].name) for row in values["rows"]] == [
        ("good", "poor"),
        ("fair", "poor"),
    ]
    assert (values["tests"], values["family"]) == (4, "all methods against the control poor")
    assert values["least"] == "0.3 points of MAP@R or 0.5 points of Recall@1"


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
        assert "It is better than poor." in verdict
        assert bold == {("good", "map_at_r"), ("good", "recall_at_1")}
    else:
        assert results == ["good is higher over these classes"] * 2
        assert "Over these classes it is distinct from poor, with one training each." in verdict
        assert bold == set()
        assert "is better" not in verdict


def test_many_pairs_are_collapsed_after_those_of_the_best_method() -> None:
    names = "abcdefg"
    pairs = [pair(0.01, 0.05, 0.01, names=first + second) for first, second in combinations(names, 2)]
    table = table_of(pairs, styles_of(names, "set-0"))
    assert (len(table["rows"]), len(table["collapsed"]), table["tests"]) == (6, 15, 21)
    assert {row["first"].name for row in table["rows"]} == {"a"}
