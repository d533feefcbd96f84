"""A sample of the campaign, and the faults themselves."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torture import file_operations, shim
from tests.torture.file_operations import Case, Ended, state_of
from tests.torture.operations import Operation

ROOT = Path(__file__).resolve().parents[2]
needs_compiler = pytest.mark.skipif(shim.compiler() is None, reason="needs Linux and a C compiler")

# Writes a file in two steps; the fault of the second argument fails the operation of the first one.
PROGRAM = """
import os, sys
from pathlib import Path
from tests.torture import shim
shim.restart_with_library()
folder, number, fault = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
Path(folder.parent, "outside").write_text("not counted")
shim.arm(folder, number, shim.FAULTS.get(fault, shim.NONE))
try:
    (folder / "a").mkdir()
    with open(folder / "a" / "b", "w") as file:
        file.write("1")
        file.flush()
        os.fsync(file.fileno())
    os.replace(folder / "a" / "b", folder / "a" / "c")
    (folder / "a" / "c").unlink()
except OSError as error:
    print(error.strerror)
print(shim.count(), sorted(path.name for path in folder.rglob("*")))
"""


@needs_compiler
@pytest.mark.parametrize(
    ("number", "fault", "output"),
    [
        (0, "none", "6 ['a']"),  # mkdir, open, write, fsync, rename, unlink
        (1, "ENOSPC", "No space left on device\n1 []"),
        (3, "EIO", "Input/output error\n4 ['a', 'b']"),  # the file is written when it is closed
        (5, "EACCES", "Permission denied\n5 ['a', 'b']"),
        (6, "SIGKILL", ""),
        (6, "power loss", ""),
    ],
)
def test_the_library_fails_the_counted_operation(
    tmp_path: Path, number: int, fault: str, output: str
) -> None:
    (tmp_path / "below").mkdir()
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "below"), str(number), fault]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.stdout.strip() == output, process.stderr
    assert process.returncode == (-9 if fault in shim.ENDS else 0)


@needs_compiler
@pytest.mark.parametrize(("number", "content"), [(3, ""), (4, ""), (5, "1")])
def test_a_loss_of_power_drops_what_was_not_synced(tmp_path: Path, number: int, content: str) -> None:
    """Before the fsync (4) the file is lost, at the rename after it (5) it is durable."""
    (tmp_path / "below").mkdir()
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "below"), str(number), "power loss"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -9
    assert (tmp_path / "below/a/b").read_text() == content


def test_the_state_contains_every_name_and_content_except_random_parts(tmp_path: Path) -> None:
    def state() -> str:
        return state_of(tmp_path, ["times"])

    for name in ("out", "times", f".out.{'a' * 32}.partial"):
        (tmp_path / name).write_text("1")
    first = state()
    (tmp_path / f".out.{'a' * 32}.partial").rename(tmp_path / f".out.{'b' * 32}.partial")
    (tmp_path / "times").write_text("2")
    assert state() == first
    states = {first}
    (tmp_path / f".out.{'b' * 32}.partial").write_text("10")
    states.add(state())
    (tmp_path / "empty").mkdir()
    states.add(state())
    (tmp_path / "times").unlink()
    states.add(state())
    assert len(states) == 4


def test_the_next_run_is_omitted_after_a_state_from_which_it_succeeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first fault leaves the old file, the third one a partial file that makes the next run fail."""
    project = tmp_path / "project"
    project.mkdir()
    runs: list[int] = []

    def run(operation: Operation, folder: Path, number: int = 0, fault: int = shim.NONE) -> Ended:
        runs.append(number)
        if number == 3:
            (folder / "partial").touch()
        if number or (folder / "partial").exists():
            return Ended(1, "error: a fault")
        (folder / "out").write_text("new")
        return Ended(0, "", operations=5)

    monkeypatch.setattr(file_operations, "run", run)
    case = Case(Operation("drawn", lambda: None, ("out",), ()), project)
    assert (case.operations, runs) == (5, [0, 0])  # the count is that of a run that replaces the output
    runs.clear()
    assert [case.violations(number, "EIO") for number in (1, 2)] == [[], []]
    assert runs == [1, 0, 2]
    for _ in range(2):  # a state from which a run failed is tried again
        runs.clear()
        assert case.violations(3, "EIO")[0] == "the next run fails: error: a fault"
        assert runs == [3, 0]


@pytest.mark.slow
@needs_compiler
def test_a_sample_of_a_sweep_survives_every_fault(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    command = [sys.executable, "-m", "tests.torture.file_operations", "sweep records", "--stride", "40"]
    process = subprocess.run(
        [*command, "--state", str(state), "--result", str(tmp_path / "result.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    record = json.loads(state.read_text())["sweep records"]
    assert record["operations"] > 10
    assert len(record["cases"]) >= len(shim.FAULTS)
    assert not any(record["cases"].values())
    counts = json.loads((tmp_path / "result.json").read_text())["sweep records"]
    assert (counts["cases"], counts["violations"]) == (len(record["cases"]), {})
