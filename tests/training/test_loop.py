"""A complete training: its outputs, its selection, its end, and byte-equal resumption."""

import csv
import dataclasses
import functools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pipeline.data.loader import EvalLoader, TrainBatch, normalize
from pipeline.data.shards import Shards
from pipeline.evaluation.metrics import quick_metrics
from pipeline.methods.artifact import load_method
from pipeline.report.report_data import read_history
from pipeline.runtime.errors import UserError
from pipeline.training import checkpoint, loop, outputs, pace, run
from pipeline.training.embed import RowEmbedder
from pipeline.training.history import TEST_METRICS
from pipeline.training.job import Job
from pipeline.training.log import Clock
from pipeline.training.step import Learner, NotFinite
from pipeline.training.worker import Worker
from tests.training.jobs import Killed, job, recipe, write_tiny_set

pytestmark = pytest.mark.usefixtures("every_checkpoint")

CPU = torch.device("cpu")


def _output_bytes(job: Job) -> dict[str, bytes]:
    """The bytes of all files that another stage reads."""
    assert job.outputs is not None
    files = [*sorted(job.outputs.model.iterdir()), job.outputs.history]
    return {path.name: path.read_bytes() for path in files}


def _log(job: Job) -> dict[str, Any]:
    assert job.outputs is not None
    log: dict[str, Any] = json.loads(job.outputs.log.read_text())
    return log


def _state(job: Job) -> list[Path]:
    directory = Path(job.state or "") / "tiny" / job.method
    return sorted(directory.iterdir()) if directory.exists() else []


def _killed_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """Lets step `step` raise before it does any work."""
    original = loop.train_step

    def train_step(*arguments: Any) -> Any:
        if arguments[1].step == step:
            raise Killed
        return original(*arguments)

    patch.setattr(loop, "train_step", train_step)


def _interrupted(job: Job, steps: tuple[int, ...]) -> None:
    """Trains `job`, killed and restarted at each of `steps`, then to the end."""
    for step in steps:
        with pytest.MonkeyPatch.context() as patch:
            _killed_at(step, patch)
            with pytest.raises(Killed):
                loop.train(job, 0, 1, CPU)
        assert job.outputs is not None
        assert not job.outputs.model.exists()
    loop.train(job, 0, 1, CPU)


@pytest.fixture(scope="session")
def fresh_root(tmp_path_factory: pytest.TempPathFactory, tiny_set: Path) -> Callable[[], Path]:
    def make() -> Path:
        root = tmp_path_factory.mktemp("root")
        (root / "data/shards").mkdir(parents=True)
        (root / "data/shards/tiny").symlink_to(tiny_set / "data/shards/tiny")
        return root

    return make


@pytest.mark.slow
def test_outs_of_a_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports: list[dict[str, float]] = []
    training_job = job(root, recipe("baseline"))
    result = loop.train(training_job, 0, 1, CPU, report=reports.append)
    assert training_job.outputs is not None

    with open(training_job.outputs.history, newline="") as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
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
    log = _log(training_job)
    assert log["images_per_second"] > 0
    assert set(log["seconds"]) == {"start_up", "data_wait", "step", "validation", "checkpoint"}
    assert log["resumed_at"] == []
    assert _state(training_job) == []  # the state of an ended run is deleted
    assert "144/144 images" in capsys.readouterr().err


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
    assert _log(training_job)["resumed_at"] == [8]


def _raise_killed(*_: Any) -> None:
    raise Killed


@pytest.fixture(scope="session")
def uninterrupted_bytes(fresh_root: Callable[[], Path]) -> Callable[[str], dict[str, bytes]]:
    """The output bytes of a method's training that was not interrupted; each is trained once."""

    @functools.cache
    def trained(method: str) -> dict[str, bytes]:
        straight = job(fresh_root(), recipe(method))
        loop.train(straight, 0, 1, CPU)
        return _output_bytes(straight)

    return trained


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "steps"),
    [
        ("irt", (1, 4, 7, 11)),  # the memory of 36 is full at step 3 and then overwrites its rows
        # One step of average pooling; the memory of 48 is full after four; then prototypes are chosen.
        ("gsp", (2, 4, 6, 9)),
    ],
)
def test_a_repeatedly_killed_run_ends_with_the_same_bytes(
    root: Path, uninterrupted_bytes: Callable[[str], dict[str, bytes]], method: str, steps: tuple[int, ...]
) -> None:
    broken = job(root, recipe(method))
    _interrupted(broken, steps)
    assert _output_bytes(broken) == uninterrupted_bytes(method)
    checkpoint_steps = (2, 4, 5, 6, 8, 10, 12)
    assert _log(broken)["resumed_at"] == [
        max(w for w in checkpoint_steps if w <= step) for step in steps if step >= 2
    ]
    assert _state(broken) == []


def _train_and_die(job: Job, iteration: int) -> None:
    """Trains in this process and kills it in the middle of the checkpoint of an iteration."""
    original = torch.save

    def save(content: Any, file: Any) -> None:
        if content["iteration"] == iteration:
            file.write(b"half of it")
            os.kill(os.getpid(), signal.SIGKILL)
        original(content, file)

    pace.SHORT = 60.0
    checkpoint.torch.save = save
    loop.train(job, 0, 1, CPU)


@pytest.mark.slow
def test_a_kill_during_a_checkpoint_resumes_from_the_previous_one(
    root: Path, uninterrupted_bytes: Callable[[str], dict[str, bytes]]
) -> None:
    broken = job(root, recipe("irt"))
    process = multiprocessing.get_context("forkserver").Process(target=_train_and_die, args=(broken, 8))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (state,) = _state(broken)
    names = sorted(path.name for path in state.iterdir())
    assert [name for name in names if name.endswith(".pt")] == ["00000005.pt", "00000006.pt"]
    assert [name.split(".")[1] for name in names if name.endswith(".partial")] == ["00000008"]
    loop.train(broken, 0, 1, CPU)
    assert _output_bytes(broken) == uninterrupted_bytes("irt")
    assert _log(broken)["resumed_at"] == [6]


