"""Method against method and over seeds: the page says what comparison.py finds, and calls nothing ahead that is not."""

import json
import statistics
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from pipeline.evaluation.statistics.comparison import Comparison, compare
from pipeline.evaluation.statistics.holm import holm
from pipeline.evaluation.statistics.seeds import Average, over_seeds
from pipeline.evaluation.tables import read_runs
from pipeline.report.comparison_section import Pair, compared, comparison_section, leader
from pipeline.report.inputs import Inputs, read_inputs
from pipeline.report.outcome import Shown
from pipeline.report.page import build
from pipeline.runtime.errors import UserError
from tests.report.page_reader import Element, read_page

METHODS = ("good", "poor", "fair")
TWO = {"good": 0.25, "poor": 1.2}


def page_of(inputs: Inputs) -> Element:
    return read_page(build(inputs, "A report", queries=4, neighbours=3, thumbnail=24))


def pair(low: float, high: float, adjusted: float, seeds: Average | None = None, metric: str = "map_at_r", names: str = "ab") -> Pair:
    found = Comparison(0.5, 0.5, (low + high) / 2, low, high, adjusted, 100, 10, False)
    return Pair(names[0], names[1], metric, found, adjusted, seeds, 0.05)


@pytest.fixture(scope="module")
def page(project: Path) -> Element:
    return page_of(read_inputs(project, ("birds",), METHODS, (0,)))


@pytest.fixture(scope="module")
def seeds(make_project: Callable[..., Path]) -> Path:
    return make_project(noise=TWO, seeds=(0, 1, 2))


def test_the_table_holds_what_the_paired_comparison_finds(project: Path, page: Element) -> None:
    inputs = read_inputs(project, ("birds",), METHODS, (0,))
    pairs = compared(inputs, "birds")
    assert [(one.first, one.second) for one in pairs[:3]] == [("good", "fair"), ("good", "poor"), ("fair", "poor")], "by MAP@R, not by order"
    expected = []
    for column in ("ap_at_r", "recall_at_1"):
        runs = read_runs([run.query_file for run in inputs.of("birds")], column)
        values = dict(zip(METHODS, runs.values[:, None], strict=True))
        expected += [compare(values[b], values[a], runs.label, 480, 0.95, 0) for a, b in combinations(("good", "fair", "poor"), 2)]
    assert [one.found for one in pairs] == expected
    assert [one.adjusted for one in pairs] == pytest.approx(holm(np.array([one.p_value for one in expected])))

    table = page.first("table", **{"class": "pairs"})
    row = table.first("tr", **{"data-pair": "good poor"})
    cell = row.first("td", **{"data-metric": "map_at_r"})
    metrics = {method: json.loads((project / f"metrics/birds/{method}/0.json").read_text())["map_at_r"] for method in METHODS}
    assert cell.text().startswith(f"+{100 * (metrics['good'] - metrics['poor']):.1f}")
    assert {said.text() for said in table.all("td", **{"class": "said"})} == {"open"}, "seven classes: the smallest adjusted p value is 0.09"
    assert "With one training of each" in page.first("section", id="set-0-results").text()


def test_nothing_on_the_page_is_called_better_or_best(page: Element) -> None:
    text = page.text()
    for word in ("better", " best ", "significant", "outperform", "state of the art"):
        assert word not in text.replace("did best on validation", "").replace("only where the best interval", ""), word


def test_a_clear_difference_is_told_in_the_table_and_in_the_first_sentence(make_project: Callable[..., Path]) -> None:
    page = page_of(read_inputs(make_project(noise={"good": 0.25, "poor": 4.0}), ("birds",), ("poor", "good"), (0,)))
    assert [cell.text() for cell in page.first("tr", **{"data-pair": "good poor"}).all("td", **{"class": "said"})] == ["good ahead"] * 2
    assert "that no training has seen: good is ahead of poor, by " in page.first("p", **{"class": "lede"}).text()


@pytest.mark.parametrize(
    ("one", "ahead"),
    [
        (pair(0.01, 0.05, 0.01), "a"),
        (pair(-0.05, -0.01, 0.01), "b"),
        (pair(-0.01, 0.05, 0.01), None),
        (pair(0.01, 0.05, 0.06), None),
        (pair(0.0, 0.0, 0.0), None),
    ],
)
def test_ahead_takes_interval_and_p_value(one: Pair, ahead: str | None) -> None:
    assert one.ahead == ahead


def test_several_seeds_must_agree_before_the_page_opens_with_a_lead() -> None:
    sure, unsure = Average(0.02, 0.01, 0.01, 0.03), Average(0.02, 0.1, -0.3, 0.3)
    found = leader(
        [pair(0.01, 0.05, 0.01, sure), pair(0.01, 0.05, 0.01, unsure, names="ac"), pair(0.01, 0.05, 0.01, sure, names="bc")], "a", "map_at_r"
    )
    assert found is not None
    assert (found.ahead, found.open) == (["b"], ["c"])
    behind = leader([pair(-0.05, -0.01, 0.01, Average(-0.02, 0.01, -0.03, -0.01))], "b", "map_at_r")
    assert behind is not None
    assert behind.ahead == ["a"]
    assert leader([pair(0.01, 0.05, 0.01)], "a", "recall_at_1") is None


def test_many_pairs_are_folded_behind_those_of_the_leader() -> None:
    names = "abcdefg"
    section = comparison_section(
        [pair(0.01, 0.05, 0.01, names=a + b) for a, b in combinations(names, 2)], [Shown(name, name, i, "") for i, name in enumerate(names)]
    )
    assert (len(section["rows"]), len(section["others"]), section["tests"]) == (6, 15, 21)
    assert {row["first"].name for row in section["rows"]} == {"a"}


def test_over_seeds_mean_deviation_and_t_interval(seeds: Path) -> None:
    inputs = read_inputs(seeds, ("birds",), tuple(TWO), (0, 1, 2))
    page = page_of(inputs)
    for method in TWO:
        values = [json.loads((seeds / f"metrics/birds/{method}/{seed}.json").read_text())["recall_at_1"] for seed in (0, 1, 2)]
        average = over_seeds(np.array(values), 0.95)
        cell = page.first("tr", **{"data-seeds": method}).first("td", **{"data-metric": "recall_at_1"}).text()
        assert cell == (
            f"{100 * statistics.fmean(values):.1f} ± {100 * statistics.stdev(values):.1f}"
            f"seeds {100 * max(average.low, 0):.1f} – {100 * min(average.high, 1):.1f}{' (cut)' * (average.high > 1 or average.low < 0)}"
        )
    pairs = compared(inputs, "birds")
    differences = [
        np.subtract(
            *(np.mean(read_runs([run.query_file], "ap_at_r").values) for run in (inputs.of("birds", "good")[s], inputs.of("birds", "poor")[s]))
        )
        for s in range(3)
    ]
    assert pairs[0].seeds == over_seeds(np.array(differences), 0.95)
    assert "good ahead, seeds agree" in page.first("table", **{"class": "pairs"}).text()
    assert [row["data-seeds"] for row in page.all("tr", **{"data-seeds": None})] == list(TWO)


def test_methods_of_other_queries_are_refused(make_project: Callable[..., Path]) -> None:
    import pyarrow.parquet as pq

    root = make_project(noise=TWO)
    path = root / "evaluation/birds/poor/0/queries.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)
    with pytest.raises(UserError, match="does not contain the same queries"):
        compared(read_inputs(root, ("birds",), tuple(TWO), (0,)), "birds")
