"""A private cluster removes all its files and processes however it ends."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from unseen.cluster import private
from unseen.cluster.private import private_cluster
from unseen.runtime.errors import UserError

PRIVATE = """
    import os, time
    from unseen.runtime.stage import end_with_parent
    from unseen.cluster.connection import connection
    end_with_parent()
    home = set(os.environ)
    with connection(1, gpu=False) as cluster:
        import ray
        @ray.remote
        class Worker:
            def token(self):
                return os.environ["RAY_AUTH_TOKEN"]
        worker = Worker.remote()
        assert len(ray.get(worker.token.remote())) == 64
        print("up", flush=True)
        {then}
    assert set(os.environ) == home
    print("down", flush=True)
"""


def script(text: str, **environment: str) -> subprocess.Popen[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text)],
        env=clean | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """An empty directory whose path is short enough for the sockets of Ray."""
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def test_refuses_a_temporary_directory_too_long_for_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "a-rather-long-name-of-a-directory"))
    with (
        pytest.raises(UserError, match="may not exceed 107 characters"),
        private_cluster(1, False, 80 * 2**20),
    ):
        pass


@pytest.mark.parametrize("path", ["/proc", "/proc/nothing", "/etc/passwd", "/etc/passwd/x"])
def test_refuses_a_temporary_directory_that_cannot_be_created(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", path)
    with (
        pytest.raises(UserError, match=r"/proc accepts no new file|/etc/passwd is not a directory"),
        private_cluster(1, False, 80 * 2**20),
    ):
        pass


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_names_the_lack_of_ipv4(short_directory: Path) -> None:
    """In a namespace without 127.0.0.1."""
    namespace = ["unshare", "--map-root-user", "--net", "sh", "-c"]
    setup = "ip link set lo up && ip address delete 127.0.0.1/8 dev lo"
    if subprocess.run([*namespace, setup], check=False, capture_output=True).returncode:
        pytest.skip("the system forbids namespaces, or lacks `ip`")
    start = "from unseen.cluster.private import private_cluster as c; c(1, False, 80 * 2**20).__enter__()"
    process = subprocess.run(
        [*namespace, f'{setup} && exec "$@"', "sh", sys.executable, "-c", start],
        env={**os.environ, "RAY_TMPDIR": str(short_directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "at 127.0.0.1, which this machine lacks (IPv6 only).\n  Add 127.0.0.1/8" in process.stderr


def test_a_raylet_that_is_killed_during_the_start_is_a_user_error(
    short_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ray raises a plain Exception about half a minute after the death of the raylet."""
    import ray

    error = Exception("The current node timed out during startup. This could happen because")
    monkeypatch.setenv("RAY_TMPDIR", str(short_directory))
    monkeypatch.setattr(ray, "init", Mock(side_effect=error))
    with (
        pytest.raises(UserError, match=r"Ray did not start on this machine: its raylet ended\.\n  It was"),
        private_cluster(1, False, 80 * 2**20),
    ):
        pass
    (logs,) = short_directory.iterdir()
    assert f"Ray's logs: {logs}" in capsys.readouterr().err
    monkeypatch.setattr("unseen.cluster.private._raylet_runs", lambda others: True)
    with (
        pytest.raises(UserError, match=r"did not register within 600 s, at a load of \d+ on \d+ cores"),
        private_cluster(1, False, 80 * 2**20),
    ):
        pass
    monkeypatch.setattr(ray, "init", Mock(side_effect=Exception("No space left on device")))
    with pytest.raises(UserError, match="No space left"), private_cluster(1, False, 80 * 2**20):
        pass


def test_ray_waits_for_a_raylet_that_runs(short_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import services

    absent = [RuntimeError("not registered")] * 3
    get_node = Mock(side_effect=[*absent, {"labels": {}}, absent[0]])
    monkeypatch.setenv("RAY_TMPDIR", str(short_directory))
    monkeypatch.setattr(services, "get_node", get_node)
    monkeypatch.setattr(private, "_INTERVAL", 0.0)
    monkeypatch.setattr(private, "_raylet_runs", lambda others: True)
    with private._waiting_for_raylet(set()):
        assert services.get_node("address", "node") == {"labels": {}}
        monkeypatch.setattr(private, "_raylet_runs", lambda others: False)
        with pytest.raises(RuntimeError, match="not registered"):
            services.get_node("address", "node")
    assert services.get_node is get_node
    assert get_node.call_count == 5


def test_a_process_ends_with_a_message_when_its_cluster_has_ended() -> None:
    text = """
        import time
        from unseen.cluster.private import ends_without
        ended = []
        with ends_without(lambda: bool(ended), "The cluster ended."):
            ended.append(1)  # the block ends with the cluster
        print("continues", flush=True)
        with ends_without(lambda: bool(ended), "The cluster ended."):
            time.sleep(60)
    """
    process = script(text)
    output, _ = process.communicate(timeout=50)
    assert (process.returncode, output) == (1, "continues\n\nerror: The cluster ended.\n")


def test_a_killed_process_leaves_no_directory_of_its_cluster(short_directory: Path) -> None:
    script = """
        import os, signal
        from unseen.cluster.private import _directory
        with _directory() as directory:
            (directory / "session").mkdir()
            print(directory, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    environment = os.environ | {"RAY_TMPDIR": str(short_directory)}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL
    directory = Path(ended.stdout.strip())
    assert directory.parent == short_directory
    deadline = time.monotonic() + 10
    while directory.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not directory.exists()


@pytest.mark.ray
@pytest.mark.timeout(120)
@pytest.mark.parametrize("end", ["by itself", signal.SIGTERM, signal.SIGKILL])
def test_a_private_cluster_removes_its_files_and_processes(
    end: str | signal.Signals, tmp_path: Path, short_directory: Path
) -> None:
    last_statement = "pass" if end == "by itself" else "time.sleep(100)"
    process = script(PRIVATE.format(then=last_statement), RAY_TMPDIR=str(short_directory), HOME=str(tmp_path))
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n", process.communicate()[0]
    started = psutil.Process(process.pid).children(recursive=True)
    if isinstance(end, signal.Signals):
        assert len(started) >= 5
        process.send_signal(end)
    output, _ = process.communicate(timeout=60)
    _, alive = psutil.wait_procs(started, timeout=15)
    assert alive == []
    assert not (tmp_path / ".ray").exists(), "no token in the home directory"
    deadline = time.monotonic() + (10 if end == signal.SIGKILL else 0)
    while list(short_directory.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(short_directory.iterdir()) == []
    if end == "by itself":
        assert output == "down\n", "Ray prints no message"
        assert process.returncode == 0
