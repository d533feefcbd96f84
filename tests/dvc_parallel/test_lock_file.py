"""A lock file of DVC that a kill damaged is removed, and so are entries of ended processes in it; others
remain."""

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from dvc.lock import LockError, make_lock
from dvc_objects.fs.utils import tmp_fname
from psutil import Process

from dvc_parallel.lock_file import remove_partial, repair_lock_file
from tests.dvc_parallel.conftest import ROOT
from unseen.runtime.flock import held

NAMESPACE = ("unshare", "--map-root-user", "--pid", "--fork", "--mount-proc")


@pytest.mark.parametrize("content", ["", '{"write": {', "\0\0"])
def test_removes_a_damaged_file(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rwlock"
    path.write_text(content)
    repair_lock_file(tmp_path)
    assert not path.exists()
    assert capsys.readouterr().err == f"removed {path}, which a killed DVC left damaged\n"


def test_a_valid_or_absent_file_remains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repair_lock_file(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "rwlock").write_text('{"read": {}}')
    repair_lock_file(tmp_path)
    assert (tmp_path / "rwlock").read_text() == '{"read": {}}'
    assert capsys.readouterr().err == ""


def content(pid: int, command: str) -> dict[str, Any]:
    """A lock file in which a process reads and writes, and this one reads the same path."""
    entry, own = {"pid": pid, "cmd": command}, {"pid": os.getpid(), "cmd": " ".join(Process().cmdline()[1:])}
    return {"read": {"in": [entry, own], "other": [entry]}, "write": {"out": entry}}


def test_entries_of_ended_processes_are_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rwlock"
    command = [sys.executable, "-c", "import time; time.sleep(60)", "--single-item", "export@a b"]
    repro = "/clone/.venv/bin/dvc repro --single-item"
    with subprocess.Popen([sys.executable, "-c", ""]) as zombie, subprocess.Popen(command) as other:
        try:
            while Process(zombie.pid).status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.01)
            path.write_text(json.dumps(content(other.pid, f"{repro} export@a b")))
            repair_lock_file(tmp_path)
            assert json.loads(path.read_text()) == content(other.pid, f"{repro} export@a b")
            assert capsys.readouterr().err == ""
            for pid, stage in ((zombie.pid, "export@a b"), (other.pid, "export@a c")):
                path.write_text(json.dumps(content(pid, f"{repro} {stage}")))
                repair_lock_file(tmp_path)
                remaining = json.loads(path.read_text())
                assert list(remaining) == ["read"], stage
                assert [entry["pid"] for entry in remaining["read"].pop("in")] == [os.getpid()]
                assert remaining["read"] == {}
                assert capsys.readouterr().err == f"removed the entries of killed processes from {path}\n"
        finally:
            other.kill()


def test_what_ended_processes_left_is_removed_if_no_other_process_writes(tmp_path: Path) -> None:
    folder, output = tmp_path / ".dvc/tmp", tmp_path / "data/out"
    files = [
        tmp_path / ".dvc/cache/files/md5/0a" / tmp_fname("0ab.dir"),
        *(tmp_path / name / tmp_fname() for name in (".dvc/cache/files/md5/0a", "data", "other")),
    ]
    for file in (*files, folder / "x"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    partial = tmp_path / ".dvc.lock.partial"
    partial.touch()
    empty = tmp_path / ".dvc/cache/runs/0a/0ab"  # DVC fails at it
    empty.mkdir(parents=True)
    own = {"pid": os.getpid(), "cmd": " ".join(Process().cmdline()[1:])}
    for entries, left in (({"in": [own]}, files), ({}, files[3:])):
        (folder / "rwlock").write_text(json.dumps({"read": entries}))
        remove_partial(folder, [output])
        assert [file for file in files if file.exists()] == left
        assert empty.exists() == partial.exists() == (left == files)


def test_a_file_that_dvc_writes_remains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dvc.lock.DEFAULT_TIMEOUT", 0)
    (tmp_path / "rwlock").write_text("")
    with make_lock(str(tmp_path / "rwlock.lock"), tmp_dir=str(tmp_path)), pytest.raises(LockError):
        repair_lock_file(tmp_path)
    assert (tmp_path / "rwlock").exists()


@pytest.mark.skipif(
    subprocess.run([*NAMESPACE, "true"], check=False).returncode != 0, reason="namespaces are not allowed"
)
def test_a_run_in_another_pid_namespace_leaves_the_entries_of_a_stage_that_runs(tmp_path: Path) -> None:
    """The stage is a process of this namespace. The other one does not see it."""
    folder = tmp_path / ".dvc/tmp"
    folder.mkdir(parents=True)
    path, script = (
        folder / "rwlock",
        "from dvc_parallel import lock_file as m; m.GRACE = 0; m.repair_lock_file()",
    )
    entry = {"pid": os.getpid(), "cmd": " ".join(Process().cmdline()[1:])}
    path.write_text(text := json.dumps({"write": {"out": entry}}))
    command = [*NAMESPACE, sys.executable, "-c", script]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    def repair() -> str:
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        return ended.stderr.strip().splitlines()[-2 if ended.returncode else -1]

    with held(tmp_path, lock=fcntl.LOCK_SH):
        assert f"runs a stage of {tmp_path}." in repair()
        assert path.read_text() == text
    assert repair() == "removed the entries of killed processes from .dvc/tmp/rwlock"


@pytest.mark.graph
@pytest.mark.parametrize("damaged", [True, False])
def test_unseen_run_continues_after_dvc_alone_fails(damaged: bool, tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text("stages: {hello: {cmd: echo hello > out, outs: [out]}}")
    for command in (["git", "init", "-q"], ["dvc", "init", "-q"]):
        subprocess.run(command, cwd=tmp_path, check=True)
    with subprocess.Popen([sys.executable, "-c", ""]) as zombie:
        entry = {"pid": zombie.pid, "cmd": "dvc repro hello"}
        text = "" if damaged else json.dumps({"write": {str(tmp_path / "out"): entry}})
        (tmp_path / ".dvc/tmp").mkdir(exist_ok=True)
        (tmp_path / ".dvc/tmp/rwlock").write_text(text)
        alone = subprocess.run(["dvc", "repro"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ("Unable to read RWLock-file" if damaged else "being blocked by") in alone.stderr
        (tmp_path / tmp_fname()).touch()
        script = "from dvc_parallel.sequence import run; raise SystemExit(run([]))"
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "out").read_text() == "hello\n"
    assert not [*tmp_path.glob("*.tmp"), *tmp_path.glob(".dvc/tmp/unfinished*")]
