"""The connection to Ray: absent, foreign, small and busy clusters get one message."""

import contextlib
import ctypes
import importlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import CLUSTER_CPUS
from unseen.cluster import connection as module
from unseen.cluster.connection import Cluster, connection
from unseen.cluster.shared import require_shared
from unseen.runtime.errors import UserError

HERE = Cluster(private=True, name="this machine", cpus=2, gpus=0)


def test_refuses_an_absent_cluster_without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    start = time.monotonic()
    with (
        pytest.raises(
            UserError, match=f"RAY_ADDRESS is {address}, but no Ray cluster answers there"
        ) as caught,
        connection(1),
    ):
        pass
    assert "unset it to run on this machine alone" in caught.value.remedy
    assert time.monotonic() - start < 5


def test_refuses_the_cluster_of_a_run_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would wait a minute and end the process in native code."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert not module._refuses(address)
    assert module._refuses(address)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv(module.RUN_CLUSTER, address)
    with (
        pytest.raises(
            UserError, match=f"The private Ray cluster of this run, at {address}, has ended"
        ) as caught,
        connection(1),
    ):
        pass
    assert "data/state/logs/cluster.log" in caught.value.remedy


def test_refuses_a_server_of_another_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connected, _ = server.accept()
            with connected:
                connected.recv(1024)
                connected.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(UserError, match="no Ray cluster answers there"), connection(1):
            pass
        thread.join()


