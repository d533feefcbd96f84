"""The name of the state of a run depends on all inputs of its result."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unseen.config.inputs import digest
from unseen.config.stages import TrainSettings
from unseen.methods.settings import BaselineRecipe
from unseen.runtime.errors import UserError
from unseen.training import state
from unseen.training.job import Job, check_world, job_of, located, possible_worlds


def _job(root: Path, **backbone: Any) -> Job:
    recipe = BaselineRecipe.model_validate({"backbone": backbone})
    return job_of("set", "name", 3, recipe, root, TrainSettings())


def with_threads(job: Job, threads: int) -> Job:
    training = job.recipe.training.model_copy(update={"threads": threads})
    return dataclasses.replace(job, recipe=job.recipe.model_copy(update={"training": training}))


def _name(
    job: Job,
    fingerprint: str = "shards",
    device: str = "cpu",
    precision: str = "float32",
) -> str:
    return digest(state.identity(job, fingerprint, device, precision))


def test_same_inputs_same_directory(tmp_path: Path) -> None:
    job = _job(tmp_path)
    facts = state.identity(job, "shards", "cpu", "float32")
    assert (
        state.state_directory(job, facts) == tmp_path / "data/state/set/name" / f"3-{_name(_job(tmp_path))}"
    )
    assert state.state_directory(dataclasses.replace(job, state=None, outputs=None), facts) is None
    for machine in ({"loader_threads": 7}, {"checkpoint_every": 7}):  # neither affects the result
        assert _name(dataclasses.replace(job, **machine)) == _name(job)


@pytest.mark.parametrize(
    "change",
    [
        lambda job: _name(dataclasses.replace(job, recipe=job.recipe.model_copy(update={"dim": 64}))),
        lambda job: _name(dataclasses.replace(job, seed=4)),
        lambda job: _name(with_threads(job, 1)),
        lambda job: _name(dataclasses.replace(job, code="of other modules")),
        lambda job: _name(job, fingerprint="other shards"),
        lambda job: _name(job, device="cuda"),
        lambda job: _name(job, precision="bfloat16"),
    ],
)
def test_a_change_gives_another_directory(tmp_path: Path, change: Callable[[Job], str]) -> None:
    assert change(_job(tmp_path)) != _name(_job(tmp_path))


def test_a_changed_library_gives_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name_before = _name(_job(tmp_path))
    monkeypatch.setattr(state.importlib.metadata, "version", lambda name: "0")
    assert _name(_job(tmp_path)) != name_before


def test_depends_on_the_bytes_of_a_backbone_file_below_the_root(tmp_path: Path) -> None:
    job = _job(tmp_path, checkpoint="backbone.pth")
    with pytest.raises(UserError, match=r"backbone\.pth cannot be read"):
        _name(job)
    (tmp_path / "backbone.pth").write_bytes(b"one")
    name = _name(job)
    (tmp_path / "backbone.pth").write_bytes(b"two")
    assert _name(job) != name
    assert located(job.recipe, job.root).backbone.checkpoint == str(tmp_path / "backbone.pth")
    assert job.recipe.backbone.checkpoint == "backbone.pth"


def test_differences_name_nested_values_and_only_the_name_of_a_hash() -> None:
    old_inputs = {
        "recipe": {"dim": 8, "batch": {"classes": 3}},
        "code": "ab",
        "threads": 1,
        "libraries": {"torch": "2.0"},
    }
    new_inputs = {
        "recipe": {"dim": 16, "batch": {"classes": 3}},
        "code": "cd",
        "threads": 1,
        "libraries": {"numpy": "2.1"},
    }
    assert state.differences(old_inputs, old_inputs) == []
    assert state.differences(old_inputs, new_inputs) == [
        "code",
        'libraries.numpy (null, now "2.1")',
        'libraries.torch ("2.0", now null)',
        "recipe.dim (8, now 16)",
    ]


def test_a_finished_run_deletes_older_states_of_its_seed(tmp_path: Path) -> None:
    current, older, other_seed = (tmp_path / name for name in ("1-aaaa", "1-bbbb", "10-cccc"))
    for path in (current, older, other_seed):
        path.mkdir()
    assert state.other_states(current) == [older]
    state.remove_states(current)
    assert list(tmp_path.iterdir()) == [other_seed]


def test_refuses_a_batch_that_the_workers_cannot_share() -> None:
    recipe = BaselineRecipe.model_validate({"batch": {"classes": 3, "images_per_class": 4}})
    for world in (1, 2, 3, 4, 6, 12):
        check_world(recipe, world)
    with pytest.raises(
        UserError,
        match=r"5 workers cannot share a batch of 12 images \(3 classes x 4\)[^\n]*\n[^\n]*1, 2, 3, 4, 6, 12",
    ):
        check_world(recipe, 5)


def test_a_state_whose_removal_fails_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("0-a", "0-b", "1-a"):
        (tmp_path / name).mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("unseen.training.state.shutil.rmtree", lambda *_, **__: None)
        state.remove_states(tmp_path / "0-a")
    assert not (tmp_path / "0-a").exists()
    state.remove_states(tmp_path / "0-a")
    assert [path.name for path in tmp_path.iterdir()] == ["1-a"]


def test_possible_numbers_of_workers_divide_the_batch() -> None:
    twelve = BaselineRecipe.model_validate({"batch": {"classes": 3, "images_per_class": 4}})
    assert possible_worlds(twelve, TrainSettings(workers=4)) == [4]
    assert possible_worlds(twelve, TrainSettings(workers=(1, 8))) == [1, 2, 3, 4, 6]
    assert possible_worlds(twelve, TrainSettings(workers="auto")) == [1, 2, 3, 4, 6, 12]
    with pytest.raises(UserError, match="5 workers cannot share a batch of 12"):
        possible_worlds(twelve, TrainSettings(workers=(5, 5)))


def test_a_range_of_workers_ascends() -> None:
    assert TrainSettings.parse({"workers": [1, 8]}).most_workers == 8
    for workers in ([8, 1], [0, 1], [1, 2, 3], "all"):
        with pytest.raises(ValueError, match="workers"):
            TrainSettings.parse({"workers": workers})
