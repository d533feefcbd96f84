"""The protocols of a training: which train classes are trained on, and which iterate is the result."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Bool

from tests.training.jobs import CLASSES, IMAGES, Killed, job, output_bytes, recipe, trained
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError
from unseen.training import loop, resume, run
from unseen.training.job import Job

pytestmark = pytest.mark.usefixtures("every_checkpoint")

CPU = torch.device("cpu")
METRICS = ("recall_at_1", "map_at_r", "r_precision")
LENGTH = {"iterations": 6, "validate_every": 2}


def _history(training_job: Job) -> list[dict[str, str]]:
    assert training_job.outputs is not None
    with training_job.outputs.history.open(newline="") as file:
        return list(csv.DictReader(file))


def _select_iteration(monkeypatch: pytest.MonkeyPatch, best: int) -> None:
    """Gives the validation after step `best` the highest metrics."""
    original, steps = loop.train_step, [0]

    def train_step(learner: Any, batch: Any, *arguments: Any) -> Any:
        steps.append(batch.step + 1)
        return original(learner, batch, *arguments)

    def validate(embedder: Any, split: Any) -> dict[str, float]:
        assert len(split.validation_rows)
        return dict.fromkeys(METRICS, 0.75 if steps[-1] == best else 0.25)

    monkeypatch.setattr(loop, "train_step", train_step)
    monkeypatch.setattr(loop, "validate", validate)


@pytest.mark.slow
def test_published_trains_on_all_classes_and_selects_the_last_iterate(root: Path) -> None:
    training_job = trained(root, recipe("baseline", training=LENGTH | {"protocol": "published"}))
    outputs = output_bytes(training_job)
    assert outputs["weights.safetensors"] == outputs["last.safetensors"]
    assert outputs["weights.safetensors"] != outputs["untrained.safetensors"]
    saved = json.loads(outputs["recipe.json"])
    assert (saved["classes"], saved["samples"]) == (CLASSES, CLASSES * IMAGES)
    assert saved["recipe"]["training"]["protocol"] == "published"
    rows = _history(training_job)
    assert [row["iteration"] for row in rows] == ["2", "4", "6"]
    assert all(row[name] == "" for row in rows for name in METRICS)
    assert training_job.outputs is not None
    assert json.loads(training_job.outputs.log.read_text())["best_iteration"] == 6


@pytest.mark.slow
def test_published_reports_progress_without_validation_metrics(root: Path) -> None:
    reported: list[Any] = []
    training_job = job(root, recipe("baseline", training=LENGTH | {"protocol": "published"}))
    result = loop.train(training_job, 0, 1, CPU, reported.append)
    assert [row["iteration"] for row in reported] == [2, 4, 6]
    assert not {*METRICS} & {*reported[-1]}
    assert result["best_iteration"] == 6
    assert "best" not in result


@pytest.mark.slow
def test_refit_trains_all_classes_for_the_length_that_held_out_classes_choose(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _select_iteration(monkeypatch, best=4)
    refit = trained(root, recipe("baseline", training=LENGTH | {"protocol": "refit"}))
    outputs, rows = output_bytes(refit), _history(refit)
    assert [(row["phase"], row["iteration"]) for row in rows] == [
        ("1", "2"), ("1", "4"), ("1", "6"), ("2", "8"), ("2", "10")
    ]  # fmt: skip
    assert [row["map_at_r"] for row in rows] == ["0.25", "0.75", "0.25", "", ""]
    assert json.loads(outputs["recipe.json"])["classes"] == CLASSES
    shorter = {"iterations": 4, "validate_every": 2, "protocol": "published"}
    published = output_bytes(trained(root, recipe("baseline", training=shorter)))
    for name in ("weights.safetensors", "last.safetensors", "untrained.safetensors"):
        assert outputs[name] == published[name], name


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, 6, 9], ids=["first phase", "start of the second", "second phase"])
def test_a_killed_refit_resumes_to_the_same_bytes(
    root: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies make the networks of the phases differ in shape."""
    _select_iteration(monkeypatch, best=4)
    loss = {"name": "proxy_anchor"}
    training_job = trained(root, recipe("baseline", loss=loss, training=LENGTH | {"protocol": "refit"}))
    straight = output_bytes(training_job)
    assert training_job.outputs is not None
    shutil.rmtree(training_job.outputs.model)
    original, finished = loop.train_step, 0

    def train_step(learner: Any, batch: Any, *arguments: Any) -> Any:
        nonlocal finished
        if finished == step:
            raise Killed
        finished += 1
        return original(learner, batch, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", train_step)
        with pytest.raises(Killed):
            loop.train(training_job, 0, 1, CPU)
    loop.train(training_job, 0, 1, CPU)
    assert output_bytes(training_job) == straight


@pytest.mark.slow
def test_a_refit_killed_between_its_phases_starts_the_second_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training_job = trained(root, recipe("baseline", training=LENGTH | {"protocol": "refit"}))
    straight = output_bytes(training_job)
    assert training_job.outputs is not None
    shutil.rmtree(training_job.outputs.model)

    original = resume.save

    def save(run: Any) -> None:
        if run.record.is_refit:
            raise Killed
        original(run)

    with monkeypatch.context() as patch:
        patch.setattr(resume, "save", save)  # after the initial weights of the second phase are written
        with pytest.raises(Killed):
            loop.train(training_job, 0, 1, CPU)
    loop.train(training_job, 0, 1, CPU)
    assert output_bytes(training_job) == straight


@pytest.mark.slow
def test_refit_repeats_the_learning_rates_of_a_plateau(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _select_iteration(monkeypatch, best=6)
    schedule = {"name": "plateau", "patience": 0, "factor": 0.5}
    rows = _history(
        trained(root, recipe("baseline", schedule=schedule, training=LENGTH | {"protocol": "refit"}))
    )
    first, second = ([row["lr"] for row in rows if row["phase"] == phase] for phase in "12")
    assert first == second
    assert len(set(first)) > 1


def test_refit_refuses_a_set_that_holds_out_images_itself(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Grouped(Shards):
        def in_group(self, group: str) -> Bool[np.ndarray, " N"]:
            return (np.arange(len(self)) == 0) & (group == "validation")

    monkeypatch.setattr(run, "Shards", Grouped)
    with pytest.raises(UserError, match=r"refit, but .* itself holds out images.*\n.*selected or published"):
        trained(root, recipe("baseline", training=LENGTH | {"protocol": "refit"}))


@pytest.mark.slow
def test_published_does_not_train_on_images_that_a_set_holds_out_itself(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Grouped(Shards):
        def in_group(self, group: str) -> Bool[np.ndarray, " N"]:
            return (np.arange(len(self)) < IMAGES) & (group == "validation")

    monkeypatch.setattr(run, "Shards", Grouped)
    training_job = trained(root, recipe("baseline", training=LENGTH | {"protocol": "published"}))
    assert json.loads(output_bytes(training_job)["recipe.json"])["classes"] == CLASSES - 1


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ({"training": {"protocol": "published", "patience": 3}}, "set training.patience to null"),
        (
            {"training": {"protocol": "published"}, "schedule": {"name": "plateau"}},
            "set schedule.name to step, or training.protocol to refit",
        ),
        (
            {"training": {"protocol": "refit", "fold": {"model": 1}}},
            "set training.protocol to selected",
        ),
    ],
    ids=["patience", "plateau", "fold"],
)
def test_refuses_settings_that_need_a_validation(blocks: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe("baseline", **blocks)
