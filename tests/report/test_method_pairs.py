"""The family of a data set equals better.py pair by pair; which method is better, and against a control."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.report.conftest import METHODS
from unseen.evaluation.statistics.better import Comparison, Verdict, compare, decide
from unseen.evaluation.statistics.seeds import Average
from unseen.evaluation.statistics.table import of_queries
from unseen.evaluation.tables import read_runs
from unseen.report.comparison import Pair, bounds, lead_of
from unseen.report.dataset import DataSet
from unseen.report.report_data import ReportData, read_report_data
from unseen.runtime.errors import UserError
from unseen.runtime.sealed import DIGESTS, write_digests

SEEDS = Average(0.02, 0.01, 0.01, 0.03)


def verdict(
    lower: float | None, upper: float | None, p_value: float, seeds: Average | None = None, classes: int = 20
) -> Verdict:
    difference = 0.0 if lower is None or upper is None else (lower + upper) / 2
    ends = 0.5, 0.5 + difference, difference, lower, upper
    return decide([Comparison(*ends, p_value, 100, classes, False, seeds)], [0.003], [None])[0]


def pair(
    lower: float | None,
    upper: float | None,
    p_value: float,
    seeds: Average | None = None,
    metric: str = "map_at_r",
    names: str = "ab",
    classes: int = 20,
) -> Pair:
    return Pair(names[0], names[1], metric, verdict(lower, upper, p_value, seeds, classes))


def with_control(dataset: DataSet, control: str) -> DataSet:
    return replace(dataset, report_data=replace(dataset.report_data, control=control))


@pytest.mark.parametrize("control", [None, "fair"])
def test_the_family_equals_the_rule(birds: DataSet, control: str | None) -> None:
    dataset = birds if control is None else with_control(birds, control)
    names = list(combinations(("good", "fair", "poor"), 2))
    if control is not None:
        names = [("good", "fair"), ("poor", "fair")]
    assert [(pair.first, pair.second) for pair in dataset.pairs] == names * 2, "sorted by MAP@R"
    comparisons, metrics, floors = [], ["map_at_r", "recall_at_1"], []
    for metric, column in zip(metrics, ("ap_at_r", "recall_at_1"), strict=True):
        runs = read_runs([run.query_file for run in dataset.runs()], column)
        values = dict(zip(METHODS, runs.values[:, None], strict=True))
        for first, second in names:
            comparisons += compare(of_queries([values[second], values[first]], runs.label), [(0, 1)])
            better = max((first, second), key=lambda method: float(np.mean(values[method])))
            floors.append(dataset.runs(better)[0].metrics[f"features_{metric}"])
    expected = decide(comparisons, [0.003] * len(names) + [0.005] * len(names), floors)
    for compared, (comparison, adjusted, outcome) in zip(dataset.pairs, expected, strict=True):
        assert compared.verdict.comparison[:8] == pytest.approx(comparison[:8], abs=1e-12)
        assert compared.verdict.adjusted == pytest.approx(adjusted)
        assert compared.verdict.outcome == outcome
    assert {each.outcome for each in expected} == {"distinct over these classes"}


def test_a_method_below_the_features_before_training_is_not_better(birds: DataSet) -> None:
    """The floor is that of the better method."""
    values = {name: dict(networks) for name, networks in birds.summary.values.items()}
    for method, high in (("good", True), ("fair", False)):
        floor = {metric: replace(value, value=1.0) for metric, value in values[method]["features"].items()}
        values[method]["features"] = floor if high else values[method]["features"]
    dataset = replace(birds)
    dataset.__dict__["summary"] = replace(birds.summary, values=values)
    outcomes = {(pair.first, pair.second): pair.verdict.outcome for pair in dataset.pairs}
    assert outcomes["good", "fair"] == outcomes["good", "poor"] == "below the floor"
    assert outcomes["fair", "poor"] == "distinct over these classes"


@pytest.mark.parametrize(
    ("compared", "better", "outcome"),
    [
        (pair(0.01, 0.05, 0.01), "a", "distinct over these classes"),
        (pair(-0.05, -0.01, 0.01), "b", "distinct over these classes"),
        (pair(-0.05, -0.01, 0.01, SEEDS), "b", "worse"),
        (pair(-0.01, 0.05, 0.01), None, "open"),
        (pair(0.01, 0.05, 0.06), None, "open"),
        (pair(0.01, 0.05, 0.01, classes=15), None, "too few classes to decide"),
    ],
)
def test_the_better_method_of_a_pair(compared: Pair, better: str | None, outcome: str) -> None:
    assert (compared.better, compared.verdict.outcome) == (better, outcome)


def test_a_lead_has_the_verdicts_on_one_method() -> None:
    pairs = [
        pair(0.01, 0.05, 0.01, SEEDS),
        pair(-0.01, 0.05, 0.01, SEEDS, names="ac"),
        pair(0.01, 0.05, 0.01, SEEDS, names="bc"),
    ]
    outcomes = {
        name: {other: verdict.outcome for other, verdict in (lead_of(pairs, name, "map_at_r") or {}).items()}
        for name in "abc"
    }
    assert outcomes == {
        "a": {"b": "better", "c": "open"},
        "b": {"a": "worse", "c": "better"},
        "c": {"a": "open", "b": "worse"},
    }
    lead = lead_of(pairs, "b", "map_at_r")
    assert lead is not None
    assert bounds(lead["a"].comparison) == "−5.0 to −1.0"
    assert lead_of(pairs, "a", "recall_at_1") is None


def test_fewer_than_eight_classes_have_no_interval() -> None:
    compared = pair(None, None, 0.01, classes=7)
    assert compared.verdict.outcome == "too few classes to decide"
    assert bounds(compared.verdict.comparison) == "no interval with fewer than 8 classes"


def test_seeds_are_paired(two_seeds_inputs: ReportData, birds: DataSet) -> None:
    first = replace(birds, report_data=two_seeds_inputs).pairs[0]
    good, fair = (
        [np.mean(read_runs([run.query_file], "ap_at_r").values) for run in two_seeds_inputs.of("birds", name)]
        for name in ("good", "fair")
    )
    assert (first.first, first.second) == ("good", "fair")
    seeds = first.verdict.comparison.seeds
    assert seeds is not None
    differences = np.subtract(good, fair)
    half = 12.706204736432095 * abs(differences[0] - differences[1]) / 2  # t quantile of one degree
    assert (seeds.low, seeds.high) == pytest.approx((differences.mean() - half, differences.mean() + half))
    assert math.isclose(first.verdict.comparison.difference, differences.mean())


@pytest.mark.slow
def test_refuses_methods_of_other_queries(make_project: Callable[..., Path], birds: DataSet) -> None:
    root = make_project(noise={"good": 0.25, "poor": 1.2})
    path = root / "evaluation/birds/poor/0/queries.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)
    (path.parent / DIGESTS).unlink()
    write_digests(path.parent)
    data = read_report_data(root, ("birds",), ("good", "poor"), (0,))
    with pytest.raises(UserError, match="does not contain the same queries"):
        _ = replace(birds, report_data=data).pairs
