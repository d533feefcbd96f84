"""Embeddings and data sets for which common evaluators report a wrong number: the correct value, and the
wrong calculation for comparison.

docs/metrics.md lists these cases."""

from itertools import permutations

import numpy as np
import pytest

from tests.evaluation.conftest import Engine, per_query_by, rows
from tests.oracles import retrieval as oracle
from tests.vectors import unit
from unseen.evaluation.metrics import Rows, averages, per_query, quick_metrics, ranks_of, score
from unseen.runtime.errors import UserError


def recall_at_1(queries: Rows, gallery: Rows, engine: Engine) -> float:
    return averages(per_query_by(engine, queries, gallery, (1,)))["recall_at_1"]


# All embeddings equal
# ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_collapsed_network_is_chance_query_against_gallery(engine: Engine) -> None:
    """500 queries, 1,000 gallery rows, 100 classes: 0.010. An evaluator that counts strictly better negatives
    reports 1.000."""
    point = unit(np.ones((1, 16)))
    labels, query_labels = np.arange(1000) % 100, np.arange(500) % 100
    assert (
        recall_at_1(
            rows(np.repeat(point, 500, 0), query_labels, np.arange(1000, 1500)),
            rows(np.repeat(point, 1000, 0), labels),
            engine,
        )
        == 0.01
    )
    similarity = np.zeros((500, 1000))
    best_positive = np.where(query_labels[:, None] == labels, similarity, -np.inf).max(axis=1)
    better = ((similarity > best_positive[:, None]) & (query_labels[:, None] != labels)).sum(axis=1)
    assert (better < 1).mean() == 1.0  # the result of the threshold form


@pytest.mark.slow
def test_a_collapsed_network_is_chance_over_all_orders_of_ids(engine: Engine) -> None:
    """Ties are ordered by id. The mean over all orders of the ids is the closed form (class size - 1) / (N -
    1)."""
    labels = np.array([7, 7, 7, 8, 8])
    embeddings = np.repeat(unit(np.ones((1, 3))), 5, axis=0)
    values = []
    for ids in permutations(range(5)):
        table = rows(embeddings, labels, np.array(ids, np.int64))
        values.append(recall_at_1(table, table, engine))
    assert np.mean(values) == pytest.approx(float(oracle.chance_recall_at_1(labels.tolist())), abs=1e-12)


@pytest.mark.slow
def test_a_collapsed_network_has_chance_map(engine: Engine) -> None:
    """2,000 rows, 100 classes of 20: row 0 is first for every query. MAP of a random order is about 1/100."""
    labels = np.arange(2000) % 100
    table = rows(np.repeat(unit(np.ones((1, 16))), 2000, axis=0), labels)
    # the 19 other rows of the class of row 0; the first result of row 0 is row 1
    assert recall_at_1(table, table, engine) == pytest.approx(19 / 2000, abs=1e-15)
    if engine == "counting":
        values = averages(per_query(table, table, (1,), full_ranking=True))
        assert 0.005 < values["map"] < 0.03
        assert values["map_at_r"] < 0.01


# Codes of few bits
# ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_eight_bit_codes_are_chance(engine: Engine) -> None:
    """2,000 random codes of 8 bits, 100 classes of 20: 0.010. An evaluator that drops the first neighbour as
    "the query" reports 0.1 and more."""
    generator = np.random.default_rng(0)
    codes, labels = np.sign(generator.standard_normal((2000, 8))), np.arange(2000) % 100
    products = (codes @ codes.T).astype(np.int64)
    # drops the first column, which may be another row
    dropped = np.argsort(-products, axis=1, kind="stable")[:, 1]
    assert (labels[dropped] == labels).mean() > 0.1
    np.fill_diagonal(products, -99)
    truth = (labels[products.argmax(axis=1)] == labels).mean()
    table = rows(unit(codes), labels)
    value = recall_at_1(table, table, engine)
    assert value == pytest.approx(truth, abs=1e-15)
    assert abs(value - 19 / 1999) < 0.01


# Padded sets
# ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_refuses_rows_that_a_sampler_repeated(engine: Engine) -> None:
    """2,001 classes of one image, padded to a multiple of 4 by copies of the first three. The copies would be
    6 false hits (0.30%). Repeated ids are refused; without the copies no query has a relevant row."""
    embeddings, ids = unit(np.random.default_rng(0).standard_normal((2001, 8))), np.arange(2001)
    padded = np.concatenate([ids, ids[:3]])
    similarity = (embeddings[padded].astype(np.float64) @ embeddings[padded].T.astype(np.float64)).astype(
        np.float32
    )
    second = np.argsort(-similarity, axis=1, kind="stable")[:, 1]  # first column dropped
    assert (padded[second] == padded).mean() == pytest.approx(6 / 2004, abs=6e-4)
    table = rows(embeddings[padded], padded, padded)
    with pytest.raises(UserError, match="Row id 0 occurs twice"):
        per_query_by(engine, table, table, (1,))
    with pytest.raises(UserError, match="None of the 2,001 queries"):
        averages(per_query_by(engine, rows(embeddings, ids), rows(embeddings, ids), (1,)))


