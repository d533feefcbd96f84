"""The right product of a rung: the rule of held-out classes, measured on the test classes."""

import re

import numpy as np
import pytest

from unseen.cli.ladder import _verdict
from unseen.data.splits import Split
from unseen.evaluation.curve import Rate
from unseen.evaluation.decision import NEAREST, RULES, WHITENED, LeftOut, choose, left_out
from unseen.evaluation.statistics.better import Comparison
from unseen.experiments.ladder import products as module
from unseen.experiments.ladder.ladder import LadderPlan, Result, Rung
from unseen.experiments.ladder.products import KINDS, Catalog, Products, products
from unseen.frozen.network import Network


def catalog(seed: int, classes: int, noise: float, first: int = 0, each: int = 6) -> Catalog:
    """Classes around centres, with large noise in four directions that all classes share."""
    random = np.random.default_rng(seed)
    labels = np.arange(classes).repeat(each)
    photos = random.standard_normal((classes, 24))[labels] + noise * random.standard_normal((len(labels), 24))
    photos[:, :4] += 4 * noise * random.standard_normal((len(labels), 4))
    vectors = (photos / np.linalg.norm(photos, axis=1, keepdims=True)).astype(np.float32)
    return vectors, labels + first


def test_held_out_classes_choose_the_rule_and_test_classes_measure_it() -> None:
    test = catalog(9, 20, 0.6)
    measured = products([catalog(0, 30, 0.6, first=50)], test)
    assert measured is not None
    vectors, labels = catalog(0, 30, 0.6)
    of_fold = choose(left_out(vectors, labels, np.arange(len(labels)), RULES))
    assert measured.rule == of_fold[0].rule
    assert measured.rule.startswith(WHITENED)
    tables = left_out(*test, np.arange(len(test[1])), KINDS)
    for kind in KINDS:
        assert measured.rules[kind].value == pytest.approx(tables[kind].right.mean())
    assert measured.right == measured.rules[WHITENED]
    assert measured.right.value > measured.rules[NEAREST].value


def test_folds_are_catalogs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Photos of another fold, which another training embedded, are not searched."""
    tables: dict[str, LeftOut] = {}
    monkeypatch.setattr(module, "choose", lambda given: tables.update(given) or choose(given))
    folds = [catalog(seed, 5, 0.3, first=10 * seed) for seed in range(4)]
    products([*folds, catalog(5, 1, 0.3, first=90)], catalog(9, 20, 0.3))
    table = tables[NEAREST]
    assert len(np.unique(table.label)) == 20, "a fold of one class has no wrong product"
    assert np.array_equal(table.answer // 10, table.label // 10)
    alone = [left_out(vectors, labels % 10, np.arange(30))[NEAREST].right.mean() for vectors, labels in folds]
    assert table.right.mean() == pytest.approx(np.mean(alone))


def test_one_class_has_no_wrong_product() -> None:
    assert products([], catalog(0, 1, 0.3)) is None
    measured = products([catalog(0, 1, 0.3)], catalog(0, 9, 0.3))
    assert measured is not None
    assert measured.rule == NEAREST


@pytest.mark.parametrize(("right", "words"), [(0.4, "net is not suited .* 40% .* 60% a wrong"), (0.5, "")])
def test_a_network_that_does_not_distinguish_the_classes_is_named(right: float, words: str) -> None:
    measured = Products(WHITENED, Rate(right, None, None), {NEAREST: Rate(0.25, None, None)})
    rung = Rung("frozen", 32, 0, 0.1, {"map_at_r": 0.1}, 1.0, products=measured)
    few = Comparison(0.1, 0.11, 0.01, None, None, 0.5, 9, 3, True, None)
    linear = rung._replace(name="linear", difference=few, validation_difference=few, outcome="open")
    result = Result([rung, linear], rung, Split(frozenset(), ()))
    answers, *others = _verdict(result, LadderPlan(Network("net"), (32,)))
    assert answers.endswith(f"by the rule `{WHITENED}`, 25% by `{NEAREST}`.")
    assert others[0].startswith("Warning: ") is bool(words)
    assert re.search(words, others[0])
    assert "not shown to pay here (open): +1.0 (3 classes are too few for an interval) MAP@R" in others[-2]
