"""Stage `train`: from its resolved file to the job of the workers."""

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.params import project, resolve
from unseen.config.document import Params
from unseen.config.inputs import TrainInputs, content_of, path_of
from unseen.config.stages import TrainSettings
from unseen.runtime.code import code_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json
from unseen.runtime.stage import PACKAGE
from unseen.stages import train
from unseen.training.job import Job


@pytest.fixture
def stage_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A copy of params.yaml in an empty project, and the arguments that the stage passes to Ray."""
    monkeypatch.chdir(tmp_path)
    params = project(tmp_path)
    code = code_of(PACKAGE).closure(["unseen.training.embed"])
    for method in ("gsp", "ms"):
        target = path_of("train", "parts", method)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_json(
            target,
            content_of(TrainInputs(recipe=resolve(params, "parts", method)), code),
        )
    arguments: dict[str, Any] = {}
    monkeypatch.setattr(
        train, "run_training", lambda job, settings: arguments.update(job=job, settings=settings)
    )
    return arguments


def test_the_job_has_the_resolved_recipe_and_paths_in_the_project(
    stage_arguments: dict[str, Any], tmp_path: Path
) -> None:
    train.run("parts", "gsp", 3)
    job, settings = stage_arguments["job"], stage_arguments["settings"]
    assert isinstance(job, Job)
    assert isinstance(settings, TrainSettings)
    assert job.recipe == resolve(Params(Path("params.yaml")), "parts", "gsp")
    assert job.name == "parts/gsp/3"
    assert job.shards == tmp_path / "data/shards/parts"
    assert job.state == tmp_path / "data/state"
    assert job.outputs is not None
    assert job.outputs.model == tmp_path / "data/models/parts/gsp/3"
    assert job.outputs.history == tmp_path / "data/history/parts/gsp/3.csv"
    assert job.outputs.log == tmp_path / "data/logs/parts/gsp/3.json"
    assert job.threads == 2
    assert job.code, "the digest of the code is part of the identity of a training"
    assert job.loader_threads == settings.loader_threads
    assert pickle.loads(pickle.dumps(job)) == job


def test_the_threads_of_a_worker_are_those_of_the_recipe(
    stage_arguments: dict[str, Any], tmp_path: Path
) -> None:
    project(tmp_path, {"train.workers": 2, "train.checkpoint_every": 7})
    train.run("parts", "ms", 0)
    assert (stage_arguments["job"].threads, stage_arguments["job"].checkpoint_every) == (2, 7)
    job = stage_arguments["job"]
    training = job.recipe.training.model_copy(update={"threads": 3})
    recipe = job.recipe.model_copy(update={"training": training})
    assert dataclasses.replace(job, recipe=recipe).threads == 3


def test_refuses_the_earlier_setting_of_threads(stage_arguments: dict[str, Any], tmp_path: Path) -> None:
    project(tmp_path, {"train.cpus_per_worker": 3})
    with pytest.raises(UserError, match=r"train\.cpus_per_worker is not a setting") as caught:
        train.run("parts", "ms", 0)
    assert "training: {threads: 4}" in caught.value.remedy
    assert stage_arguments == {}


def test_refuses_too_many_workers_before_ray_starts(stage_arguments: dict[str, Any], tmp_path: Path) -> None:
    project(tmp_path, {"train.workers": 7})
    with pytest.raises(UserError, match="7 workers cannot share a batch of"):
        train.run("parts", "ms", 0)
    assert stage_arguments == {}


def test_the_error_of_a_missing_or_older_resolved_file_has_a_remedy(
    stage_arguments: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(
        UserError, match=r"data/resolved/train/parts/crt\.json is missing\.\n  Run `dvc repro`"
    ):
        train.run("parts", "crt", 0)
    path = path_of("train", "parts", "ms")
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 0'))
    with pytest.raises(
        UserError,
        match=r"ms\.json is not a file that this version of stage `resolve` wrote: schema 0, expected 1",
    ):
        train.run("parts", "ms", 0)
