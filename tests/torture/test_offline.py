"""Nothing connects to a network unless a user requests it: the stages, the search of a catalog and its
service run in a namespace without any network, not even loopback. Their outputs contain neither secrets of
the environment nor folders of the machine."""

import os
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
from tests.torture.uploads import Service, valid_request

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
for operation in required(["report", "catalog find"]):
    if operation.name in PREPARATION:
        PREPARATION[operation.name](project)
    operation.run()
    assert all((project / output).exists() for output in operation.outputs)
    print("ran", operation.name)
Service(project / "data/catalog")(valid_request(next((project / "photos").iterdir()).read_bytes()))
print("ran service")
"""
STAGES = ["resolve", "ingest", "train", "export", "evaluate", "analyze", "report"]
SECRET = "s3cr3t-of-the-environment"


def permitted() -> bool:
    """Whether this user may create a network namespace."""
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A project in which everything ran without a network, and the process that ran it."""
    if not permitted():
        pytest.skip("no permission to create a network namespace")
    project = tmp_path_factory.mktemp("offline")
    secrets = dict.fromkeys(("UNSEEN_TOKEN", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "RAY_AUTH_TOKEN"), SECRET)
    process = subprocess.run(
        [*UNSHARE, sys.executable, "-c", PROGRAM, str(project)],
        cwd=ROOT,
        env=os.environ | secrets,
        capture_output=True,
        text=True,
        check=False,
    )
    return project, process


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_stages_search_and_service_need_no_network(
    offline: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    _, process = offline
    assert process.returncode == 0, process.stderr
    ran = [line.removeprefix("ran ") for line in process.stdout.splitlines() if line.startswith("ran ")]
    assert sorted(ran) == sorted([*STAGES, "catalog build", "catalog find", "service"])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_outputs_contain_no_secret_and_no_folder_of_the_machine(
    offline: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    project, process = offline
    contents = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    assert len(contents) > 30
    assert SECRET not in process.stdout + process.stderr
    for path, content in contents.items():
        assert SECRET.encode() not in content, path
        if path != project / "data/catalog/catalog.json":  # it names the folder of the photos
            assert str(project).encode() not in content, path