JOIN = """
import sys
from unseen.cluster import connection as module
assert module._PATIENCE <= 20
module._PATIENCE = 0.5
from unseen.runtime.stage import report_errors
with report_errors(), module.connection(1):
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("wait", [None, "1.5"])
def test_an_address_of_http2_that_is_no_gcs_is_an_error(wait: str | None) -> None:
    """Such as the server of Ray's client. ray.init returns after minutes."""
    settings_frame = bytes(3) + b"\x04" + bytes(5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    connected, _ = server.accept()
                except OSError:  # the server is closed
                    return
                connected.sendall(settings_frame)
                connections.append(connected)

        connections: list[socket.socket] = []
        threading.Thread(target=answer, daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        environment = {**os.environ, "RAY_ADDRESS": address, **({"UNSEEN_RAY_WAIT": wait} if wait else {})}
        command = [sys.executable, "-c", JOIN]
        process = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        server.shutdown(socket.SHUT_RDWR)
    for connected in connections:
        connected.close()
    assert process.returncode == 1, process.stderr
    limit = wait or "0.5"
    message = f"error: RAY_ADDRESS is {address}, but no GCS of a Ray cluster answered there within {limit} s."
    assert message in process.stderr
    assert "Traceback" not in process.stderr


def test_a_node_without_the_shared_files_is_named(tmp_path: Path) -> None:
    require_shared(tmp_path)
    message = rf"Node {socket.gethostname()} of the cluster does not have {tmp_path}/shards.*\n.*same path"
    with pytest.raises(UserError, match=message):
        require_shared(tmp_path / "shards")


@pytest.mark.parametrize(
    ("address", "message"), [("cluster", "not an address"), ("ray://head:10001", "client protocol")]
)
def test_names_an_address_without_cluster(
    address: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UserError, match=message), connection(1):
        pass


def test_dead_nodes_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.delenv("UNSEEN_RAY_WAIT", raising=False)
    nodes = [{"Alive": alive, "Resources": {"CPU": 4.0}} for alive in (True, False, False)]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    cluster = Cluster(private=False, name="the cluster", cpus=4, gpus=0)
    with pytest.raises(UserError, match=r"2 x \(4 CPU\) are required, .* has 4 CPU and 0 GPU on 1 node"):
        cluster.claim(2, 4, "no")


def test_assigns_gpus_or_refuses_too_few() -> None:
    assert HERE.claim(2, 4, "auto") == {"CPU": 1.0}
    assert HERE.claim(2, 4, "no") == {"CPU": 1.0}
    with pytest.raises(UserError, match="1 worker on GPUs need 1, but this machine has none"):
        HERE.claim(1, 1, "yes")
    cluster = Cluster(private=True, name="this machine", cpus=2, gpus=1)
    assert cluster.claim(1, 1, "auto") == {"CPU": 1.0, "GPU": 1.0}
    assert cluster.claim(2, 1, "no") == {"CPU": 1.0}
    with pytest.raises(UserError, match="2 workers on GPUs need 2, but this machine has 1"):
        cluster.claim(2, 1, "auto")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_sigterm_has_its_handler_again_after_the_shutdown_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """ray.shutdown() restores the default action in C++, which Python does not notice."""
    import ray

    @contextlib.contextmanager
    def private(*_: object) -> Iterator[str]:
        yield "this machine"
        ctypes.CDLL(None).signal(int(signal.SIGTERM), None)

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(module, "private_cluster", private)
    monkeypatch.setattr(ray, "cluster_resources", dict)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with connection(1):
            pass
        status = Path("/proc/self/status").read_text(encoding="ascii")
    finally:
        signal.signal(signal.SIGTERM, before)
    (ignored,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn"))
    assert ignored >> (signal.SIGTERM - 1) & 1


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Two nodes of a cluster, whose placement groups never become ready."""
    import ray

    groups = importlib.import_module("ray.util.placement_group")  # ray.util has a function of that name

    class Pending:
        def wait(self, seconds: float) -> bool:
            return False

    common = {"Alive": True, "Resources": {"CPU": 2.0}}
    alive = [
        {"NodeID": name, "NodeManagerHostname": name, "NodeManagerAddress": "10.0.0.1", **common}
        for name in ("first", "second")
    ]
    monkeypatch.setattr(ray, "nodes", lambda: alive)
    monkeypatch.setattr(groups, "placement_group", lambda bundles: Pending())
    monkeypatch.setattr(groups, "remove_placement_group", lambda group: None)
    return alive


def test_a_lost_node_is_waited_for_and_named(
    nodes: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(private=False, name="the cluster", cpus=4, gpus=0)
    before = module.alive_nodes()
    assert module.lost_nodes(before) == ""
    nodes[1]["Alive"] = False
    with pytest.raises(UserError, match=r"2 x \(2 CPU\) are required, but the cluster has 2 CPU") as caught:
        cluster.claim(2, 2, "no")
    assert "training.threads" in caught.value.remedy
    ticks = itertools.count(step=200)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    with pytest.raises(UserError, match=r"node second \(10\.0\.0\.1\) left the cluster .* within 600 s"):
        cluster.claim(2, 2, "no", before)
    waits = capsys.readouterr().err.splitlines()
    assert waits[0] == (
        "waiting for 2 x (2 CPU) on the cluster, because node second (10.0.0.1) left, 200 of at most 600 s"
    )
    assert len(waits) == 2


def test_a_claim_counts_the_seconds_since_the_first_claim(
    nodes: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ticks = itertools.count(step=200)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    cluster = Cluster(private=False, name="the cluster", cpus=4, gpus=0)
    for waited, waits in ((300.0, 1), (600.0, 0)):
        with pytest.raises(UserError, match="the cluster did not free them within 600 s"):
            cluster.claim(2, 2, "no", None, waited)
        assert capsys.readouterr().err.count("waiting for 2 x (2 CPU)") == waits


@pytest.mark.parametrize(
    ("address", "of_the_run", "expected"),
    [(None, None, "600"), (None, "127.0.0.1:1", None), ("127.0.0.1:1", None, None)],
    ids=["of the stage", "of the run", "RAY_ADDRESS"],
)
def test_workers_on_a_busy_machine_have_the_priority_of_the_stage_and_ten_minutes_to_start(
    address: str | None, of_the_run: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where other stages may take the resources, Ray's 60 s remain: then the training claims them again."""
    import ray
    from ray.train.v2._internal.constants import get_env_vars_to_propagate

    @contextlib.contextmanager
    def cluster(*_: object, **__: object) -> Iterator[str]:
        yield "a cluster"

    for name in ("private_cluster", "_joined"):
        monkeypatch.setattr(module, name, cluster)
    monkeypatch.setattr(module, "_check", lambda _: None)
    monkeypatch.setattr(ray, "cluster_resources", dict)
    monkeypatch.setattr(module, "_refuses", lambda _: False)
    for variable, value in (("RAY_ADDRESS", address), (module.RUN_CLUSTER, of_the_run)):
        if value is None:
            monkeypatch.delenv(variable, raising=False)
        else:
            monkeypatch.setenv(variable, value)
    with connection(2):
        assert get_env_vars_to_propagate().get("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S") == expected
        assert os.environ["RAY_worker_niceness"] == "0"  # noqa: SIM112  Ray reads this name


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_refuses_a_small_or_busy_cluster(
    ray_cluster: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = f"the cluster at {ray_cluster}"

    class Holder:  # an actor that holds resources
        def ready(self) -> bool:
            return True

    with connection(1, gpu=False) as cluster:
        import ray

        assert (cluster.private, cluster.name, cluster.cpus, cluster.gpus) == (False, name, CLUSTER_CPUS, 0)
        holder = ray.remote(num_cpus=CLUSTER_CPUS - 1)(Holder).remote()
        ray.get(holder.ready.remote())
        assert cluster.claim(1, 1, "auto") == {"CPU": 1.0}
        for workers, cpus in ((CLUSTER_CPUS + 1, 1), (1, CLUSTER_CPUS + 1)):
            required = rf"{workers} x \({cpus} CPU\) are required, but {name} has {CLUSTER_CPUS} CPU and"
            with pytest.raises(UserError, match=required):
                cluster.claim(workers, cpus, "no")
        monkeypatch.setenv("UNSEEN_RAY_WAIT", "2")
        with pytest.raises(UserError, match=r"1 x \(1 CPU, 1 GPU\) are required, .* within 2 s"):
            cluster.claim(1, 1, "yes")  # the cluster may grow
        with pytest.raises(UserError, match="did not free them within 2 s"):
            cluster.claim(2, 1, "no")
        assert f"waiting for 2 x (1 CPU) on {name}" in capsys.readouterr().err
        ray.kill(holder)
        assert cluster.claim(2, 1, "no") == {"CPU": 1.0}


def test_names_the_versions_of_another_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray._private.utils import check_version_info, compute_version_info

    _, python = compute_version_info()
    other = {"ray_version": "2.9.0", "python_version": python}
    monkeypatch.setattr(
        ray, "init", lambda *_, **__: check_version_info(other, "node 10.0.0.5", raise_on_mismatch=True)
    )
    monkeypatch.setattr(module, "_check", lambda _: None)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with pytest.raises(UserError) as caught, connection(1):
        pass
    what = "RAY_ADDRESS is 10.0.0.1:6379, but the cluster cannot be joined: Version mismatch: "
    assert caught.value.what.startswith(what)
    for part in ("Ray: 2.9.0", f"Ray: {ray.__version__}", f"Python: {python}", "node 10.0.0.5"):
        assert part in caught.value.what
    assert "\n" not in caught.value.what
    assert caught.value.remedy == "Install the same versions here and there."


def test_prints_no_log_of_a_raylet_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message is the one that an agent of Ray publishes; a driver prints it as below."""
    import ray
    from ray._private import process_watcher, worker

    (tmp_path / "raylet.out").write_text("a line\n[state-dump] NodeManager:\n")
    published = []
    monkeypatch.setattr(
        "ray._private.utils.publish_error_to_driver", lambda _, message, **__: published.append(message)
    )
    process_watcher.report_raylet_error_logs(str(tmp_path), SimpleNamespace())
    published.append("Another error.")
    monkeypatch.setattr(ray, "init", lambda *_, **__: None)
    monkeypatch.setattr(worker, "stdout_deduplicator", SimpleNamespace(deduplicate=lambda data: [data]))

    def driver_prints() -> str:
        capsys.readouterr()
        for message in published:
            data = {"lines": [message], "pid": "raylet", "is_err": False}
            worker.print_to_stdstream(data, ignore_prefix=False)
        return capsys.readouterr().out

    before = driver_prints()
    assert "[state-dump]" in before
    assert "Another error." in before
    with module._joined("10.0.0.1:6379", of_the_run=False):
        during = driver_prints()
    assert "[state-dump]" not in during
    assert "Another error." in during
    assert "[state-dump]" in driver_prints()
