"""Metrics equal the definition in pure Python and closed forms, and have the expected invariances.
test_evaluator_traps.py and test_metric_libraries.py test the traps and other libraries."""

import numpy as np
import pytest

from tests.evaluation.conftest import Engine, per_query_by, rows
from tests.oracles import retrieval as oracle
from tests.vectors import unit
from unseen.evaluation.metrics import (
    PerQuery,
    Rows,
    averages,
    class_means,
    per_query,
    quick_metrics,
    ranks_of,
    score,
)
from unseen.runtime.errors import UserError

RECALL_AT = (1, 2, 4, 8)


def evaluate(
    embeddings: np.ndarray,
    labels: np.ndarray,
    ids: np.ndarray | None = None,
    recall_at: tuple[int, ...] = RECALL_AT,
    engine: Engine = "counting",
) -> PerQuery:
    table = rows(embeddings, labels, ids)
    return per_query_by(engine, table, table, recall_at, full_ranking=engine == "counting")


@pytest.mark.parametrize("seed", range(30))
def test_equals_the_definition(seed: int, engine: Engine) -> None:
    """Up to 40 rows with ties, copies, lone classes and ids in any order."""
    generator = np.random.default_rng(seed)
    count = int(generator.integers(5, 41))
    labels = generator.integers(0, max(2, count // int(generator.integers(2, 6))), count)
    labels[0] = labels[1]
    vectors = [
        generator.standard_normal((count, 5)),
        np.sign(generator.standard_normal((count, 4))),
        generator.standard_normal((count, 6)),
    ][seed % 3]
    if seed % 2:
        vectors = vectors[generator.integers(0, count, count)]
    ids = generator.permutation(10 * count)[:count].astype(np.int64)
    metrics = averages(evaluate(unit(vectors), labels, ids, engine=engine))
    expected = oracle.metrics(unit(vectors).tolist(), labels.tolist(), ids.tolist(), RECALL_AT)
    if engine == "search":
        del expected["map"]
    assert metrics.keys() == expected.keys()
    for name, value in expected.items():
        assert abs(metrics[name] - value) < 1e-12, name


def test_every_query_equals_the_definition(engine: Engine) -> None:
    generator = np.random.default_rng(1)
    embeddings, labels = unit(generator.standard_normal((35, 3))), generator.integers(0, 9, 35)
    labels[:3] = [20, 21, 22]
    result = evaluate(embeddings, labels, engine=engine)
    for query in range(35):
        hits = [
            labels[place] == labels[query]
            for _, _, place in oracle.ranking(
                embeddings[query].tolist(), query, embeddings.tolist(), list(range(35))
            )
        ]
        assert result.relevant[query] == sum(hits)
        if sum(hits):
            assert result.recall[query].tolist() == [oracle.recall(hits, k) for k in RECALL_AT]
            assert result.r_precision[query] == pytest.approx(oracle.r_precision(hits, sum(hits)), abs=1e-12)
            assert result.ap_at_r[query] == pytest.approx(oracle.ap_at_r(hits, sum(hits)), abs=1e-12)
            place = hits.index(True) + 1
            if result.ap is None:
                place = 0 if place > max(*RECALL_AT, sum(hits)) else place
            else:
                assert result.ap[query] == pytest.approx(oracle.average_precision(hits), abs=1e-12)
            assert result.first[query] == place
        else:
            assert np.isnan(result.recall[query]).all()
            assert np.isnan([result.r_precision[query], result.ap_at_r[query]]).all()
            assert result.first[query] == 0


@pytest.mark.parametrize("seed", range(5))
def test_embeddings_that_realise_a_drawn_ranking(seed: int) -> None:
    """A query at angle 0 and a gallery at chosen angles: the metrics equal those of the drawn table of
    hits."""
    generator = np.random.default_rng(seed)
    hits = generator.random(30) < 0.3
    hits[int(generator.integers(30))] = True
    angles = np.linspace(0.02, 3.0, 30)
    gallery = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    shuffled = generator.permutation(30)
    query = Rows(np.array([99]), np.array([1]), np.array([[1, 0]], np.float32))
    result = per_query(
        query, Rows(np.arange(30), hits[shuffled].astype(np.int64), gallery[shuffled]), RECALL_AT, keep=10
    )
    listed = hits.tolist()
    assert result.recall[0].tolist() == [oracle.recall(listed, k) for k in RECALL_AT]
    assert result.r_precision[0] == pytest.approx(oracle.r_precision(listed, sum(listed)), abs=1e-12)
    assert result.ap_at_r[0] == pytest.approx(oracle.ap_at_r(listed, sum(listed)), abs=1e-12)
    assert result.neighbours[0].tolist() == np.argsort(shuffled)[:10].tolist()


def test_one_hot_classes_are_perfect() -> None:
    labels = np.repeat(np.arange(12), np.arange(2, 14))
    values = averages(evaluate(np.eye(12, dtype=np.float32)[labels], labels))
    assert set(values.values()) == {1.0}


def test_classes_of_two_have_one_number() -> None:
    labels = np.repeat(np.arange(40), 2)
    values = quick_metrics(unit(np.random.default_rng(0).standard_normal((80, 4))), labels)
    assert values["map_at_r"] == values["r_precision"] == values["recall_at_1"]
    assert 0 < values["recall_at_1"] < 1


def test_bounds_between_metrics() -> None:
    generator = np.random.default_rng(2)
    labels = generator.integers(0, 25, 300)
    result = evaluate(unit(np.eye(25)[labels] + 0.6 * generator.standard_normal((300, 25))), labels)
    assert (result.ap_at_r <= result.r_precision + 1e-15).all()
    assert (np.diff(result.recall, axis=1) >= 0).all()
    assert (result.r_precision <= (result.first > 0)).all()


def test_distractors_below_rank_r_keep_the_metrics() -> None:
    """Classes of one image are added, farther from every query than all other rows."""
    generator = np.random.default_rng(3)
    labels = np.repeat(np.arange(20), 5)
    original = np.concatenate(
        [np.eye(20)[labels] + 0.1 * generator.standard_normal((100, 20)), np.zeros((100, 1))], axis=1
    )
    original[:, 20] = 5
    distractors = np.concatenate([generator.standard_normal((50, 20)), np.full((50, 1), -5.0)], axis=1)
    expected = averages(evaluate(unit(original), labels))
    crowded = evaluate(
        unit(np.concatenate([original, distractors])), np.concatenate([labels, np.arange(100, 150)])
    )
    assert averages(crowded) == expected
    assert int((crowded.relevant == 0).sum()) == 50


@pytest.mark.parametrize("seed", range(3))
def test_class_means_weigh_classes_equally(seed: int) -> None:
    """Equal to a loop over classes. The mean over queries is their mean weighted by the scored queries."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 12, 80)
    labels[0] = 99  # a class of one image
    result = evaluate(unit(np.eye(12)[labels % 12] + 0.7 * generator.standard_normal((80, 12))), labels)
    classes, means = class_means(result)
    assert 99 not in classes
    for name, values in result.columns().items():
        expected = [
            np.mean([v for v, label in zip(values, labels, strict=True) if label == c]) for c in classes
        ]
        assert means[name] == pytest.approx(expected, abs=1e-12)
        sizes = [np.count_nonzero(labels == c) for c in classes]
        assert averages(result)[name] == pytest.approx(np.average(means[name], weights=sizes), abs=1e-12)


def test_refuses_no_queries_and_no_gallery() -> None:
    some, none = (
        rows(np.eye(3, dtype=np.float32), np.zeros(3)),
        rows(np.zeros((0, 3), np.float32), np.zeros(0)),
    )
    with pytest.raises(UserError, match="gallery is empty"):
        per_query(some, none, (1,))
    with pytest.raises(UserError, match="None of the 0 queries"):
        averages(per_query(none, some, (1,)))


def test_a_row_on_both_sides_is_not_its_own_neighbour() -> None:
    labels = np.array([0, 0, 1, 1, 1])
    all_rows = rows(unit(np.random.default_rng(0).standard_normal((5, 3))), labels)
    result = per_query(Rows(*(column[[0, 2]] for column in all_rows)), all_rows, (1, 2), keep=4)
    assert result.relevant.tolist() == [1, 2]
    assert not (result.neighbours == np.array([[0], [2]])).any()


def test_accepts_more_neighbours_than_rows() -> None:
    labels = np.array([0, 0, 1, 1])
    result = per_query(
        rows(np.eye(4, dtype=np.float32), labels),
        rows(np.eye(4, dtype=np.float32), labels),
        (1, 1000),
        keep=10,
    )
    assert result.recall[:, 1].tolist() == [1, 1, 1, 1]
    assert (result.neighbours[:, :3] >= 0).all()
    assert (result.neighbours[:, 3:] == -1).all()


def test_a_huge_class_among_small_ones() -> None:
    """Queries are searched to different depths; the metrics equal those of one depth."""
    generator = np.random.default_rng(4)
    labels = np.concatenate([np.zeros(300, np.int64), np.repeat(np.arange(1, 60), 3)])
    embeddings = unit(generator.standard_normal((len(labels), 3)))
    result = evaluate(embeddings, labels)
    similarities = (embeddings.astype(np.float64) @ embeddings.T.astype(np.float64)).astype(np.float32)
    np.fill_diagonal(similarities, -np.inf)
    # the query itself was last
    hits = labels[np.argsort(-similarities, axis=1, kind="stable")[:, :-1]] == labels[:, None]
    _, r_precision, ap_at_r, ap, first = score(ranks_of(hits), result.relevant, RECALL_AT)
    assert np.array_equal(result.r_precision, r_precision)
    assert np.array_equal(result.ap_at_r, ap_at_r)
    assert np.array_equal(result.ap, ap)
    assert np.array_equal(result.first, first)


def test_metrics_do_not_depend_on_the_order_of_rows() -> None:
    generator = np.random.default_rng(6)
    labels = generator.integers(0, 40, 400)
    embeddings = unit(np.sign(generator.standard_normal((400, 9))))
    ids, shuffled = np.arange(400), generator.permutation(400)
    metrics, reordered = (
        averages(evaluate(embeddings, labels, ids)),
        averages(evaluate(embeddings[shuffled], labels[shuffled], ids[shuffled])),
    )
    assert metrics.keys() == reordered.keys()
    assert all(abs(metrics[name] - reordered[name]) < 1e-14 for name in metrics)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["gaussian", "signs", "copies", "one point", "nearly one point", "a huge class"]
)
def test_both_engines_give_the_same_numbers(name: str) -> None:
    """Counting and neighbour lists agree to the last bit, on rows with many ties and on rows without."""
    generator = np.random.default_rng(8)
    labels = generator.integers(0, 90, 500)
    embeddings = {
        "signs": lambda: unit(np.sign(generator.standard_normal((500, 7)))),
        "copies": lambda: unit(generator.standard_normal((40, 9)))[generator.integers(0, 40, 500)],
        "one point": lambda: np.repeat(unit(generator.standard_normal((1, 9))), 500, axis=0),
        "nearly one point": lambda: unit(
            generator.standard_normal((1, 24)) + 3e-7 * generator.standard_normal((500, 24))
        ),
    }.get(name, lambda: unit(generator.standard_normal((500, 12))))()
    if name == "a huge class":
        labels[:350] = 7
    table = rows(embeddings, labels, generator.permutation(5000)[:500].astype(np.int64))
    counted, searched = (per_query_by(engine, table, table, (1, 5, 30)) for engine in ("counting", "search"))
    for field, counted_field, searched_field in zip(PerQuery._fields, counted, searched, strict=True):
        assert (
            np.array_equal(counted_field, searched_field, equal_nan=True)
            if isinstance(counted_field, np.ndarray)
            else counted_field == searched_field
        ), field
    full = per_query(table, table, (1, 5, 30), full_ranking=True)
    assert np.array_equal(full.ap_at_r, counted.ap_at_r, equal_nan=True)
    assert ((counted.first == full.first) | (counted.first == 0)).all()


def test_a_neighbour_list_cannot_give_the_whole_ranking() -> None:
    table = rows(np.eye(4, dtype=np.float32), np.zeros(4))
    with pytest.raises(ValueError, match="counted ranks"):
        per_query_by("search", table, table, (1,), full_ranking=True)


def test_score_does_not_depend_on_the_width_of_the_block() -> None:
    """Sums are in ascending rank, so that padding changes no bit."""
    generator = np.random.default_rng(9)
    relevant = generator.integers(0, 40, 60)
    ranks = np.zeros((60, 40), np.int64)
    for row, count in enumerate(relevant):
        ranks[row, :count] = np.sort(generator.choice(500, count, replace=False) + 1)
    padded = np.concatenate([ranks, np.zeros((60, 1000), np.int64)], axis=1)
    for scores, padded_scores in zip(
        score(ranks, relevant, (1, 9)), score(padded, relevant, (1, 9)), strict=True
    ):
        assert np.array_equal(scores, padded_scores, equal_nan=True)
