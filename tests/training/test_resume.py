"""The state directory: initial weights that remain after a kill, and messages about states of other
inputs."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.methods.small import METHODS
from tests.training.jobs import IMAGES, SIDE, job, killed_at, output_bytes, recipe, trained
from unseen.methods.artifact import load_method
from unseen.methods.build import initial_method
from unseen.runtime.errors import UserError
from unseen.training import loop
from unseen.training.job import Job

pytestmark = pytest.mark.usefixtures("every_checkpoint")

CPU = torch.device("cpu")
TRAINED_CLASSES = 8  # of 10; two are held out


def _kill_at(job: Job, step: int) -> Path:
    """Trains `job` until step `step` raises; returns its state."""
    with killed_at(step):
        loop.train(job, 0, 1, CPU)
    directory = Path(job.state or "") / job.dataset / job.method
    return max(directory.iterdir(), key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_untrained_weights_embed_as_the_network_before_its_first_step(root: Path, method: str) -> None:
    settings = recipe(method, training={"iterations": 2})
    trained(root, settings)
    initial = initial_method(settings, TRAINED_CLASSES, TRAINED_CLASSES * IMAGES, 0).eval()
    loaded = load_method(root / "data/models/tiny" / method / "0", "untrained").method
    selected = load_method(root / "data/models/tiny" / method / "0").method
    images = torch.randn(5, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(loaded.embed(images), initial.embed(images))
        assert not torch.equal(loaded.embed(images), selected.embed(images))


@pytest.mark.slow
def test_a_checkpoint_that_changes_afterwards_does_not_change_the_untrained_network(
    root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    donors = [
        initial_method(recipe("baseline"), TRAINED_CLASSES, 48, seed).backbone.network for seed in (1, 2)
    ]
    states = [{name: value.contiguous() for name, value in donor.state_dict().items()} for donor in donors]
    save_file(states[0], root / "start.safetensors")
    training_job = trained(
        root, recipe("baseline", backbone={"checkpoint": "start.safetensors"}, training={"iterations": 2})
    )
    save_file(states[1], root / "start.safetensors")
    assert training_job.outputs is not None
    # a relative path in the recipe does not exist here
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    loaded = load_method(training_job.outputs.model, "untrained").method.backbone.network.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in states[0].items())


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 3], ids=["before the first checkpoint", "after it"])
def test_a_resumed_run_writes_the_initial_weights_of_its_start(root: Path, step: int) -> None:
    training_job = trained(root, recipe("baseline"))
    straight = output_bytes(training_job)
    assert training_job.outputs is not None
    shutil.rmtree(training_job.outputs.model)
    state = _kill_at(training_job, step)
    assert (state / "untrained.safetensors").read_bytes() == straight["untrained.safetensors"]
    loop.train(training_job, 0, 1, CPU)
    assert output_bytes(training_job) == straight
    assert not state.exists()


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_missing_initial_weights_stop_a_resumed_run(root: Path, damage: str) -> None:
    training_job = job(root, recipe("baseline"))
    path = _kill_at(training_job, 3) / "untrained.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink() if damage == "missing" else path.write_bytes(content)
    with pytest.raises(
        UserError, match=rf"untrained\.safetensors is {damage}.*\n  Remove .*/0-\w+ and run again"
    ):
        loop.train(training_job, 0, 1, CPU)
    shutil.rmtree(path.parent)
    loop.train(training_job, 0, 1, CPU)


@pytest.mark.slow
def test_checkpoints_do_not_contain_the_initial_weights(root: Path) -> None:
    state = _kill_at(job(root, recipe("baseline")), 3)
    (newest,) = state.glob("*.pt")
    content = torch.load(newest, weights_only=True)
    assert len(content["state"]["record"]["untrained"]) == 64
    # before the first validation the only weights are those of the method
    assert set(content["parts"]) == {"best_weights", "best_on_test_weights", "memories"}
    assert not any(part["blocks"] for part in content["parts"].values())


def test_a_job_with_outputs_keeps_a_state(root: Path) -> None:
    with pytest.raises(ValueError, match="tiny/baseline/0 has outputs and no state"):
        dataclasses.replace(job(root, recipe("baseline")), state=None)


@pytest.mark.slow
def test_names_the_different_number_of_threads(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training_job = job(root, recipe("baseline", training={"iterations": 4}))
    state = _kill_at(training_job, 3)
    changed = job(root, recipe("baseline", training={"iterations": 4, "threads": 2}))
    capsys.readouterr()
    _kill_at(changed, 0)
    message = (
        f"{state} is of a run that did not end and that differs in "
        "recipe.training.threads (1, now 2): starting from the first step."
    )
    assert message in capsys.readouterr().err
    loop.train(training_job, 0, 1, CPU)
    assert "resuming at step 2" in capsys.readouterr().err


@pytest.mark.slow
def test_a_state_without_checkpoint_gives_no_message(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _kill_at(job(root, recipe("baseline")), 1)
    trained(root, recipe("baseline", training={"iterations": 3}))
    assert "starting from the first step" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_state_of_unknown_identity_is_reported(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training_job = job(root, recipe("baseline", training={"iterations": 4}))
    (_kill_at(training_job, 3) / "identity.json").unlink()
    trained(root, recipe("baseline", training={"iterations": 4, "threads": 2}))
    assert "differs in unknown inputs: starting from the first step." in capsys.readouterr().err
