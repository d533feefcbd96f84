"""Checkpoints: whole or not at all, noticed when damaged, never mixed up."""

import builtins
import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.runtime.errors import UserError
from pipeline.training import checkpoint


def _state(value: float) -> dict[str, Any]:
    return {
        "weights": torch.full((1000,), value),
        "rows": [{"iteration": 1, "loss": value}],
        "best": None,
        "seconds": {"step": 0.5},
    }


def test_two_newest_are_kept_and_the_newest_is_found(tmp_path: Path) -> None:
    for iteration in (5, 10, 100):
        checkpoint.save(tmp_path / "run", iteration, "me", _state(float(iteration)))
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["00000010.pt", "00000100.pt"]
    found = checkpoint.newest(tmp_path / "run", "me")
    assert found is not None
    iteration, state = found
    assert iteration == 100
    assert torch.equal(state["weights"], _state(100.0)["weights"])
    assert {name: state[name] for name in ("rows", "best", "seconds")} == {
        name: _state(100.0)[name] for name in ("rows", "best", "seconds")
    }
    assert checkpoint.at(tmp_path / "run", 10, "me")["rows"][0]["loss"] == 10.0


def test_no_directory_is_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "nothing", "me") is None


@pytest.mark.parametrize("damage", ["cut", "empty", "one bit"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    for iteration in (1, 2):
        checkpoint.save(tmp_path, iteration, "me", _state(float(iteration)))
    path = tmp_path / "00000002.pt"
    content = bytearray(path.read_bytes())
    if damage == "one bit":
        content[len(content) // 2] ^= 1
    path.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "one bit": bytes(content)}[damage])
    found = checkpoint.newest(tmp_path, "me")
    assert found is not None
    assert found[0] == 1
    assert found[1]["weights"][0] == 1.0
    assert "00000002.pt is damaged" in capsys.readouterr().err
    (tmp_path / "00000001.pt").write_bytes(b"x")
    with pytest.raises(UserError, match=r"None of the 2 checkpoints .* is whole"):
        checkpoint.newest(tmp_path, "me")
    with pytest.raises(UserError, match="this worker cannot read the checkpoint"):
        checkpoint.at(tmp_path, 2, "me")


def test_a_worker_that_does_not_see_the_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"00000007\.pt: this worker cannot read"):
        checkpoint.at(tmp_path, 7, "me")


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, "another", _state(1.0))
    with pytest.raises(UserError, match="belongs to another run: identity another, this run is me"):
        checkpoint.newest(tmp_path, "me")


def test_a_full_disk_is_one_message_and_leaves_the_older_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, 1, "me", _state(1.0))
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
        checkpoint.save(tmp_path, 2, "me", _state(2.0))
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["00000001.pt"]
    found = checkpoint.newest(tmp_path, "me")
    assert found is not None
    assert found[0] == 1


def test_what_a_killed_writer_left_is_swept(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, "me", _state(1.0))
    (tmp_path / ".00000002.pt.abc.partial").write_bytes(b"half")
    assert checkpoint.newest(tmp_path, "me") is not None
    assert [path.name for path in tmp_path.iterdir()] == ["00000001.pt"]
