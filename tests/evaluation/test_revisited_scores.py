"""Revisited Oxford and Paris: the trapezoid, junk, levels, queries without relevant images."""

import numpy as np
import pytest

from tests.oracles import revisited as oracle
from unseen.evaluation.index.exact import exact_search
from unseen.evaluation.revisited import (
    LEVELS,
    Truth,
    averages,
    precision,
    relevant_ranks,
    revisited,
    trapezoidal_ap,
)
from unseen.runtime.errors import UserError

NOTHING = np.array([], np.int64)


def truths(queries: int, gallery: np.ndarray, seed: int) -> list[Truth]:
    generator = np.random.default_rng(seed)
    chosen = []
    for _ in range(queries):
        shuffled = generator.permutation(gallery)
        easy, hard, junk = generator.integers(0, 6, size=3)
        chosen.append(
            Truth(shuffled[:easy], shuffled[easy : easy + hard], shuffled[easy + hard : easy + hard + junk])
        )
    return chosen


def test_the_trapezoid_of_ranks_0_2_5() -> None:
    assert trapezoidal_ap(np.array([0, 2, 5])) == pytest.approx(0.6778, abs=5e-5)
    assert trapezoidal_ap(np.array([0, 2, 5])) == pytest.approx(
        (1 + (1 / 2 + 2 / 3) / 2 + (2 / 5 + 3 / 6) / 2) / 3, abs=1e-15
    )
    assert trapezoidal_ap(np.arange(7)) == 1.0


def test_precision_divides_by_at_most_the_rank_of_the_last_relevant_image() -> None:
    ranks = np.array([0, 2, 5])
    assert [precision(ranks, k) for k in (1, 2, 3, 5, 6, 10)] == [1, 1 / 2, 2 / 3, 2 / 5, 3 / 6, 3 / 6]
    assert precision(np.array([0, 1]), 10) == 1.0


def test_equals_the_definition() -> None:
    """40 queries, some without easy, hard or any relevant image, compared with the walk down the list."""
    gallery = np.random.default_rng(0).permutation(500)[:60]
    ranked = [np.random.default_rng(query).permutation(gallery) for query in range(40)]
    truth = truths(40, gallery, 1)
    scores = revisited(ranked, truth, (1, 3, 5, 10))
    without = dict.fromkeys(LEVELS, 0)
    for query in range(40):
        lists = {name: ids.tolist() for name, ids in truth[query]._asdict().items()}
        for level in LEVELS:
            expected = oracle.level(ranked[query].tolist(), lists, level, (1, 3, 5, 10))
            if expected is None:
                without[level] += 1
                assert np.isnan(scores[level].ap[query])
                assert np.isnan(scores[level].precision[query]).all()
            else:
                assert scores[level].ap[query] == pytest.approx(expected[0], abs=1e-12)
                assert scores[level].precision[query] == pytest.approx(expected[1], abs=1e-12)
    flat = averages(scores)
    for level in LEVELS:
        assert 0 < without[level] == flat[f"excluded_{level}"] == 40 - flat[f"queries_{level}"]
        assert flat[f"map_{level}"] == pytest.approx(np.nanmean(scores[level].ap))
        assert flat[f"mp_at_5_{level}"] == pytest.approx(np.nanmean(scores[level].precision[:, 2]))


@pytest.mark.slow
def test_junk_does_not_change_the_ap() -> None:
    generator = np.random.default_rng(2)
    for _ in range(200):
        clean = generator.permutation(40)
        sought = generator.permutation(40)[: generator.integers(1, 10)]
        junk = np.arange(100, 100 + generator.integers(1, 30))
        places = np.sort(generator.integers(0, 41, size=len(junk)))
        littered = np.insert(clean, places, generator.permutation(junk))
        assert np.array_equal(relevant_ranks(littered, sought, junk), relevant_ranks(clean, sought, NOTHING))
        with_junk = revisited([littered], [Truth(sought, NOTHING, junk)])["easy"]
        without_junk = revisited([clean], [Truth(sought, NOTHING, NOTHING)])["easy"]
        assert with_junk.ap[0] == without_junk.ap[0]
        assert np.array_equal(with_junk.precision, without_junk.precision)


def test_a_level_ignores_images_of_the_other_levels() -> None:
    """Easy first, then hard, then wrong: perfect at every level. Hard first: still perfect, because level
    easy ignores hard images."""
    easy, hard = np.array([1, 2]), np.array([3])
    for ranking in ([1, 2, 3, 4, 5], [3, 1, 2, 4, 5], [1, 3, 2, 4, 5]):
        scores = revisited([np.array(ranking)], [Truth(easy, hard, NOTHING)])
        assert [scores[level].ap[0] for level in LEVELS] == [1.0, 1.0, 1.0]
    junk_first = revisited([np.array([9, 1, 2, 3])], [Truth(easy, hard, np.array([9]))])
    assert junk_first["medium"].ap[0] == 1.0
    wrong_first = revisited([np.array([9, 1, 2, 3])], [Truth(easy, hard, NOTHING)])
    assert wrong_first["medium"].ap[0] < 1.0


def test_the_mean_of_level_easy_is_over_68_of_70_queries() -> None:
    """Two queries of Oxford have no easy image, so that the mean is over 68. Two wrong first images give
    66/68 = 97.06."""
    ranked = [np.array([5, 1]) if query < 2 else np.array([1, 5]) for query in range(70)]
    truth = [
        Truth(NOTHING if query >= 68 else np.array([1]), np.array([1]) if query >= 68 else NOTHING, NOTHING)
        for query in range(70)
    ]
    flat = averages({"easy": revisited(ranked, truth)["easy"]})
    assert (flat["queries_easy"], flat["excluded_easy"]) == (68, 2)
    assert round(100 * flat["mp_at_1_easy"], 2) == 97.06


def test_does_not_depend_on_the_gallery_order() -> None:
    generator = np.random.default_rng(4)
    gallery, ids, shuffled = (
        generator.standard_normal((50, 6), np.float32),
        np.arange(50),
        generator.permutation(50),
    )
    queries, query_ids, truth = (
        generator.standard_normal((4, 6), np.float32),
        np.arange(100, 104),
        truths(4, ids, 5),
    )
    rankings = (
        exact_search(queries, query_ids, rows, names, 50)[0]
        for rows, names in ((gallery, ids), (gallery[shuffled], ids[shuffled]))
    )
    expected, reordered = (revisited(list(ranking), truth) for ranking in rankings)
    for level in LEVELS:
        assert np.array_equal(expected[level].ap, reordered[level].ap, equal_nan=True)


def test_refuses_invalid_ground_truth() -> None:
    ranking = [np.arange(5)]
    with pytest.raises(UserError, match="query 0: id 7 is not in the ranked gallery"):
        revisited(ranking, [Truth(np.array([1]), np.array([7]), NOTHING)])
    with pytest.raises(UserError, match="id 1 occurs twice"):
        revisited(ranking, [Truth(np.array([1]), NOTHING, np.array([1]))])
    with pytest.raises(ValueError, match="zip"):
        revisited(ranking, [Truth(np.array([1]), NOTHING, NOTHING)] * 2)
    with pytest.raises(UserError, match="None of the 1 queries has a relevant image at level hard"):
        averages(revisited(ranking, [Truth(np.array([1]), NOTHING, NOTHING)]))
