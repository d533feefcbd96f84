"""The rule for "better": effects, intervals and p values by their formulas, and every verdict."""

from itertools import product

import numpy as np
import pytest
import scipy.stats

from tests.oracles import comparison as oracle
from unseen.evaluation.record import Record, Run
from unseen.evaluation.statistics.better import (
    DECIDABLE,
    Comparison,
    Outcome,
    Question,
    against,
    compare,
    decide,
    flips_of,
    holm,
    judge,
)
from unseen.evaluation.statistics.seeds import Average
from unseen.evaluation.statistics.table import Table, of_queries, of_records

SEEDS = Average(0.01, 0.001, 0.008, 0.012)


def table(shift: float = 0.0, seeds: int = 3, classes: int = 20, places: int = 1, rows: int = 2) -> Table:
    random = np.random.default_rng([seeds, classes, places])
    values = random.normal(0.5, 0.1, (rows, places, seeds, classes))
    values += shift * np.arange(rows)[:, None, None, None]
    return Table(values, random.integers(2, 30, (places, classes)).astype(np.float64))


def records(
    shift: float = 0.02, places: tuple[str, ...] = ("a", "b"), classes: int = 20
) -> dict[Run, Record]:
    """Row `second` is better than `first` by `shift`; `floor` has one seed. Place b lacks three classes."""
    random, result = np.random.default_rng(0), {}
    level = random.uniform(0.2, 0.6, classes)
    for row, place in product(("first", "second", "floor"), places):
        names = [f"c{number}" for number in range(classes)][3 * (place == "b") :]
        for seed in range(1 if row == "floor" else 3):
            values = level + shift * (row == "second") - 0.1 * (row == "floor")
            values = values + 0.01 * random.standard_normal(classes)
            means = dict(zip(names, values[-len(names) :].tolist(), strict=True))
            of_training = {"density": float(means[names[0]])}
            result[Run(row, place, seed)] = Record(
                settings={},
                images={name: 2 + int(name[1:]) % 5 for name in names},
                classes={"map_at_r": means, "recall_at_1": means},
                training=of_training,
                cpu_seconds=0.0,
            )
    return result


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_a_comparison_equals_its_formulas(seeds: int) -> None:
    given = table(0.02, seeds)
    (result,) = compare(given, [(0, 1)])
    assert given.images is not None
    d, images = given.values[1, 0] - given.values[0, 0], given.images[0]
    by_seed = [float(np.average(of_seed, weights=images)) for of_seed in d]
    low, high = oracle.interval_of_classes(d.mean(axis=0).tolist(), images.tolist(), by_seed, 0.95)
    if seeds > 1:
        student = scipy.stats.ttest_1samp(by_seed, 0)
        ends = student.confidence_interval()
        low, high = min(low, ends.low), max(high, ends.high)
        assert result.seeds is not None
        assert (result.seeds.low, result.seeds.high) == pytest.approx((ends.low, ends.high))
        assert result.p_value >= student.pvalue - 1e-12
    assert (result.difference, result.low, result.high) == pytest.approx((np.mean(by_seed), low, high))
    assert result.difference == pytest.approx(result.second - result.first)
    assert (result.queries, result.classes, result.exact) == (images.sum(), 20, False)


def test_a_place_adds_to_the_same_classes() -> None:
    """Two equal places have the interval of one; places of other classes have a smaller one."""
    values, images = table(0.02, seeds=1)
    (one,) = compare(Table(values, images), [(0, 1)])
    assert images is not None
    (twice,) = compare(Table(np.repeat(values, 2, axis=1), np.repeat(images, 2, axis=0)), [(0, 1)])
    assert twice[:6] == pytest.approx(one[:6])
    apart = np.zeros((2, 2, 1, 40))
    apart[:, 0, :, :20], apart[:, 1, :, 20:] = values[:, 0], values[:, 0, :, ::-1]
    own = np.zeros((2, 40))
    own[0, :20], own[1, 20:] = images[0], images[0, ::-1]
    (other,) = compare(Table(apart, own), [(0, 1)])
    assert other.classes == 20
    assert other.low is not None
    assert one.low is not None
    assert other.difference == pytest.approx(one.difference)
    assert one.low < other.low < other.difference


def test_the_p_value_is_the_larger_of_classes_and_seeds() -> None:
    """A difference of each class that no training varies, then one that trainings vary and no class."""
    d = np.random.default_rng(0).normal(0.02, 0.03, 20)
    same = np.repeat(d[None], 4, axis=0)
    common = np.repeat(np.array([0.1, -0.05, 0.02, 0.03])[:, None], 20, axis=1)
    (classes,), (seeds,) = (
        compare(Table(np.stack([0 * x, x])[:, None], np.ones((1, 20))), [(0, 1)]) for x in (same, common)
    )
    assert 0.0002 < classes.p_value < 0.05
    assert seeds.p_value == pytest.approx(scipy.stats.ttest_1samp(common[:, 0], 0).pvalue)
    assert seeds.seeds is not None
    assert (seeds.low, seeds.high) == pytest.approx((seeds.seeds.low, seeds.seeds.high))


