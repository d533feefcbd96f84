"""Nothing connects to a network unless a user requests it: the stages and the search of a catalog run in a
namespace without any network, not even loopback."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNSHARE = ["unshare", "--map-root-user", "--net"]
PROGRAM = """
import errno, os, socket, sys
from pathlib import Path
from tests.torture.operations import PREPARATION, required, write_project

for address in ("192.0.2.1", "127.0.0.1"):
    with socket.socket() as probe:
        try:
            probe.connect((address, 9))
        except OSError as error:
            assert error.errno == errno.ENETUNREACH, error
        else:
            raise AssertionError(f"{address} can be reached")
project = Path(sys.argv[1])
write_project(project)
os.chdir(project)
for operation in required(["evaluate", "catalog find"]):
    if operation.name in PREPARATION:
        PREPARATION[operation.name](project)
    operation.run()
    assert all((project / output).exists() for output in operation.outputs)
    print("ran", operation.name)
"""


def permitted() -> bool:
    """Whether this user may create a network namespace."""
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not permitted(), reason="no permission to create a network namespace")
def test_stages_and_search_need_no_network(tmp_path: Path) -> None:
    process = subprocess.run(
        [*UNSHARE, sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    ran = [line.removeprefix("ran ") for line in process.stdout.splitlines() if line.startswith("ran ")]
    assert ran == ["resolve", "ingest", "train", "export", "evaluate", "catalog build", "catalog find"]
