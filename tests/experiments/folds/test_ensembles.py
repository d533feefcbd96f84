"""MLRC results: the 81 ensembles and their spread."""

import itertools
import statistics

import numpy as np
import pytest

from tests.oracles import retrieval as oracle
from unseen.evaluation.metrics import Rows, quick_metrics
from unseen.evaluation.sides import Sides
from unseen.experiments.folds.scores import averages, concatenate, ensembles
from unseen.runtime.errors import UserError

LABELS = np.repeat(np.arange(10), 4)


def member(seed: int, ids: np.ndarray | None = None) -> Sides:
    generator = np.random.default_rng(seed)
    x = np.eye(10)[LABELS] + 0.6 * generator.standard_normal((40, 10))
    rows = Rows(
        np.arange(40) if ids is None else ids,
        LABELS,
        (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32),
    )
    return Sides(rows, rows)


def score(sides: Sides) -> dict[str, float]:
    return quick_metrics(sides.gallery.embedding, sides.gallery.label)


def test_similarity_of_concatenations_is_the_mean_of_the_members() -> None:
    members = [member(seed) for seed in range(4)]
    joined = concatenate(members)
    assert joined.queries.embedding.shape == (40, 40)
    assert np.abs(np.linalg.norm(joined.gallery.embedding, axis=1) - 1).max() < 1e-6
    mean = np.mean([side.queries.embedding @ side.gallery.embedding.T for side in members], axis=0)
    assert np.abs(joined.queries.embedding @ joined.gallery.embedding.T - mean).max() < 1e-6
    assert np.array_equal(concatenate([members[0]]).gallery.embedding, members[0].gallery.embedding)


def test_queries_and_gallery_may_be_disjoint() -> None:
    members = [
        Sides(Rows(*(column[:7] for column in rows.queries)), Rows(*(column[7:] for column in rows.gallery)))
        for rows in map(member, range(2))
    ]
    joined = concatenate(members)
    assert joined.queries.embedding.shape == (7, 20)
    assert joined.gallery.row_id.tolist() == list(range(7, 40))


@pytest.mark.slow
def test_all_81_ensembles_equal_the_definition() -> None:
    """Every ensemble by nested loops; its metric in pure Python over the mean of the similarities of the
    members."""
    members = [[member(3 * model + repeat) for repeat in range(3)] for model in range(4)]
    results = ensembles(members, score)
    assert results.choices == tuple(itertools.product(range(3), repeat=4))
    flat = averages(results)
    separated, concatenated = [], []
    alone = [[score(member)["map_at_r"] for member in repeats] for repeats in members]
    for choice in itertools.product(range(3), repeat=4):
        chosen = [members[model][repeat].gallery.embedding for model, repeat in enumerate(choice)]
        separated.append(statistics.fmean(alone[model][repeat] for model, repeat in enumerate(choice)))
        similarity = sum(x.astype(np.float64) @ x.astype(np.float64).T for x in chosen) / 4
        aps = []
        for query in range(40):
            others = [row for row in range(40) if row != query]
            order = sorted(others, key=(-similarity[query]).tolist().__getitem__)
            aps.append(oracle.ap_at_r([bool(LABELS[row] == LABELS[query]) for row in order], 3))
        concatenated.append(statistics.fmean(aps))
    assert results.concatenated["map_at_r"] == pytest.approx(concatenated, abs=1e-9)
    assert flat["separated_map_at_r"] == pytest.approx(statistics.fmean(separated), abs=1e-12)
    assert flat["separated_map_at_r_std"] == pytest.approx(statistics.pstdev(separated), abs=1e-12)
    assert flat["concatenated_map_at_r"] == pytest.approx(statistics.fmean(concatenated), abs=1e-9)
    assert flat["concatenated_map_at_r_std"] == pytest.approx(statistics.pstdev(concatenated), abs=1e-9)
    assert flat["concatenated_map_at_r"] > flat["separated_map_at_r"]


def test_one_run_of_each_model_has_no_spread() -> None:
    flat = averages(ensembles([[member(model)] for model in range(4)], score))
    assert flat["separated_recall_at_1_std"] == flat["concatenated_recall_at_1_std"] == 0


def test_refuses_models_of_other_rows_or_unequal_repeats() -> None:
    with pytest.raises(UserError, match="Model 2 of the ensemble does not have the rows of model 1"):
        concatenate([member(0), member(1, np.arange(40) + 1)])
    with pytest.raises(UserError, match="were trained 2, 1 times"):
        ensembles([[member(0), member(1)], [member(2)]], score)
