"""A complete training: its outputs, its selection, its end."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.training.jobs import Killed, job, log_of, recipe, states_of, write_tiny_set
from unseen.data.loader import EvalLoader, TrainBatch, normalize
from unseen.data.shards import Shards
from unseen.evaluation.metrics import quick_metrics
from unseen.methods.artifact import load_method
from unseen.report.report_data import read_history
from unseen.runtime.errors import UserError
from unseen.runtime.sealed import read_sealed_csv
from unseen.training import loop, run
from unseen.training.history import TEST_METRICS
from unseen.training.job import Job
from unseen.training.log import Clock
from unseen.training.row_embedder import RowEmbedder
from unseen.training.step import Learner, NotFinite
from unseen.training.worker import Worker

pytestmark = pytest.mark.usefixtures("every_checkpoint")

CPU = torch.device("cpu")


def test_outs_of_a_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports: list[dict[str, float]] = []
    training_job = job(root, recipe("baseline"))
    result = loop.train(training_job, 0, 1, CPU, report=reports.append)
    assert training_job.outputs is not None

    cells = read_sealed_csv(training_job.outputs.history, "Train again.")
    rows = [{name: float(value) for name, value in row.items()} for row in cells]
    assert list(rows[0])[:4] == ["iteration", "epoch", "lr", "loss"]
    assert list(rows[0])[-4:] == ["grad_norm", "recall_at_1", "map_at_r", "r_precision"]
    terms = list(rows[0])[4:-4]
    assert [row["iteration"] for row in rows] == [5, 10, 12]
    for row in rows:
        assert row["loss"] == pytest.approx(sum(row[term] for term in terms), rel=1e-5)
        assert row["lr"] == pytest.approx(1e-3)
        assert row["grad_norm"] > 0

    assert [set(entry) for entry in reports] == [
        {"iteration", "epoch", "loss", "recall_at_1", "map_at_r", "r_precision"}
    ] * 3
    assert [entry["map_at_r"] for entry in reports] == pytest.approx([row["map_at_r"] for row in rows])
    best = max(row["map_at_r"] for row in rows)
    assert result["best"] == pytest.approx(best)
    assert result["best_iteration"] == next(
        entry["iteration"] for entry in reports if entry["map_at_r"] == result["best"]
    )

    assert [path.name for path in sorted(training_job.outputs.model.iterdir())] == [
        "last.safetensors",
        "recipe.json",
        "untrained.safetensors",
        "weights.safetensors",
    ]
    log = log_of(training_job)
    assert log["images_per_second"] > 0
    assert set(log["seconds"]) == {"start_up", "data_wait", "step", "validation", "checkpoint"}
    assert log["resumed_at"] == []
    assert states_of(training_job) == []  # the state of an ended run is deleted
    assert re.search(r"^train tiny/\S+: 144/144 images", capsys.readouterr().err, re.MULTILINE)


@pytest.mark.slow
def test_saves_weights_of_the_best_validation_and_of_the_end(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = iter([0.2, 0.7, 0.7])  # the first of equal values is selected
    monkeypatch.setattr(
        loop, "validate", lambda *_: {"recall_at_1": 1.0, "map_at_r": next(scripted), "r_precision": 0.0}
    )
    states: dict[int, dict[str, torch.Tensor]] = {}
    original = loop.assert_same_on_all_workers

    def remember(method: torch.nn.Module) -> None:
        states[len(states)] = {name: value.clone() for name, value in method.state_dict().items()}
        original(method)

    monkeypatch.setattr(loop, "assert_same_on_all_workers", remember)
    training_job = job(root, recipe("baseline"))
    assert loop.train(training_job, 0, 1, CPU)["best_iteration"] == 10
    assert training_job.outputs is not None
    for name, index in (("weights", 1), ("last", 2)):
        saved = load_file(training_job.outputs.model / f"{name}.safetensors")
        assert saved
        assert all(torch.equal(value, states[index][key]) for key, value in saved.items())
        assert any(not torch.equal(value, states[3 - index][key]) for key, value in saved.items())


@pytest.mark.slow
def test_patience_ends_a_run_early_also_after_a_resume(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {2: 0.1, 4: 0.5, 6: 0.4, 8: 0.5, 10: 0.9}
    validations: list[int] = []

    def scripted(*_: Any) -> dict[str, float]:
        validations.append(2 * (len(validations) + 1))
        return {"recall_at_1": 0.0, "map_at_r": values[validations[-1]], "r_precision": 0.0}

    monkeypatch.setattr(loop, "validate", scripted)
    training_job = job(root, recipe("baseline", training={"validate_every": 2, "patience": 2}))
    before, after = list[dict[str, float]](), list[dict[str, float]]()
    with monkeypatch.context() as patch:
        patch.setattr(loop, "write_outputs", _raise_killed)
        with pytest.raises(Killed):
            loop.train(training_job, 0, 1, CPU, before.append)
    assert validations == [2, 4, 6, 8]
    result = loop.train(training_job, 0, 1, CPU, after.append)
    assert validations == [2, 4, 6, 8]
    assert [row["iteration"] for row in before] == validations
    assert after == before  # its receiver may have lost them
    assert (result["iteration"], result["best_iteration"]) == (8, 4)
    assert log_of(training_job)["resumed_at"] == [8]


def _raise_killed(*_: Any) -> None:
    raise Killed


def test_a_loss_that_is_not_finite_names_rows_and_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = run.initial_method

    def broken(*arguments: Any) -> Any:
        method = original(*arguments)
        with torch.no_grad():
            method.parameter_groups()["backbone"][0].fill_(torch.nan)
        return method

    monkeypatch.setattr(run, "initial_method", broken)
    with pytest.raises(
        UserError,
        match=(
            r"Step 0: .* = nan.*12 of its images are not finite: row \d+ \(class \d/\d\.png\), .* and 4 more"
        ),
    ):
        loop.train(job(root, recipe("baseline")), 0, 1, CPU)


@pytest.mark.slow
def test_a_gradient_that_is_not_finite_names_the_images_of_the_batch(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_not_finite(learner: Learner, batch: TrainBatch, *_: Any) -> None:
        if batch.step == 2:
            raise NotFinite({"gradient norm": float("nan")}, [])

    original = loop.train_step
    monkeypatch.setattr(
        loop, "train_step", lambda *arguments: raise_not_finite(*arguments) or original(*arguments)
    )
    message = (
        r"^Step 2: gradient norm = nan\. Its images: row \d+ \(class \d/\d\.png\), .* and 4 more\.\n  Look "
        r"at these"
    )
    with pytest.raises(UserError, match=message):
        loop.train(job(root, recipe("baseline")), 0, 1, CPU)


@pytest.mark.slow
def test_refuses_an_altered_shard(tmp_path: Path) -> None:
    write_tiny_set(tmp_path)
    shard = tmp_path / "data/shards/tiny/shard-00000.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(UserError, match=r"The image of row \d+ in .* is damaged"):
        loop.train(job(tmp_path, recipe("baseline")), 0, 1, CPU)


@pytest.mark.slow
def test_a_run_without_state_and_outputs_writes_no_file(root: Path) -> None:
    files_before = sorted(root.rglob("*"))
    result = loop.train(
        dataclasses.replace(job(root, recipe("baseline")), state=None, outputs=None), 0, 1, CPU
    )
    assert result["iteration"] == 12
    assert sorted(root.rglob("*")) == files_before


@pytest.mark.slow
def test_settings_of_the_process_are_restored(root: Path) -> None:
    settings_before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    loop.train(job(root, recipe("baseline", training={"threads": settings_before[0] + 1})), 0, 1, CPU)
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == settings_before


@pytest.mark.parametrize(("setting", "expected"), [(None, 5), (3, 3)])
def test_loader_threads_are_a_setting_or_the_share_of_a_worker(
    setting: int | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(job: Job, worker: Worker, clock: Clock) -> None:
        raise Killed(worker.loader_threads)

    monkeypatch.setattr(loop, "begin", begin)
    monkeypatch.setattr(loop, "loader_threads_of", lambda workers, device: 4 + workers)
    with pytest.raises(Killed) as caught:
        loop.train(dataclasses.replace(job(tmp_path, recipe("baseline")), loader_threads=setting), 0, 1, CPU)
    assert caught.value.args == (expected,)


def test_refuses_an_indivisible_batch_before_reading_data(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="5 workers cannot share a batch of 12 images"):
        loop.train(job(tmp_path, recipe("baseline")), 0, 5, CPU)  # the data set does not exist


@pytest.mark.slow
def test_watching_the_test_classes_saves_their_best_iterate_and_changes_no_weight(
    fresh_root: Callable[[], Path],
) -> None:
    unwatched, watching = (
        job(fresh_root(), recipe("baseline", training={"watch_test": flag})) for flag in (False, True)
    )
    judged: list[float] = []
    watch_test = loop.watch_test

    def recorded(embedder: RowEmbedder) -> dict[str, float]:
        metrics = watch_test(embedder)
        judged.append(metrics["map_at_r"])
        return metrics

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "watch_test", recorded)
        for training_job in (unwatched, watching):
            loop.train(training_job, 0, 1, CPU)
    assert len(judged) == 3  # validations after 5, 10 and 12 steps
    assert unwatched.outputs is not None
    assert watching.outputs is not None
    for name in ("weights.safetensors", "last.safetensors"):
        assert (unwatched.outputs.model / name).read_bytes() == (watching.outputs.model / name).read_bytes()
    assert not (unwatched.outputs.model / "best_on_test.safetensors").exists()
    history, watched = (read_history(of.history, "") for of in (unwatched.outputs, watching.outputs))
    assert [row["test_map_at_r"] for row in watched] == pytest.approx(judged)
    assert [{name: row[name] for name in row.keys() - TEST_METRICS} for row in watched] == history

    shards = Shards(watching.shards)
    rows = shards.rows("test")
    best_on_test = load_method(watching.outputs.model, "best_on_test")
    images = torch.cat([batch for batch, _ in EvalLoader(shards, rows, best_on_test.recipe.input, 64)])
    with torch.no_grad():
        embeddings = best_on_test.method.embed(
            normalize(images, *best_on_test.method.statistics(best_on_test.recipe.input))
        ).numpy()
    assert quick_metrics(embeddings, shards.labels[rows])["map_at_r"] == pytest.approx(max(judged), abs=1e-6)
