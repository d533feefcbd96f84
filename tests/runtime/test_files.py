"""Files appear whole or not at all."""

import errno
import os
from pathlib import Path

import pytest

from pipeline.runtime.errors import UserError
from pipeline.runtime.files import atomic_directory, atomic_file, write_json


def test_a_file_is_replaced_only_by_a_whole_one(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "value.json"
    write_json(target, {"b": 1, "a": 0.5})
    assert target.read_text() == '{\n  "a": 0.5,\n  "b": 1\n}\n'
    with pytest.raises(RuntimeError, match="stopped"), atomic_file(target) as aside:
        aside.write_text("half")
        raise RuntimeError("stopped")
    assert target.read_text().startswith('{\n  "a"')
    assert sorted(p.name for p in target.parent.iterdir()) == ["value.json"]


def test_nan_never_reaches_a_json_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nan"):
        write_json(tmp_path / "x.json", {"a": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_replaced_only_by_a_whole_one(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with atomic_directory(target) as aside:
        (aside / "old").write_text("1")
    with atomic_directory(target) as aside:
        (aside / "new").write_text("2")
    assert [p.name for p in target.iterdir()] == ["new"]
    with pytest.raises(RuntimeError, match="stopped"), atomic_directory(target) as aside:
        (aside / "other").write_text("3")
        raise RuntimeError("stopped")
    assert [p.name for p in target.iterdir()] == ["new"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".out.x1.partial").mkdir()
    (tmp_path / ".out.x1.partial" / "half").write_text("1")
    with atomic_directory(tmp_path / "out") as aside:
        (aside / "whole").write_text("2")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_is_a_message_and_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with pytest.raises(UserError, match=r"disk is full: .*out could not be written \(\d.* MiB free") as caught, atomic_directory(target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "same command again" in str(caught.value)
    assert "gc --all-commits --all-experiments" in str(caught.value)
    assert "gc --workspace" not in str(caught.value), "it deletes the cached models of other commits"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(PermissionError), atomic_directory(target):
        raise PermissionError(errno.EACCES, "no")
