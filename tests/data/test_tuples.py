"""Tuples: the drawn pairs of an epoch, negatives equal to those of a walk down the ranked pool, and the
resulting batches."""

import numpy as np
import pytest

from tests.oracles.mining import walk
from unseen.data import tuples
from unseen.data.settings import Batch
from unseen.data.tuples import TupleSampler, hardest
from unseen.runtime.errors import UserError

BATCH = Batch(classes=3, images_per_class=6, sampling="tuples", pairs=20, pool=40)
CLUSTERS = np.arange(60) % 12
PAIRS = np.stack([np.arange(30), np.arange(30) + 12], axis=1)


def unit(count: int, seed: int, dim: int = 5) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(count, dim))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("block", [1, 7, 256])
def test_hardest_negatives_equal_a_walk_down_the_ranking(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(tuples, "BLOCK", block)
    generator = np.random.default_rng(0)
    queries, pool = unit(23, 1), unit(70, 2)
    of_queries, of_pool = (
        generator.integers(0, 12, 23),
        generator.integers(2, 13, 70),
    )  # some queries have no image of their cluster in the pool
    negatives = hardest(queries, of_queries, pool, of_pool, 5)
    assert negatives.tolist() == [
        walk(query, c, pool, of_pool.tolist(), 5)
        for query, c in zip(queries, of_queries.tolist(), strict=True)
    ]
    for row, cluster in zip(negatives, of_queries, strict=True):
        assert len(set(of_pool[row])) == 5
        assert cluster not in of_pool[row]


def test_equal_negatives_have_an_order() -> None:
    pool = np.repeat(unit(1, 3), 6, axis=0)
    assert hardest(unit(1, 3), np.array([9]), pool, np.array([2, 1, 2, 1, 0, 3]), 3).tolist() == [[4, 1, 0]]


def test_refuses_too_few_clusters() -> None:
    pool, clusters = unit(6, 0), np.array([0, 0, 1, 1, 2, 2])
    assert hardest(unit(1, 1), np.array([7]), pool, clusters, 3).shape == (1, 3)
    with pytest.raises(ValueError, match="expected 3 other clusters in the pool for each query, got 2"):
        hardest(unit(2, 1), np.array([7, 2]), pool, clusters, 3)
    batch = Batch(classes=3, images_per_class=6, sampling="tuples", pool=4)
    with pytest.raises(UserError, match=r"A pool of 4 images of \d classes is too small for 4 negatives"):
        TupleSampler(PAIRS, CLUSTERS, batch, 0).plan(0)


def test_an_epoch_is_a_function_of_seed_and_number() -> None:
    sampler, twin = (TupleSampler(PAIRS, CLUSTERS, BATCH, seed=3) for _ in range(2))
    assert sampler.steps_per_epoch == 6  # 20 pairs in batches of 3 tuples
    for epoch in (2, 0):
        plan, twin_plan = sampler.plan(epoch), twin.plan(epoch)
        assert np.array_equal(plan.pairs, twin_plan.pairs)
        assert np.array_equal(plan.pool, twin_plan.pool)
        assert plan.pairs.shape == (18, 2)
        assert len(np.unique(plan.pool)) == 40
        assert len({*map(tuple, plan.pairs.tolist())}) == 18
        assert {*map(tuple, plan.pairs.tolist())} <= {*map(tuple, PAIRS.tolist())}
    assert not np.array_equal(sampler.plan(0).pairs, sampler.plan(1).pairs)
    assert not np.array_equal(sampler.plan(0).pool, TupleSampler(PAIRS, CLUSTERS, BATCH, seed=4).plan(0).pool)


def test_many_epochs_draw_every_pair_and_image() -> None:
    sampler = TupleSampler(PAIRS, CLUSTERS, BATCH, seed=0)
    plans = [sampler.plan(epoch) for epoch in range(30)]
    assert len(np.unique(np.concatenate([plan.pairs for plan in plans]), axis=0)) == len(PAIRS)
    assert len(np.unique(np.concatenate([plan.pool for plan in plans]))) == 60


def test_batches_are_the_tuples_in_order() -> None:
    sampler, embeddings = TupleSampler(PAIRS, CLUSTERS, BATCH, seed=1), unit(60, 5)
    plan = sampler.plan(1)
    tuples = sampler.tuples(plan, embeddings)
    assert np.array_equal(tuples[:, :2], plan.pairs)
    for row in tuples:
        places = walk(
            embeddings[row[0]], int(CLUSTERS[row[0]]), embeddings[plan.pool], CLUSTERS[plan.pool].tolist(), 4
        )
        assert row[2:].tolist() == plan.pool[places].tolist()
    with pytest.raises(ValueError, match="step 6 belongs to epoch 1, whose tuples are not set"):
        sampler.draw(6)
    sampler.begin(1, tuples)
    batches = [sampler.draw(step) for step in range(6, 12)]
    assert np.concatenate([draw.positions for draw in batches]).tolist() == tuples.reshape(-1).tolist()
    keys = np.concatenate([draw.keys for draw in batches])
    assert len(np.unique(keys)) == len(keys), "an image of two tuples is augmented twice"
    with pytest.raises(ValueError, match="epoch 2, whose tuples"):
        sampler.draw(12)
    with pytest.raises(ValueError, match=r"epoch 2 has 18 tuples of 6 images, got an array of \(17, 6\)"):
        sampler.begin(2, tuples[1:])


def test_refuses_pairs_that_fill_no_batch() -> None:
    with pytest.raises(UserError, match="A batch has 3 tuples, but an epoch draws 20 of the 2"):
        TupleSampler(PAIRS[:2], CLUSTERS, BATCH, 0)
