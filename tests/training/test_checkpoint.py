"""Checkpoints: written completely or not at all, damage is detected, runs are never confused."""

import builtins
import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from unseen.runtime.errors import UserError
from unseen.training import checkpoint
from unseen.training.checkpoint import Checkpoints


def _state(value: float) -> dict[str, Any]:
    return {
        "weights": torch.full((1000,), value),
        "rows": [{"iteration": 1, "loss": value}],
        "best": None,
        "seconds": {"step": 0.5},
    }


def test_keeps_the_two_newest_and_finds_the_newest(tmp_path: Path) -> None:
    for iteration in (5, 10, 100):
        Checkpoints(tmp_path / "run", "me").save(iteration, _state(float(iteration)), {})
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["00000010.pt", "00000100.pt"]
    newest = Checkpoints(tmp_path / "run", "me").newest()
    assert newest is not None
    iteration, state = newest
    assert iteration == 100
    assert torch.equal(state["weights"], _state(100.0)["weights"])
    assert {name: state[name] for name in ("rows", "best", "seconds")} == {
        name: _state(100.0)[name] for name in ("rows", "best", "seconds")
    }
    assert Checkpoints(tmp_path / "run", "me").at(10)["rows"][0]["loss"] == 10.0


def test_a_resumed_run_keeps_the_blocks_of_the_checkpoint_before(tmp_path: Path) -> None:
    """A run that read no checkpoint does not know their blocks."""
    parts = [{"network": {"weight": torch.full((1000,), float(value))}} for value in range(3)]
    for iteration, part in enumerate(parts):
        Checkpoints(tmp_path, "me").save(iteration, _state(0.0), part)
    for iteration in (1, 2):
        state = Checkpoints(tmp_path, "me").at(iteration)
        assert torch.equal(state["network"]["weight"], parts[iteration]["network"]["weight"])


def test_no_directory_is_no_checkpoint(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "nothing", "me").newest() is None


@pytest.mark.parametrize("damage", ["cut", "empty", "one bit"])
def test_names_a_damaged_checkpoint_and_uses_the_previous_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    for iteration in (1, 2):
        Checkpoints(tmp_path, "me").save(iteration, _state(float(iteration)), {})
    path = tmp_path / "00000002.pt"
    content = bytearray(path.read_bytes())
    if damage == "one bit":
        content[len(content) // 2] ^= 1
    path.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "one bit": bytes(content)}[damage])
    newest = Checkpoints(tmp_path, "me").newest()
    assert newest is not None
    assert newest[0] == 1
    assert newest[1]["weights"][0] == 1.0
    assert "00000002.pt is damaged" in capsys.readouterr().err
    (tmp_path / "00000001.pt").write_bytes(b"x")
    with pytest.raises(UserError, match=r"None of the 2 checkpoints .* is whole"):
        Checkpoints(tmp_path, "me").newest()
    with pytest.raises(UserError, match="this worker cannot read the checkpoint"):
        Checkpoints(tmp_path, "me").at(2)


def test_names_the_worker_without_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"00000007\.pt: this worker cannot read"):
        Checkpoints(tmp_path, "me").at(7)


def test_refuses_a_checkpoint_of_another_run(tmp_path: Path) -> None:
    Checkpoints(tmp_path, "another").save(1, _state(1.0), {})
    with pytest.raises(UserError, match="belongs to another run: identity another, this run is me"):
        Checkpoints(tmp_path, "me").newest()


def test_a_full_disk_is_a_user_error_and_keeps_older_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Checkpoints(tmp_path, "me").save(1, _state(1.0), {})
    opened = builtins.open

    class Full:
        """A file on a disk with room for a hundred bytes."""

        def __init__(self, file: Any) -> None:
            self.file, self.room = file, 100

        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, block: Any) -> int:
            self.room -= len(block)
            if self.room < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return self.file.write(block)

        def flush(self) -> None:
            self.file.flush()

    monkeypatch.setattr(checkpoint, "open", lambda path, mode: Full(opened(path, mode)), raising=False)
    with pytest.raises(UserError, match=r"The disk is full: .*00000002\.pt could not be written"):
        Checkpoints(tmp_path, "me").save(2, _state(2.0), {})
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["00000001.pt"]
    newest = Checkpoints(tmp_path, "me").newest()
    assert newest is not None
    assert newest[0] == 1


def test_removes_the_files_of_a_killed_writer(tmp_path: Path) -> None:
    Checkpoints(tmp_path, "me").save(1, _state(1.0), {})
    (tmp_path / ".00000002.pt.abc.partial").write_bytes(b"half")
    assert Checkpoints(tmp_path, "me").newest() is not None
    assert [path.name for path in tmp_path.iterdir()] == ["00000001.pt"]