def test_swapped_rows_and_equal_rows() -> None:
    given = table(0.02)
    better, worse, equal = compare(given, [(0, 1), (1, 0), (1, 1)])
    assert (worse.difference, worse.p_value) == (-better.difference, better.p_value)
    assert better.low is not None
    assert worse.high == pytest.approx(-better.low)
    assert (equal.difference, equal.low, equal.high, equal.p_value) == (0, 0, 0, 1)


def test_a_swapped_verdict_is_that_on_the_first_row() -> None:
    for given in (table(0.2), table(0.2, seeds=1), table(0.05, classes=7)):
        (verdict,) = decide(compare(given, [(0, 1)]), [0.003], [None])
        (other,) = decide(compare(given, [(1, 0)]), [0.003], [None])
        swapped = verdict.swapped()
        assert (swapped.adjusted, swapped.outcome) == (other.adjusted, other.outcome)
        assert swapped.comparison[:5] == pytest.approx(other.comparison[:5])
        assert swapped.comparison[5:9] == other.comparison[5:9]
        assert swapped.comparison.seeds == pytest.approx(other.comparison.seeds)
    assert decide(compare(table(0.2), [(1, 0)]), [0.003], [None])[0].outcome == "worse"


def test_all_pairs_together_equal_single_comparisons() -> None:
    """The last row equals the second."""
    values, images = table(0.02, rows=4)
    given = Table(np.concatenate([values, values[1:2]]), images)
    pairs = [(first, second) for first in range(5) for second in range(5) if first != second]
    for (first, second), comparison in zip(pairs, compare(given, pairs), strict=True):
        (alone,) = compare(Table(given.values[[first, second]], images), [(0, 1)])
        assert comparison[:8] == pytest.approx(alone[:8])
        assert comparison.seeds == pytest.approx(alone.seeds)
        if (first, second) == (1, 4):
            assert comparison.p_value == 1


def test_the_sign_flips_suffice_for_a_significant_smallest_p_value() -> None:
    for questions, confidence in ((1, 0.95), (500, 0.95), (20, 0.9999)):
        assert questions / (flips_of(questions, confidence) + 1) < (1 - confidence) / 2


def test_few_classes_have_no_interval() -> None:
    (seven,), (eight,) = (compare(table(0.1, classes=count), [(0, 1)]) for count in (7, 8))
    assert (seven.low, seven.high) == (None, None)
    assert eight.low is not None
    assert seven.exact


@pytest.mark.parametrize(
    ("changes", "adjusted", "floor", "outcome"),
    [
        ({}, 0.05, 0.4, "better"),
        ({"difference": -0.01, "low": -0.02, "high": -0.001}, 0.05, None, "worse"),
        ({"seeds": None}, 0.05, None, "distinct over these classes"),
        ({}, 0.051, None, "open"),
        ({"low": 0.0}, 0.01, None, "open"),
        ({"difference": 0.0029, "low": 0.0001, "high": 0.006}, 0.01, None, "open"),
        ({"difference": 0.003, "low": 0.0001, "high": 0.006}, 0.01, None, "better"),
        ({"difference": 0.001, "low": -0.003, "high": 0.003}, 0.8, None, "equal"),
        ({"difference": 0.001, "low": 0.0001, "high": 0.003}, 0.01, None, "equal"),
        ({"difference": 0.001, "low": -0.003, "high": 0.003, "seeds": None}, 0.8, None, "open"),
        ({"difference": 0.001, "low": -0.0031, "high": 0.003}, 0.8, None, "open"),
        ({}, 0.01, 0.51, "below the floor"),
        ({}, 0.01, 0.509, "better"),
        ({"classes": DECIDABLE - 1}, 0.01, 0.9, "too few classes to decide"),
        ({"classes": 7, "low": None, "high": None}, 0.01, None, "too few classes to decide"),
        ({"classes": 0}, 0.01, None, "better"),
        ({"classes": 0, "low": None, "high": None, "seeds": None}, 0.0, None, "open"),
    ],
)
def test_each_verdict(
    changes: dict[str, object], adjusted: float, floor: float | None, outcome: Outcome
) -> None:
    compared = Comparison(0.5, 0.51, 0.01, 0.001, 0.02, adjusted, 100, 16, False, SEEDS)
    (verdict,) = decide([compared._replace(**changes)], [0.003], [floor])
    assert verdict.outcome == outcome
    names_a_row = outcome in ("better", "worse", "distinct over these classes")
    assert verdict.sign == (np.sign(verdict.comparison.difference) if names_a_row else 0)