@pytest.mark.slow
def test_a_damaged_checkpoint_resumes_from_the_previous_one(
    root: Path,
    uninterrupted_bytes: Callable[[str], dict[str, bytes]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = job(root, recipe("irt"))
    with pytest.MonkeyPatch.context() as patch:
        _killed_at(9, patch)
        with pytest.raises(Killed):
            loop.train(broken, 0, 1, CPU)
    (state,) = _state(broken)
    newest = max(state.glob("*.pt"))
    os.truncate(newest, newest.stat().st_size // 2)
    loop.train(broken, 0, 1, CPU)
    assert "00000008.pt is damaged" in capsys.readouterr().err
    assert _log(broken)["resumed_at"] == [6]
    assert _output_bytes(broken) == uninterrupted_bytes("irt")


@pytest.mark.slow
def test_a_changed_recipe_does_not_resume_and_deletes_the_old_state(
    fresh_root: Callable[[], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = recipe("baseline", optimizer={"weight_decay": 0.5})
    straight = job(fresh_root(), changed)
    loop.train(straight, 0, 1, CPU)
    root = fresh_root()
    with monkeypatch.context() as patch:
        _killed_at(7, patch)
        with pytest.raises(Killed):
            loop.train(job(root, recipe("baseline")), 0, 1, CPU)
    changed_job = job(root, changed)
    assert len(_state(changed_job)) == 1
    loop.train(changed_job, 0, 1, CPU)
    message = (
        "did not end and that differs in recipe.optimizer.weight_decay (0.01, now 0.5): starting from the "
        "first step."
    )
    assert message in capsys.readouterr().err
    assert _log(changed_job)["resumed_at"] == []
    assert _output_bytes(changed_job) == _output_bytes(straight)
    assert _state(changed_job) == []


@pytest.mark.slow
def test_refuses_a_checkpoint_in_the_state_of_another_recipe(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = job(root, recipe("baseline")), job(root, recipe("baseline", training={"iterations": 11}))
    for training_job in (first, second):
        with monkeypatch.context() as patch:
            _killed_at(3, patch)
            with pytest.raises(Killed):
                loop.train(training_job, 0, 1, CPU)
    older, newest = _state(first)
    (older / "00000002.pt").replace(newest / "00000004.pt")
    (newest / "00000002.pt").replace(older / "00000004.pt")
    for training_job in (first, second):
        with pytest.raises(UserError, match="belongs to another run"):
            loop.train(training_job, 0, 1, CPU)


@pytest.mark.slow
def test_a_full_disk_stops_the_run_without_partial_outputs(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    training_job = job(root, recipe("baseline"))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.torch, "save", full)
        with pytest.raises(UserError, match=r"The disk is full: .*00000002\.pt"):
            loop.train(training_job, 0, 1, CPU)
    with monkeypatch.context() as patch:
        patch.setattr(outputs, "save_recipe", full)
        with pytest.raises(UserError, match=r"The disk is full: .*models/tiny/baseline/0"):
            loop.train(training_job, 0, 1, CPU)
    assert training_job.outputs is not None
    assert list(training_job.outputs.model.parent.iterdir()) == []
    loop.train(training_job, 0, 1, CPU)  # the same command ends the run when the disk has room
    assert _log(training_job)["resumed_at"] == [12]


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
    monkeypatch.setattr(loop, "loader_threads_of", lambda workers: 4 + workers)
    with pytest.raises(Killed) as caught:
        loop.train(dataclasses.replace(job(tmp_path, recipe("baseline")), loader_threads=setting), 0, 1, CPU)
    assert caught.value.args == (expected,)


def test_refuses_an_indivisible_batch_before_reading_data(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="5 workers cannot share a batch of 12 images"):
        loop.train(job(tmp_path, recipe("baseline")), 0, 5, CPU)  # the data set does not exist


_COMPILED = """
import sys
sys.path[:0] = [{tests!r}, {root!r}]
from pathlib import Path
import torch
from tests.training.jobs import job, recipe
from pipeline.models.backbone import Backbone
from pipeline.training import loop
calls = []
def compile_eagerly(self):
    calls.append(self)
    torch.nn.Module.compile(self, backend="eager")
Backbone.compile = compile_eagerly
compiled = recipe("baseline", training={{"iterations": 3, "validate_every": 3, "compile": True}})
loop.train(job(Path({work!r}), compiled), 0, 1, torch.device("cpu"))
assert len(calls) == 1
"""


@pytest.mark.slow
def test_a_compiled_backbone_trains_to_the_same_weights(fresh_root: Callable[[], Path]) -> None:
    """Traced and run by torch's eager backend, which needs no compiler. It runs in its own process because
    checks of shapes cannot be traced."""
    eager, traced = (
        job(
            fresh_root(), recipe("baseline", training={"iterations": 3, "validate_every": 3, "compile": flag})
        )
        for flag in (False, True)
    )
    loop.train(eager, 0, 1, CPU)
    root = Path(__file__).resolve().parents[2]
    script = _COMPILED.format(tests=str(root / "tests/training"), root=str(root), work=str(traced.root))
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
    assert eager.outputs is not None
    assert traced.outputs is not None
    expected, weights = (
        load_file(training_job.outputs.model / "last.safetensors") for training_job in (eager, traced)
    )
    assert expected.keys() == weights.keys()
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-5, atol=1e-6)


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
    history, watched = (read_history(of.history) for of in (unwatched.outputs, watching.outputs))
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