# Query and gallery sets
# ----------------------------------------------------------------------------------------------------


def test_query_and_gallery_have_one_id_space(engine: Engine) -> None:
    """In-Shop's queries and gallery are both numbered from 0. An evaluator that masks equal positions hides
    the only relevant row of each query (0 instead of 1). Ids of one space separate them."""
    labels, embeddings = np.arange(30), np.eye(30, dtype=np.float32)
    masked = np.where(np.eye(30, dtype=bool), -np.inf, embeddings @ embeddings.T)
    assert (labels[masked.argmax(axis=1)] == labels).mean() == 0.0
    result = per_query_by(engine, rows(embeddings, labels), rows(embeddings, labels, np.arange(30, 60)), (1,))
    assert (result.relevant == 1).all()
    assert averages(result) == {"recall_at_1": 1.0, "r_precision": 1.0, "map_at_r": 1.0}


# Queries without relevant rows
# ----------------------------------------------------------------------------------------------------


def test_queries_without_positives_are_excluded_and_counted(engine: Engine) -> None:
    """Half of the queries have no positive. The mean over the others is 1.0 and 20 queries are counted;
    counted as misses, the mean would be 0.5."""
    labels = np.concatenate([np.repeat(np.arange(10), 2), np.arange(100, 120)])
    embeddings = unit(
        np.concatenate(
            [np.eye(10)[np.repeat(np.arange(10), 2)], np.random.default_rng(0).standard_normal((20, 10))]
        )
    )
    result = per_query_by(engine, rows(embeddings, labels), rows(embeddings, labels), (1,))
    assert int((result.relevant == 0).sum()) == 20
    assert averages(result)["recall_at_1"] == 1.0
    assert np.nan_to_num(result.recall[:, 0]).mean() == 0.5
    with pytest.raises(UserError, match=r"None of the 20 queries"):
        quick_metrics(embeddings[20:], labels[20:])


# Several definitions of "mAP" on one ranking
# ----------------------------------------------------------------------------------------------------

HITS = [True, False, True, False, False]  # three relevant rows, two of them in the list


def test_hits_1_0_1_0_0_with_three_relevant() -> None:
    """MAP@R = (1/1 + 2/3) / 3 = 0.556, R-precision 2/3."""
    recall, r_precision, ap_at_r, _, first = score(ranks_of(np.array([HITS])), np.array([3]), (1, 2, 4))
    assert ap_at_r[0] == pytest.approx((1 + 2 / 3) / 3, abs=1e-15)
    assert ap_at_r[0] == oracle.ap_at_r(HITS, 3)
    assert r_precision[0] == pytest.approx(2 / 3, abs=1e-15)
    assert recall.tolist() == [[1, 1, 1]]
    assert first.tolist() == [1]


def test_other_definitions_of_map_on_the_same_hits() -> None:
    """0.833 divided by the hits in the list (OML 4.0 map@5; torchmetrics, which receives only the list),
    0.528 by trapezoids (revisited Oxford and Paris, R = 3), 0.556 divided by R. Precision at 5 is 0.40; OML
    reports 0.667 (divided by min(5, R))."""
    hit_count = sum(HITS)
    assert oracle.average_precision(HITS) == pytest.approx((1 + 2 / 3) / hit_count, abs=1e-15)
    assert oracle.average_precision(HITS) == pytest.approx(0.8333, abs=5e-5)
    assert oracle.trapezoid_ap(HITS) * hit_count / 3 == pytest.approx(0.5278, abs=5e-5)
    assert sum(HITS) / 5 == 0.4
    assert sum(HITS) / min(5, 3) == pytest.approx(0.6667, abs=5e-5)


def test_the_complete_ranking_contains_the_third() -> None:
    """The same query with its third relevant row at rank 40: MAP = (1 + 2/3 + 3/40) / 3. MAP@R does not
    change."""
    ranks = np.array([[1, 3, 40]])
    _, _, ap_at_r, ap, _ = score(ranks, np.array([3]), (1,))
    assert ap[0] == pytest.approx((1 + 2 / 3 + 3 / 40) / 3, abs=1e-15)
    assert ap_at_r[0] == pytest.approx((1 + 2 / 3) / 3, abs=1e-15)
