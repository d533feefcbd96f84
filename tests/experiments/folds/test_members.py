"""The members: their files, seeds and recipes, and refused settings."""

from pathlib import Path

import pytest

from tests.experiments.folds.protocol_runs import short, write_set
from tests.training.jobs import job, recipe
from unseen.data.shards import Shards
from unseen.experiments.folds.members import Member, member_job, require_fold_data, require_members
from unseen.runtime.errors import UserError


def test_every_member_has_its_own_seed() -> None:
    members = [Member("parts", "gsp", model, 4, seed) for seed in (0, 1, 2) for model in (1, 2, 3, 4)]
    assert [member.training_seed for member in members] == list(range(12))


def test_outputs_and_state_are_apart_from_those_of_an_ordinary_training(tmp_path: Path) -> None:
    base = job(tmp_path, short())
    of_member = member_job(base, Member("tiny", "gsp", 2, 4, 1))
    assert (of_member.name, of_member.seed) == ("tiny/gsp-fold-2/5", 5)
    assert of_member.state == base.root / "data/state/folds"
    assert of_member.outputs is not None
    assert (of_member.outputs.model, of_member.outputs.history, of_member.outputs.log) == (
        base.root / "data/fold_models/tiny/gsp/2/1",
        base.root / "data/fold_history/tiny/gsp/2/1.csv",
        base.root / "data/fold_logs/tiny/gsp/2/1.json",
    )


def test_refuses_recipes_that_cannot_be_members() -> None:
    untrained = recipe("baseline", training={"iterations": 0})
    with pytest.raises(
        UserError, match=r"ms on tiny trains for 0 iterations.*\n.*Remove ms from run.ensembles"
    ):
        require_members(untrained, "tiny", "ms")
    batch = short().batch.model_copy(update={"sampling": "tuples"})
    with pytest.raises(UserError, match=r"ms on tiny trains on tuples.*\n  Remove ms from run.ensembles"):
        require_members(short().model_copy(update={"batch": batch}), "tiny", "ms")
    require_members(short(), "tiny", "ms")


@pytest.mark.parametrize(
    ("change", "folds", "message"),
    [
        ({}, 10, "9 train classes cannot be divided into 10 folds.\n.*ensemble.folds"),
        (
            {},
            5,
            "Model 5 of 5 folds of 9 train classes leaves 8 to train on and holds out 1.*\n.*Change "
            "ensemble.folds",
        ),
        (
            {"batch": {"classes": 6}},
            2,
            "Model 1 of 2 folds, 4 training classes: A batch needs 6 classes.*\n.*ensemble.folds",
        ),
        (
            {"batch": {"classes": 7, "sampling": "shuffled"}},
            2,
            "Model 1 of 2 folds, 4 training classes: A batch has 28 images, but there are only 20",
        ),
    ],
)
def test_refuses_folds_that_cannot_be_trained(
    shards: Path, change: dict[str, dict[str, object]], folds: int, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        require_fold_data(recipe("baseline", **change), "tiny", folds, Shards(shards))
    require_fold_data(short(), "tiny", 4, Shards(shards))


def test_refuses_a_set_without_test_classes(tmp_path: Path) -> None:
    write_set(tmp_path, test=0)
    with pytest.raises(UserError, match="tiny has no test image"):
        require_fold_data(short(), "tiny", 3, Shards(tmp_path / "data/shards/tiny"))