def test_a_family_is_adjusted_together() -> None:
    compared = [Comparison(0.5, 0.6, 0.1, 0.05, 0.2, p, 100, 40, False, SEEDS) for p in (0.02, 0.04, 0.001)]
    verdicts = decide(compared, [0.0] * 3, [None] * 3)
    assert [each.adjusted for each in verdicts] == holm(np.array([0.02, 0.04, 0.001])).tolist()
    assert [each.sign for each in verdicts] == [1, 1, 1]
    assert [each.sign for each in decide(compared[:2] * 2, [0.0] * 4, [None] * 4)] == [0] * 4


def test_judges_records_against_a_control_and_a_floor() -> None:
    (verdict,) = judge(records(), against("first", ["first", "second"], "map_at_r", "floor"))
    (expected,) = compare(of_records(records(), ("first", "second"), "map_at_r"), [(0, 1)])
    assert (verdict.comparison, verdict.outcome) == (expected, "better")
    assert expected.classes == 17
    assert expected.difference == pytest.approx(0.02, abs=0.005)
    below, at_b, density, margin = judge(
        records(),
        [
            Question("floor", "floor", floor="second"),
            Question("first", "second", "recall_at_1", places=("b",)),
            Question("first", "second", "density"),
            Question("second", "second", least=0.5),
        ],
    )
    assert below.outcome == "below the floor"
    assert at_b.comparison.queries == sum(records()[Run("first", "b", 0)].images.values())
    assert (density.comparison.classes, density.comparison.queries) == (0, 0)
    differences = [
        np.mean(
            [
                records()[Run("second", place, seed)].training["density"]
                - records()[Run("first", place, seed)].training["density"]
                for place in "ab"
            ]
        )
        for seed in range(3)
    ]
    student = scipy.stats.ttest_1samp(differences, 0)
    ends = student.confidence_interval()
    assert density.comparison.p_value == pytest.approx(student.pvalue)
    assert (density.comparison.low, density.comparison.high) == pytest.approx((ends.low, ends.high))
    assert margin.outcome == "equal"


def test_refuses_records_that_are_not_paired() -> None:
    given = records()
    del given[Run("second", "b", 2)]
    changed = records()
    run = Run("second", "a", 0)
    changed[run] = changed[run].model_copy(update={"images": changed[run].images | {"c1": 9}})
    for wrong, message in ((given, "same places and seeds"), (changed, "same images of each class")):
        with pytest.raises(ValueError, match=message):
            judge(wrong, [Question("first", "second")])
    with pytest.raises(ValueError, match="other do not have"):
        judge(records(), [Question("other", "other")])


def test_queries_are_averaged_by_class() -> None:
    """Lone queries are NaN in all runs."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), random.integers(2, 9, 20))
    methods = [random.random((runs, len(labels))) for runs in (3, 3)]
    given = of_queries(methods, labels)
    for method, means in zip(methods, given.by_seed(), strict=True):
        assert means == pytest.approx(method.mean(axis=1))
    with_lone = [np.insert(method, 0, np.nan, axis=1) for method in methods]
    again = of_queries(with_lone, np.insert(labels, 0, 99))
    assert all(np.array_equal(a, b) for a, b in zip(given, again, strict=True))
    with pytest.raises(ValueError, match="methods were not scored on the same queries"):
        of_queries([with_lone[0], np.nan_to_num(with_lone[1])], np.insert(labels, 0, 99))
    with_lone[0][0, 3] = np.nan
    with pytest.raises(ValueError, match="runs were not scored on the same queries"):
        of_queries(with_lone, np.insert(labels, 0, 99))


@pytest.mark.slow
@pytest.mark.parametrize(("of_seed", "classes"), [(0.0, 16), (1.0, 16), (0.3, 40)])
def test_a_null_effect_is_rarely_called_better(of_seed: float, classes: int) -> None:
    """docs/statistics.md has more cases."""
    random = np.random.default_rng(0)
    false = covered = 0
    for _ in range(10):
        second = random.standard_normal((60, 1, 1, classes)) + 0.5 * random.standard_normal(
            (60, 1, 3, classes)
        )
        second += of_seed * random.standard_normal((60, 1, 3, 1))
        given = Table(np.concatenate([0 * second[:1], second]), random.integers(2, 20, (1, classes)) * 1.0)
        for each in compare(given, [(0, row) for row in range(1, 61)], 400):
            assert each.low is not None
            assert each.high is not None
            covered += each.low <= 0 <= each.high
            false += decide([each], [0.0], [None])[0].sign != 0
    assert covered >= 0.93 * 600
    assert false <= 0.07 * 600
