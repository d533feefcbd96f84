"""The members, their training data, refused settings, and their progress."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config import EnsembleSettings
from pipeline.data.shards import Shards
from pipeline.runtime.errors import UserError
from pipeline.studies.ensemble.members import Member, check, plan
from pipeline.training.job import Job
from tests.studies.ensemble.protocol_runs import settings, short, write_set
from tests.training.jobs import job, recipe


def planned(base: Job, gpu: str = "no", **more: int) -> list[Member]:
    return plan(base, EnsembleSettings(**more), base.root / "state", "shards", gpu)


def test_there_are_four_models_three_times(tmp_path: Path) -> None:
    members = planned(job(tmp_path, short()))
    assert [(member.repeat, member.model) for member in members] == [
        (repeat, model) for repeat in (1, 2, 3) for model in (1, 2, 3, 4)
    ]
    assert [member.job.seed for member in members] == list(range(12))
    for member in members:
        assert member.job.recipe["training"]["fold"] == {"model": member.model, "folds": 4}
        assert member.job.outputs is not None
        assert {
            member.job.outputs.model.parent,
            member.job.outputs.history.parent,
            member.job.outputs.log.parent,
            member.directory,
        } == {member.directory}
        assert member.directory.parent == tmp_path / "state"
    assert len({member.directory for member in members}) == 12
    assert (members[5].name, members[5].title) == ("model-2-repeat-2", "model 2, repeat 2")


@pytest.mark.parametrize("protocol", ["published", "refit"])
def test_members_hold_out_their_fold_under_any_protocol_of_the_recipe(tmp_path: Path, protocol: str) -> None:
    settings = recipe("baseline", training={"protocol": protocol, "iterations": 6})
    members = planned(job(tmp_path, settings))
    assert {member.job.resolved().training.protocol for member in members} == {"selected"}


def test_more_repeats_keep_the_existing_members(tmp_path: Path) -> None:
    base = job(tmp_path, short())
    assert planned(base, repeats=1) == planned(base, repeats=2)[:4]
    assert [member.job.seed for member in planned(base, seed=40, repeats=1)] == [40, 41, 42, 43]


@pytest.mark.slow
def test_the_identity_covers_all_inputs(tmp_path: Path) -> None:
    base = job(tmp_path, short())
    changes = [
        planned(base, repeats=1),
        planned(base, seed=1, repeats=1),
        planned(base, folds=3, repeats=1),
        planned(base, gpu="auto", repeats=1),
        planned(replace(base, threads=2), repeats=1),
        planned(replace(base, recipe={**base.recipe, "dim": 9}), repeats=1),
        plan(base, EnsembleSettings(repeats=1), tmp_path / "state", "other shards", "no"),
    ]
    assert len({members[0].identity for members in changes}) == len(changes)
    assert (
        planned(replace(base, loader_threads=7), repeats=1)[0].identity
        == planned(base, repeats=1)[0].identity
    )


def test_the_progress_of_a_member(tmp_path: Path) -> None:
    member = planned(job(tmp_path, short()), repeats=1)[0]
    assert member.iteration() == 0
    states = member.directory / "state/tiny/baseline/0-abc"
    states.mkdir(parents=True)
    for name in ("00000002.pt", "00000003.pt", ".00000004.pt.x.partial"):
        (states / name).touch()
    assert (member.iteration(), member.finished) == (3, False)
    assert member.job.outputs is not None
    member.job.outputs.log.touch()  # the training has ended and removed its state
    shutil.rmtree(member.directory / "state")
    assert (member.iteration(), member.finished) == (4, False)
    member.done.mkdir()
    assert (member.iteration(), member.finished) == (4, True)


@pytest.mark.parametrize(
    ("change", "folds", "message"),
    [
        (
            {"training": {"iterations": 0}},
            3,
            "baseline on tiny trains for 0 iterations.*\n.*Remove baseline from run.ensembles",
        ),
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
def test_refuses_invalid_settings_before_training(
    shards: Path, change: dict[str, dict[str, object]], folds: int, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check(job(shards, recipe("baseline", **change)), settings(folds=folds), Shards(shards))


def test_refuses_a_set_without_test_classes(tmp_path: Path) -> None:
    write_set(tmp_path, test=0)
    with pytest.raises(UserError, match="tiny has no test image"):
        check(job(tmp_path, short()), settings(), Shards(tmp_path / "data/shards/tiny"))


def test_accepts_valid_settings(fresh: Callable[[], Path]) -> None:
    root = fresh()
    check(job(root, short()), settings(folds=4), Shards(root / "data/shards/tiny"))
