"""The Ray cluster of a stage: the one that RAY_ADDRESS names, else a private one on this machine that ends with the stage."""

import contextlib
import importlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.cluster.private import private_cluster, use_own_token
from pipeline.runtime.errors import UserError

_WAIT = "UNSEEN_RAY_WAIT"  # seconds to wait for a busy cluster; setting it also says that the cluster may grow
_JOIN = "Start the cluster, correct RAY_ADDRESS, or unset it to run on this machine alone."
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # a worker without a GPU sees none
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",  # a run ends up to one interval after its last worker; Ray's default is 2
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING": "0",
    "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING": "0",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_get_check_signal_interval_milliseconds": "100",  # how soon a driver that waits for a result sees Ctrl-C; Ray's default is a second
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # Tune prints nothing: the recorder does
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C ends a sweep; it resumes
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # the report that ends a trial has none
    "OMP_WAIT_POLICY": "passive",  # threads that spin while they wait make a shared machine crawl
}


@dataclass(frozen=True)
class Cluster:
    """What a stage knows of the cluster it is connected to."""

    private: bool
    name: str
    cpus: int
    gpus: int

    def claim(self, workers: int, cpus: int, gpu: str) -> dict[str, float]:
        """The resources of each of `workers` processes; waits until a cluster that others use has them free.

        `gpu` is yes, no, or auto (where there are any). A private cluster counts processes rather than cores: nobody else competes for them.
        Raises UserError when the cluster has not got that much, or does not free it in time.
        """
        use_gpu = gpu == "yes" or (gpu == "auto" and self.gpus > 0)
        if use_gpu and self.gpus < workers:
            raise UserError(
                f"{workers} worker{'s' * (workers > 1)} on GPUs need {workers}, but {self.name} has {self.gpus or 'none'}.",
                "Set train.workers to the number of GPUs, or train.gpu: no to train on CPUs.",
            )
        bundle = {"CPU": 1.0 if self.private else float(cpus)} | ({"GPU": 1.0} if use_gpu else {})
        if not self.private:
            _wait_for(self, workers, bundle)
        return bundle


def cluster_address() -> str | None:
    """RAY_ADDRESS, or None where the stage runs on this machine alone."""
    address = os.environ.get("RAY_ADDRESS", "")
    return None if address in ("", "local") else address


@contextlib.contextmanager
def connection(processes: int, gpu: bool = True, object_store: int = 80 * 2**20) -> Iterator[Cluster]:
    """Connects to the cluster of RAY_ADDRESS, or starts a private one for `processes` workers; leaves it, or ends it, whatever happens inside.

    `object_store` bytes of shared memory are taken by a private cluster only. Raises UserError when RAY_ADDRESS cannot be reached.
    The handler of SIGTERM stays the caller's: Ray would replace it.
    """
    address = cluster_address()
    private = address is None
    if address is not None:
        _check(address)
    before = dict(os.environ)
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if private:
        os.environ.pop("RAY_ADDRESS", None)
        use_own_token()
    main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        import ray

        with private_cluster(processes, gpu, object_store) if address is None else _existing(address) as name:
            if main_thread:
                signal.signal(signal.SIGTERM, handler)
            found = ray.cluster_resources()
            yield Cluster(private, name, int(found.get("CPU", 0)), int(found.get("GPU", 0)))
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


@contextlib.contextmanager
def imported(*modules: str) -> Iterator[None]:
    """Imports modules in the background while the block starts a cluster, which mostly waits.

    A module that is missing is an error of the code that uses it, not of this function.
    """
    thread = threading.Thread(
        target=lambda: [importlib.import_module(name) for name in modules],
        name="imports",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _check(address: str) -> None:
    """Raises UserError for an address that no cluster can be joined at. Ray itself would wait a minute and then abort the process."""
    if address.startswith("ray://"):
        raise UserError(
            f"RAY_ADDRESS is {address}: training does not run over Ray's client protocol.",
            "Run on the cluster: ray job submit -- bash -c 'cd /shared/unseen && dvc repro', or set RAY_ADDRESS to the GCS address, host:6379.",
        )
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"RAY_ADDRESS is {address}, which is no address.", "Set it to host:port, usually port 6379, or unset it.")
    if not _answers(host.strip("[]"), int(port)):
        raise UserError(f"RAY_ADDRESS is {address}, but no Ray cluster answers there.", _JOIN)


@contextlib.contextmanager
def _existing(address: str) -> Iterator[str]:
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level="warning")
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise UserError(f"RAY_ADDRESS is {address}, but the cluster cannot be joined: {str(error).strip().splitlines()[0]}", _JOIN) from error
    try:
        yield f"the cluster at {address}"
    finally:
        ray.shutdown()


def _answers(host: str, port: int, timeout: float = 10.0) -> bool:
    """Whether something that speaks HTTP/2, as gRPC does, listens there."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)  # ends with an empty SETTINGS frame
    try:
        with socket.create_connection((host, port), timeout=timeout) as connected:
            connected.settimeout(timeout)
            connected.sendall(preface)
            answer = b""
            while len(answer) < 4 and (received := connected.recv(64)):
                answer += received
            return answer[3:4] == b"\x04"
    except OSError:
        return False


def _wait_for(cluster: Cluster, workers: int, bundle: dict[str, float]) -> None:
    """Returns when `workers` bundles are free at once. Asks by reserving them for a moment: only the scheduler knows what fits on which node."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    wanted = f"{workers} x ({', '.join(f'{amount:g} {kind}' for kind, amount in bundle.items())})"
    if _WAIT not in os.environ and _fitting(ray.nodes(), bundle) < workers:
        raise UserError(
            f"{wanted} are required, but {cluster.name} has {cluster.cpus} CPU and {cluster.gpus} GPU on {len(ray.nodes())} node(s) in all.",
            f"Lower train.workers or train.cpus_per_worker, or set {_WAIT} to the seconds to wait when the cluster grows on demand.",
        )
    limit = float(os.environ.get(_WAIT, "600"))
    start = time.monotonic()
    group = placement_group([bundle] * workers)
    try:
        pause = 1.0
        while not group.wait(pause):
            waited = time.monotonic() - start
            if waited >= limit:
                raise UserError(
                    f"{wanted} are required, but {cluster.name} did not free them within {limit:.0f} s.",
                    f"Wait for its other jobs to end, lower train.workers, or raise {_WAIT} (seconds).",
                )
            sys.stderr.write(f"waiting for {wanted} on {cluster.name}, {waited:.0f} of at most {limit:.0f} s\n")
            pause = min(15.0, max(limit - waited, 0.1))
    finally:
        remove_placement_group(group)


def _fitting(nodes: Sequence[dict[str, Any]], bundle: dict[str, float]) -> int:
    """How many bundles the nodes would hold if nothing else ran on them."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    return sum(min(int(have.get(kind, 0) // amount) for kind, amount in bundle.items()) for have in alive)
