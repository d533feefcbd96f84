"""A sample of the campaign, and the faults themselves."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torture import shim

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
    ],
)
def test_the_library_fails_the_counted_operation(
    tmp_path: Path, number: int, fault: str, output: str
) -> None:
    (tmp_path / "below").mkdir()
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "below"), str(number), fault]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.stdout.strip() == output, process.stderr
    assert process.returncode == (-9 if fault == "SIGKILL" else 0)


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
