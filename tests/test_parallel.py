"""Tests in forks: every test is reported once, in the process of its group, whatever ends the process."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFTEST = """
from tests.parallel import run_in_forks

def pytest_runtestloop(session):
    run_in_forks(session, [[0, 1, 2], [3, 4]], 2)
    return True
"""
TESTS = """
import os, signal, warnings
import pytest

@pytest.fixture(scope="session")
def process():
    yield os.getpid()
    print("torn down")

def test_killed():
    print("before")
    os.kill(os.getpid(), signal.SIGKILL)

def test_after(process):
    open("first", "w").write(str(process))

def test_same_process(process, tmp_path):
    assert open("first").read() == str(process)
    assert "fork-2" in str(tmp_path)

def test_fails(process):
    warnings.warn("seen", UserWarning)
    print("printed by the test")
    assert process == 0

@pytest.mark.skip(reason="without a device")
def test_skipped():
    pass
"""


def run(folder: Path, *options: str) -> str:
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (folder / "test_five.py").write_text(TESTS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-ra", "-p", "no:hydra_pytest", "-p", "no:cacheprovider"]
    process = subprocess.run(
        [*command, "--rootdir", ".", "-c", os.devnull, *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1, process.stdout + process.stderr
    return process.stdout


def test_a_killed_process_fails_its_test_and_the_rest_of_the_group_runs(tmp_path: Path) -> None:
    output = run(tmp_path)
    assert "2 failed, 2 passed, 1 skipped, 1 warning" in output
    assert "the process of the test ended with -9" in output
    assert "printed by the test" in output
    assert "without a device" in output
    assert "UserWarning: seen" in output


def test_stops_after_the_first_failure(tmp_path: Path) -> None:
    output = run(tmp_path, "-x")
    assert re.search(r"\b[12] failed", output)  # the other group may have failed at the same time
    assert "passed" not in output, "no test begins after the failure"
    assert "stopping after" in output
