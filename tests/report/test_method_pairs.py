"""The paired comparison of all methods equals comparison.py pair by pair; which differences are
significant."""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.report.conftest import METHODS
from unseen.evaluation.statistics.comparison import Comparison, compare
from unseen.evaluation.statistics.holm import holm
from unseen.evaluation.statistics.seeds import Average, over_seeds
from unseen.evaluation.tables import read_runs
from unseen.report import comparison
from unseen.report.comparison import Pair, compare_methods, lead_of
from unseen.report.report_data import ReportData, read_report_data
from unseen.runtime.errors import UserError


def pair(
    lower: float,
    upper: float,
    adjusted: float,
    seeds: Average | None = None,
    metric: str = "map_at_r",
    names: str = "ab",
) -> Pair:
    result = Comparison(0.5, 0.5, (lower + upper) / 2, lower, upper, adjusted, 100, 10, False)
    return Pair(names[0], names[1], metric, result, adjusted, seeds, 0.05)


def test_pairs_equal_the_paired_comparison(inputs: ReportData) -> None:
    pairs = compare_methods(inputs, "birds")
    names = [(pair.first, pair.second) for pair in pairs[:3]]
    assert names == [("good", "fair"), ("good", "poor"), ("fair", "poor")], "sorted by MAP@R"
    expected = []
    for column in ("ap_at_r", "recall_at_1"):
        runs = read_runs([run.query_file for run in inputs.of("birds")], column)
        values = dict(zip(METHODS, runs.values[:, None], strict=True))
        for first, second in combinations(("good", "fair", "poor"), 2):
            expected.append(compare(values[second], values[first], runs.label, 480, 0.95, 0))
    for compared, result in zip(pairs, expected, strict=True):
        assert compared.comparison == pytest.approx(result, abs=1e-12)
        assert compared.comparison.p_value == result.p_value
    p_values = np.array([result.p_value for result in expected])
    assert [pair.adjusted for pair in pairs] == pytest.approx(holm(p_values))


def test_many_pairs_need_more_sign_flips_but_no_more_resamples(
    inputs: ReportData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "MAX_RESAMPLES", 250)
    runs = read_runs([run.query_file for run in inputs.of("birds")], "ap_at_r")
    values = dict(zip(METHODS, runs.values[:, None], strict=True))
    pair = compare_methods(inputs, "birds")[0]
    few_draws, many_draws = (
        compare(values["fair"], values["good"], runs.label, draws, 0.95, 0) for draws in (250, 480)
    )
    pair_comparison = pair.comparison
    assert (pair_comparison.low, pair_comparison.high) == pytest.approx(
        (few_draws.low, few_draws.high), abs=1e-12
    )
    assert pair_comparison.p_value == many_draws.p_value
    assert (few_draws.low, few_draws.high) != (many_draws.low, many_draws.high)


@pytest.mark.parametrize(
    ("compared", "better"),
    [
        (pair(0.01, 0.05, 0.01), "a"),
        (pair(-0.05, -0.01, 0.01), "b"),
        (pair(-0.01, 0.05, 0.01), None),
        (pair(0.01, 0.05, 0.06), None),
        (pair(0.0, 0.0, 0.0), None),
    ],
)
def test_the_better_method_needs_interval_and_p_value(compared: Pair, better: str | None) -> None:
    assert compared.better == better
    assert not compared.is_significant, "of one training each"


def test_several_seeds_must_agree() -> None:
    significant = Average(0.02, 0.01, 0.01, 0.03)
    unsure = Average(0.02, 0.1, -0.3, 0.3)
    pairs = [
        pair(0.01, 0.05, 0.01, significant),
        pair(0.01, 0.05, 0.01, unsure, names="ac"),
        pair(0.01, 0.05, 0.01, significant, names="bc"),
    ]
    lead = lead_of(pairs, "a", "map_at_r")
    assert lead is not None
    assert (lead.better_than, lead.not_better_than) == (["b"], ["c"])
    reversed_seeds = Average(-0.02, 0.01, -0.03, -0.01)
    second = lead_of([pair(-0.05, -0.01, 0.01, reversed_seeds)], "b", "map_at_r")
    assert second is not None
    assert second.better_than == ["a"]
    assert second.margin == pytest.approx((0.03, 0.01, 0.05))
    assert lead_of([pair(0.01, 0.05, 0.01)], "a", "recall_at_1") is None


def test_differences_of_seeds_have_their_own_interval(two_seeds_inputs: ReportData) -> None:
    pairs = compare_methods(two_seeds_inputs, "birds")
    good_values, fair = (
        [
            np.mean(read_runs([run.query_file], "ap_at_r").values)
            for run in two_seeds_inputs.of("birds", method)
        ]
        for method in ("good", "fair")
    )
    assert (pairs[0].first, pairs[0].second) == ("good", "fair")
    assert pairs[0].seeds == over_seeds(np.subtract(good_values, fair), 0.95)


@pytest.mark.slow
def test_refuses_methods_of_other_queries(make_project: Callable[..., Path]) -> None:
    root = make_project(noise={"good": 0.25, "poor": 1.2})
    path = root / "evaluation/birds/poor/0/queries.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)
    with pytest.raises(UserError, match="does not contain the same queries"):
        compare_methods(read_report_data(root, ("birds",), ("good", "poor"), (0,)), "birds")
