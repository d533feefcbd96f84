"""A step whose numbers arrive late, as those of a GPU do: the history, the weights and the errors of a
training are those of a CPU."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.jobs import job, output_bytes, recipe, trained
from unseen.runtime.errors import UserError
from unseen.training import loop
from unseen.training.pace import CheckpointPace
from unseen.training.step import NotFinite, SubmittedStep

CPU = torch.device("cpu")


class Late(SubmittedStep):
    """A submitted step. Its numbers may be read only after the next step is submitted, or before a save."""

    submitted = 0

    def __init__(self, step: SubmittedStep, read: list[tuple[int, int]]) -> None:
        self.step, self.read = step, read
        self.number, self.learning_rate = step.number, step.learning_rate
        Late.submitted = step.number

    def result(self) -> Any:
        self.read.append((self.number, Late.submitted))
        return self.step.result()


@pytest.mark.slow
@pytest.mark.parametrize("due", [True, False])
def test_numbers_are_read_after_the_next_step_is_queued(
    due: bool, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except before a row of the history ends, and before a checkpoint that is written."""
    monkeypatch.setattr(CheckpointPace, "due", lambda self: due)
    monkeypatch.setattr(CheckpointPace, "patience", lambda self: 60.0)
    at_once = trained(root, recipe("baseline"))
    read: list[tuple[int, int]] = []
    original = loop.train_step
    monkeypatch.setattr(loop, "train_step", lambda *arguments: Late(original(*arguments), read))
    assert at_once.outputs is not None
    outputs = replace(
        at_once.outputs, model=tmp_path / "model", history=tmp_path / at_once.outputs.history.name
    )
    late = replace(at_once, outputs=outputs)
    loop.train(late, 0, 1, CPU)
    assert [number for number, _ in read] == list(range(12))
    saved = {1, 3, 5, 7, 9, 11} if due else set()
    of_rows = {4, 9, 11}
    assert [newest for _, newest in read] == [n if n in saved | of_rows else n + 1 for n in range(12)]
    assert output_bytes(late) == output_bytes(at_once)


@pytest.mark.slow
def test_a_late_number_that_is_not_finite_names_its_step(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Late):
        def result(self) -> Any:
            if self.number == 2:
                raise NotFinite({"loss": float("nan")}, [1])
            return super().result()

    original = loop.train_step
    monkeypatch.setattr(loop, "train_step", lambda *arguments: Broken(original(*arguments), []))
    with pytest.raises(UserError, match=r"Step 2: loss = nan. The outputs of 1 of its images are not finite"):
        trained(root, recipe("baseline"))
    assert Late.submitted == 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_repeats_the_history_of_the_cpu_closely(root: Path, tmp_path: Path) -> None:
    on_cpu = job(root, recipe("baseline"))
    assert on_cpu.outputs is not None
    outputs = replace(on_cpu.outputs, model=tmp_path / "model", history=tmp_path / "history.csv")
    expected = loop.train(on_cpu, 0, 1, CPU)
    row = loop.train(replace(on_cpu, outputs=outputs), 0, 1, torch.device("cuda", 0))
    assert row["loss"] == pytest.approx(expected["loss"], rel=1e-2)
