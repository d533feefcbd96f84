"""A lock file of DVC that a kill damaged is removed; any other remains."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.lock import LockError, make_lock

from pipeline.runtime.stage import ROOT
from pipeline.scheduling.lock_file import remove_damaged_lock_file


@pytest.mark.parametrize("content", ["", '{"write": {', "\0\0"])
def test_removes_a_damaged_file(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rwlock"
    path.write_text(content)
    remove_damaged_lock_file(tmp_path)
    assert not path.exists()
    assert capsys.readouterr().err == f"removed {path}, which a killed DVC left damaged\n"


def test_a_valid_or_absent_file_remains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remove_damaged_lock_file(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "rwlock").write_text('{"read": {}}')
    remove_damaged_lock_file(tmp_path)
    assert (tmp_path / "rwlock").read_text() == '{"read": {}}'
    assert capsys.readouterr().err == ""


def test_a_file_that_dvc_writes_remains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dvc.lock.DEFAULT_TIMEOUT", 0)
    (tmp_path / "rwlock").write_text("")
    with make_lock(str(tmp_path / "rwlock.lock"), tmp_dir=str(tmp_path)), pytest.raises(LockError):
        remove_damaged_lock_file(tmp_path)
    assert (tmp_path / "rwlock").exists()


@pytest.mark.graph
def test_unseen_run_continues_after_dvc_alone_fails(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text("stages: {hello: {cmd: echo hello}}")
    for command in (["git", "init", "-q"], ["dvc", "init", "-q"]):
        subprocess.run(command, cwd=tmp_path, check=True)
    (tmp_path / ".dvc/tmp").mkdir(exist_ok=True)
    (tmp_path / ".dvc/tmp/rwlock").write_text("")
    alone = subprocess.run(["dvc", "repro"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Unable to read RWLock-file" in alone.stderr
    script = "from pipeline.scheduling.processes import dvc; raise SystemExit(dvc(['repro'], {}).wait())"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True)
