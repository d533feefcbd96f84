"""The start of a stage: messages, exit status, and the end with its parent."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from unseen.runtime.stage import PACKAGE

BODY = """
from unseen.runtime.errors import UserError
from unseen.runtime.stage import main
def run(dataset: str, seed: int) -> None:
    '''Prints its arguments.'''
    if dataset == "bad":
        raise UserError("data/raw/bad is empty.", "Put images there.")
    if dataset == "forbidden":
        raise PermissionError(13, "Permission denied", "data/x")
    if dataset == "defect":
        open("data/missing/file")
    if dataset == "edited":
        from unseen.runtime import running_code
        running_code._recorded["unseen.runtime.code"] = "the digest before an edit"
    if dataset == "wait":
        import time; print("waiting", flush=True); time.sleep(60)
    if dataset == "deaf":
        class Waiting:
            def __del__(self):
                import time; print("waiting", flush=True); time.sleep(30)
        Waiting(); time_left = 60; import time; time.sleep(time_left)
    if dataset == "closing":
        class Broken:
            def __del__(self):
                raise ValueError("a destructor failed")
        broken = Broken()
        try:
            import time; print("waiting", flush=True); time.sleep(60)
        finally:
            print("closing", flush=True); time.sleep(0.5); print("closed", flush=True)
    if dataset == "late":
        import atexit, time
        atexit.register(lambda: (print("waiting", flush=True), time.sleep(60)))
        return
    import os; print(dataset, seed + 1, os.getcwd())
main(run, "dataset", "seed")
"""


def stage(tmp_path: Path) -> Path:
    script = tmp_path / "stage.py"
    script.write_text(textwrap.dedent(BODY), encoding="utf-8")
    return script


def test_parses_axes_and_runs_in_the_project_above(tmp_path: Path) -> None:
    command = [sys.executable, stage(tmp_path), "fine", "3"]
    for folder in (PACKAGE.parent, PACKAGE / "runtime"):
        process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        assert process.stdout.split() == ["fine", "4", str(PACKAGE.parent)]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (1, "")
    assert f"error: Neither {tmp_path} nor a directory above it contains dvc.yaml." in process.stderr


def test_a_user_error_is_a_message_without_a_traceback(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, stage(tmp_path), "bad", "3"], capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    assert process.stderr == "error: data/raw/bad is empty.\n  Put images there.\n"


def test_a_problem_of_the_system_is_a_message_and_a_defect_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, stage(tmp_path)]
    process = subprocess.run([*command, "forbidden", "3"], capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert process.stderr.startswith("error: data/x cannot be accessed: Permission denied.\n  Allow it")
    assert "Traceback" not in process.stderr
    process = subprocess.run([*command, "defect", "3"], capture_output=True, text=True, check=False)
    assert "Traceback" in process.stderr


def test_a_stage_whose_code_changed_until_its_end_fails(tmp_path: Path) -> None:
    command = [sys.executable, stage(tmp_path), "edited", "3"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout.split()[:2]) == (1, ["edited", "4"])
    assert "error: The code changed during the run: unseen.runtime.code is not" in process.stderr


def test_refuses_a_stage_of_another_clone(tmp_path: Path) -> None:
    clone = tmp_path / "my clone" / "stages"
    clone.mkdir(parents=True)
    shutil.copy(stage(tmp_path), clone / "stage.py")
    process = subprocess.run(
        [sys.executable, clone / "stage.py", "fine", "3"], capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    assert process.stdout == ""
    root = Path(__file__).resolve().parents[2]
    assert process.stderr == (
        f"error: {clone}/stage.py belongs to {clone.parent}, but the package `unseen` was imported from "
        f"{root}.\n  Run it from its clone: cd '{clone.parent}' && python -m unseen.stages.stage\n"
    )


def test_a_stage_ends_with_its_parent(tmp_path: Path) -> None:
    if not sys.platform.startswith("linux"):
        return
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import subprocess, sys; subprocess.run([sys.executable, {str(stage(tmp_path))!r}, 'wait', "
            "'0'])",
        ],
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"waiting\n"
    (child,) = psutil.Process(parent.pid).children()
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 10
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_stage_of_an_ended_parent_does_no_work(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for parent, status in ((ended.pid, 128 + signal.SIGTERM), (os.getpid(), 0)):
        environment = os.environ | {"UNSEEN_PARENT": str(parent)}
        process = subprocess.run(
            [sys.executable, stage(tmp_path), "fine", "3"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == status
        assert bool(process.stdout) == (status == 0)


@pytest.mark.slow
def test_a_signal_in_a_destructor_ends_the_stage(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, stage(tmp_path), "deaf", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"waiting\n"
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=25)
    assert process.returncode == 128 + signal.SIGTERM
    assert 4 < time.monotonic() - began < 20, "the destructor did not swallow the exception of the signal"
    assert error == b""


def test_a_second_signal_does_not_interrupt_the_cleanup(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, stage(tmp_path), "closing", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    for line in (b"waiting\n", b"closing\n"):
        assert process.stdout.readline() == line
        process.send_signal(signal.SIGTERM)
    output, error = process.communicate(timeout=25)
    assert output == b"closed\n"
    assert process.returncode == 128 + signal.SIGTERM
    assert b"ValueError: a destructor failed" in error, "another error is reported"
    assert b"SystemExit" not in error
    assert b"_Terminated" not in error


def test_a_signal_after_the_work_ends_the_stage_without_output(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, stage(tmp_path), "late", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"waiting\n"
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=25)
    assert process.returncode == -signal.SIGTERM
    assert error == b""
