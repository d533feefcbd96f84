"""The private Ray cluster that the stages of a parallel run share."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from unseen.cluster import run_cluster
from unseen.cluster.connection import RUN_CLUSTER, Cluster
from unseen.cluster.launcher import RunCluster, resources
from unseen.runtime.errors import UserError
from unseen.runtime.stage import PARENT, ROOT

STAGE = """
    import json
    from unseen.cluster.connection import connection
    with connection(2, gpu=False) as cluster:
        import ray
        @ray.remote
        def add(a, b):
            return a + b
        session = ray.get_runtime_context().gcs_address
        print(json.dumps([ray.get(add.remote(1, 2)), session, cluster.private, cluster.shared, cluster.cpus]))
"""
JOINED = """
    import time
    from unseen.cluster.connection import connection
    with connection(1, gpu=False):
        print("joined", flush=True)
        time.sleep(200)
"""
CLOSING = """
    from unseen.cluster import run_cluster
    from unseen.runtime import stage
    stage._GRACE = 100.0  # a busy machine needs more than the 5 s of a run
    start = run_cluster.start_closing
    def start_closing():
        start()
        print("closing", flush=True)
    run_cluster.start_closing = start_closing
    run_cluster.main()
"""
HOLDER = """
    import json, time
    from pathlib import Path
    from unseen.cluster.launcher import RunCluster
    cluster = RunCluster(4, lambda stage: stage == "sweep", Path("cluster.log"))
    assert cluster.environment("report") == {}
    while (variables := cluster.environment("sweep")) is None:
        time.sleep(0.05)
    print(json.dumps(variables), flush=True)
    input()
    cluster.end()
    print("ended", flush=True)
    input()
"""


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """An empty directory whose path is short enough for the sockets of Ray."""
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@pytest.mark.ray
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kill", [False, True])
def test_serves_the_stages_of_a_run_and_ends_with_it(
    kill: bool, tmp_path: Path, short_directory: Path
) -> None:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    clean |= {"PYTHONPATH": str(ROOT), "RAY_TMPDIR": str(short_directory)}
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER)],
        cwd=tmp_path,
        env=clean,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    variables = json.loads(holder.stdout.readline())
    processes = psutil.Process(holder.pid).children(recursive=True)
    assert len(variables["RAY_AUTH_TOKEN"]) == 64
    if not kill:
        stages = [
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(STAGE)],
                env=clean | variables,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        answers = [json.loads(stage.communicate(timeout=60)[0]) for stage in stages]
        assert answers == [[3, variables[RUN_CLUSTER], True, True, 4]] * 2
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "ended\n"
    else:
        holder.send_signal(signal.SIGKILL)

    def left_over() -> tuple[list[psutil.Process], list[Path]]:
        return [process for process in processes if runs(process)], list(short_directory.iterdir())

    deadline = time.monotonic() + (15 if kill else 1)
    while (left := left_over()) != ([], []) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == ([], [])
    holder.kill()
    holder.communicate()


@pytest.mark.ray
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_a_cluster_without_a_process_of_ray_ends_with_its_stages(
    name: str, tmp_path: Path, short_directory: Path
) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    environment |= {"PYTHONPATH": str(ROOT), "RAY_TMPDIR": str(short_directory), PARENT: str(os.getpid())}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "unseen.cluster.run_cluster", "2"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert process.stdout is not None
    variables = json.loads(process.stdout.readline())["environment"]
    stage = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(JOINED)],
        env=environment | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert stage.stdout is not None
    assert stage.stdout.readline() == "joined\n"
    started = psutil.Process(process.pid).children(recursive=True)
    (victim,) = (child for child in started if child.name() == name)
    victim.kill()
    _, error = stage.communicate(timeout=120)
    assert stage.returncode == 1
    address = variables[RUN_CLUSTER]
    assert f"error: The private Ray cluster of this run, at {address}, has ended.\n  Run" in error
    assert process.wait(120) == 1
    process.communicate()
    errors = (tmp_path / "log").read_text(encoding="utf-8")
    assert "error: The Ray cluster of this machine ended: one of its processes was killed" in errors
    assert "Traceback" not in errors
    _, alive = psutil.wait_procs(started, timeout=15)
    assert alive == []


@pytest.mark.ray
@pytest.mark.timeout(120)
def test_a_signal_after_the_end_of_the_input_leaves_no_directory(short_directory: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    environment |= {"PYTHONPATH": str(ROOT), "RAY_TMPDIR": str(short_directory), PARENT: str(os.getpid())}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CLOSING), "2"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline()
    assert len(list(short_directory.iterdir())) == 1
    process.stdin.close()
    assert process.stdout.readline() == b"closing\n"
    process.send_signal(signal.SIGTERM)
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 30
    while list(short_directory.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert list(short_directory.iterdir()) == []


def runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_names_the_reason_of_a_cluster_that_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "cluster.log"
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", "/" + "long" * 30)
    cluster = RunCluster(1, lambda stage: True, log)
    with pytest.raises(UserError, match="RAY_TMPDIR is /long") as caught:
        while cluster.environment("sweep") is None:
            time.sleep(0.05)
    assert str(log) in caught.value.remedy
    cluster.end()


@pytest.mark.parametrize("starts", [True, False])
def test_a_cluster_that_ended_is_started_once_more(
    starts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell replaces the cluster. If it starts, it prints a line and ends by SIGKILL, else at once."""
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        line = json.dumps({"environment": {RUN_CLUSTER: str(len(started))}})
        shell = f"echo start {len(started)} >&2; " + (f"echo '{line}'; read nothing" if starts else "true")
        started.append(popen(["/bin/sh", "-c", shell], **options))
        return started[-1]

    def environment() -> Mapping[str, str]:
        while (variables := cluster.environment("sweep")) is None:
            time.sleep(0.01)
        return variables

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    cluster = RunCluster(1, lambda stage: stage == "sweep", tmp_path / "cluster.log")
    for number in range(2 if starts else 0):
        assert environment() == environment() == {RUN_CLUSTER: str(number)}
        started[-1].kill()
        started[-1].wait()
    for _ in range(2):
        with pytest.raises(UserError, match=r"cluster of this run ended 2 times: start 0\n  start 1"):
            environment()
    assert cluster.environment("report") == {}
    assert len(started) == 2
    cluster.end()


def test_refuses_an_absent_cluster_of_ray_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    cluster = RunCluster(1, lambda stage: True, tmp_path / "cluster.log")
    assert cluster.environment("sweep") == {}, "the stages connect to the cluster of RAY_ADDRESS"
    with pytest.raises(UserError, match="no Ray cluster answers there"):
        resources(tmp_path / "cluster.log")


def test_a_node_without_the_project_stops_the_run_before_its_first_stage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(private=False, name="a cluster", cpus=8, gpus=0)
    required = Mock(side_effect=UserError("Node b of the cluster does not have /shared.", "Mount it."))
    monkeypatch.setenv(PARENT, "1")
    monkeypatch.setattr(sys, "argv", ["run_cluster", "1"])
    monkeypatch.setattr(run_cluster, "end_with_parent", lambda parent: None)
    monkeypatch.setattr(run_cluster, "connection", lambda *_, **__: contextlib.nullcontext(cluster))
    monkeypatch.setattr(run_cluster, "shared_nodes", required)
    with pytest.raises(SystemExit):
        run_cluster.main()
    assert "Node b of the cluster does not have /shared." in capsys.readouterr().err
    required.side_effect = None
    monkeypatch.setenv(PARENT, "1")
    run_cluster.main()
    assert capsys.readouterr().out == '{"environment": {}, "cpus": 8, "gpus": 0}\n'
