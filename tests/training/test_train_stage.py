"""Stage `train`: from params.yaml to the job that the workers get."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import Params, TrainSettings, resolve
from pipeline.runtime.errors import UserError
from pipeline.runtime.stage import ROOT
from pipeline.training.job import Job
from stages import train


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A copy of params.yaml in an empty project, and what the stage hands to Ray."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_STAGE", raising=False)
    found: dict[str, Any] = {}
    monkeypatch.setattr(train, "run_training", lambda job, settings: found.update(job=job, settings=settings))
    return found


def test_the_job_is_the_resolved_recipe_with_paths_under_the_project(given: dict[str, Any], tmp_path: Path) -> None:
    train.run("parts", "gsp", 3)
    job, settings = given["job"], given["settings"]
    assert isinstance(job, Job)
    assert isinstance(settings, TrainSettings)
    assert job.resolved() == resolve(Params(Path("params.yaml")), "parts", "gsp")
    assert job.name == "parts/gsp/3"
    assert job.shards == tmp_path / "data/shards/parts"
    assert job.state == tmp_path / "data/state"
    assert job.outputs is not None
    assert job.outputs.model == tmp_path / "data/models/parts/gsp/3"
    assert job.outputs.history == tmp_path / "data/history/parts/gsp/3.csv"
    assert job.outputs.log == tmp_path / "data/logs/parts/gsp/3.json"
    assert job.threads >= 1
    assert job.loader_threads == settings.loader_threads
    assert pickle.loads(pickle.dumps(job)) == job


def _edit(old: str, new: str) -> None:
    text = Path("params.yaml").read_text()
    assert old in text
    Path("params.yaml").write_text(text.replace(old, new))


def test_the_threads_of_a_worker_can_be_said(given: dict[str, Any]) -> None:
    _edit("cpus_per_worker: null", "cpus_per_worker: 3")
    train.run("parts", "ms", 0)
    assert given["job"].threads == 3


def test_more_workers_than_share_the_batch_are_refused_before_ray_starts(given: dict[str, Any]) -> None:
    _edit("workers: 1\n  gpu", "workers: 7\n  gpu")
    with pytest.raises(UserError, match="7 workers cannot share a batch of"):
        train.run("parts", "ms", 0)
    assert given == {}
