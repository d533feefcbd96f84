"""The Ray cluster of a stage: that of RAY_ADDRESS, the private one of `unseen run -j`, or a private one that
ends with the stage."""

import contextlib
import importlib
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unseen.cluster.alongside import alongside
from unseen.cluster.private import ends_without, private_cluster, use_own_token
from unseen.runtime.errors import UserError
from unseen.runtime.names import say

_WAIT = "UNSEEN_RAY_WAIT"  # seconds to wait for free resources; if it is set, the cluster may also grow
# Address of the private cluster that the stages of `unseen run -j` share (pipeline/cluster/run_cluster.py)
RUN_CLUSTER = "UNSEEN_RUN_CLUSTER"
_PATIENCE = 20.0  # seconds in which the GCS of RAY_ADDRESS must answer, or those of UNSEEN_RAY_WAIT
_JOIN = "Start the cluster, correct RAY_ADDRESS, or unset it to run on this machine alone."
_RAYLET_ENDED = "Raylet is terminated."  # begins a message of Ray with the log of the raylet of a lost node
_RUN_AGAIN = "Run the same command again; data/state/logs/cluster.log has its output."
# In which resources must become free for a training that `claim` found free. Ray's default of 60 is too short
# where other processes are busy. A cluster of several stages or jobs keeps it: one of them may have taken the
# resources, and the training then claims them again.
_START_SECONDS = "600"
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # the priority of this process; Ray's 15 hardly runs on a busy machine
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # a worker without a GPU has no visible device
    # A run ends up to one interval after its last worker; Ray's default is 2 s.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING": "0",
    "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING": "0",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    # How soon a driver that waits for a result reacts to Ctrl-C; Ray's default is 1 s.
    "RAY_get_check_signal_interval_milliseconds": "100",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # Tune prints nothing: the listener of the trials does
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C ends a sweep; it resumes
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # the last report of a trial has no metrics
    "OMP_WAIT_POLICY": "passive",  # threads that spin while they wait slow down all others
}


@dataclass(frozen=True)
class Cluster:
    """The cluster that a stage is connected to, with the resources that it had then.

    A private cluster belongs to this stage, or, if it is `shared`, to the stages of one `unseen run -j`.
    """

    private: bool
    name: str
    cpus: int
    gpus: int
    shared: bool = False

    def claim(
        self,
        workers: int,
        cpus: int,
        gpu: str,
        before_death: Mapping[str, str] | None = None,
        waited: float = 0.0,
    ) -> dict[str, float]:
        """The resources of each of `workers` processes; on a contended cluster, waits until they are free.

        It does not reserve them: another stage may take them before the processes start. `waited`: the
        seconds since the first claim for these processes, which count.

        `gpu` is yes, no, or auto (if there are any). A private cluster counts processes, not cores: no
        other job competes for them. If other stages share it, waits without limit. A cluster that is not
        private may grow while UNSEEN_RAY_WAIT is set: its GPUs are waited for. `before_death`: after a worker
        died, the nodes before (`alive_nodes`); a lost node may come back, so that resources which the cluster
        does not have are waited for. Raises UserError when the cluster does not have the resources or does
        not free them in time.
        """
        use_gpu = gpu == "yes" or (gpu == "auto" and self.gpus > 0)
        may_grow = not self.private and _WAIT in os.environ
        if use_gpu and self.gpus < workers and not may_grow:
            plural, present = "s" * (workers > 1), self.gpus or "none"
            raise UserError(
                f"{workers} worker{plural} on GPUs need {workers}, but {self.name} has {present}.",
                "Set train.workers to the number of GPUs, or train.gpu: no to train on CPUs.",
            )
        bundle = {"CPU": 1.0 if self.private else float(cpus)} | ({"GPU": 1.0} if use_gpu else {})
        if self.contended:
            _wait_for(self.name, workers, bundle, math.inf if self.private else None, before_death, waited)
        return bundle

    @property
    def contended(self) -> bool:
        """Whether other stages or jobs use its resources."""
        return self.shared or not self.private


def cluster_address() -> str | None:
    """RAY_ADDRESS, or None if the stage runs only on this machine."""
    address = os.environ.get("RAY_ADDRESS", "")
    return None if address in ("", "local") else address


def run_cluster_address() -> str | None:
    """The address of the private cluster of `unseen run -j`; None without one, and with RAY_ADDRESS."""
    return os.environ.get(RUN_CLUSTER) if cluster_address() is None else None


@contextlib.contextmanager
def connection(
    processes: int,
    gpu: bool = True,
    object_store: int = 80 * 2**20,
    prestart: bool = True,
) -> Iterator[Cluster]:
    """Connects to the cluster of RAY_ADDRESS or of `unseen run -j`, or starts a private one for `processes`
    processes at a time.

    At the end of the block, also after an error, it disconnects or ends the cluster that it started. The
    handler of SIGTERM remains that of the caller; Ray would replace it. Two options concern a cluster that it
    starts: `object_store`, bytes of shared memory, and `prestart`, whether Python processes start with the
    cluster. Ray Train does not use these, because its processes have environment variables of their own.
    Raises UserError when the cluster of RAY_ADDRESS cannot be reached.
    """
    address, shared = cluster_address(), run_cluster_address()
    if address is not None:
        _check(address)
    elif shared is not None and _refuses(shared):
        raise UserError(f"The private Ray cluster of this run, at {shared}, has ended.", _RUN_AGAIN)
    before = dict(os.environ)
    environment = _ENVIRONMENT | ({} if prestart else {"RAY_prestart_worker_first_driver": "0"})
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    if address is None and shared is None:
        os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", _START_SECONDS)
    if address is None:
        os.environ.pop("RAY_ADDRESS", None)
        use_own_token()
    main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        import ray

        existing = address or shared
        cluster = (
            private_cluster(processes, gpu, object_store)
            if existing is None
            else _joined(existing, of_the_run=address is None)
        )
        with cluster as name:
            if main_thread:
                signal.signal(signal.SIGTERM, handler)
            resources = ray.cluster_resources()
            cpus, gpus = (int(resources.get(kind, 0)) for kind in ("CPU", "GPU"))
            yield Cluster(address is None, name, cpus, gpus, shared is not None)
    finally:
        if main_thread:  # ray.shutdown() restores the default action
            signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


@contextlib.contextmanager
def imported(*modules: str) -> Iterator[None]:
    """Imports modules in the background while the block starts a cluster, which mostly waits.

    A module that is missing is an error of the code that uses it, not of this function.
    """
    with alongside("imports", lambda _: [importlib.import_module(name) for name in modules]):
        yield


def _check(address: str) -> None:
    """Raises UserError for an address of no cluster. Ray would wait a minute and then abort the process."""
    if address.startswith("ray://"):
        submit = "ray job submit -- bash -c 'cd /shared/unseen && unseen run -j 8'"
        raise UserError(
            f"RAY_ADDRESS is {address}: training does not run over Ray's client protocol.",
            f"Run on the cluster: {submit}, or set RAY_ADDRESS to the GCS address, host:6379.",
        )
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(
            f"RAY_ADDRESS is {address}, which is not an address.",
            "Set it to host:port, usually port 6379, or unset it.",
        )
    if not _answers(host.strip("[]"), int(port)):
        raise UserError(f"RAY_ADDRESS is {address}, but no Ray cluster answers there.", _JOIN)


@contextlib.contextmanager
def _joined(address: str, of_the_run: bool) -> Iterator[str]:
    """Joins the cluster at `address`: that of RAY_ADDRESS, or that of `unseen run -j` if `of_the_run`."""
    import ray

    try:
        with contextlib.nullcontext() if of_the_run else _limited(address):
            ray.init(address=address, log_to_driver=False, logging_level="warning")
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        cluster, remedy = f"RAY_ADDRESS is {address}, but the cluster", _JOIN
        if of_the_run:
            cluster, remedy = f"The private Ray cluster of this run, at {address},", _RUN_AGAIN
        reason = str(error).strip().splitlines()[0]
        if "version mismatch" in reason.lower():  # the versions follow in further lines
            reason, remedy = " ".join(str(error).split()), "Install the same versions here and there."
        raise UserError(f"{cluster} cannot be joined: {reason}", remedy) from error
    try:
        if of_the_run:
            ended = f"The private Ray cluster of this run, at {address}, has ended.\n  {_RUN_AGAIN}"
            with ends_without(lambda: _refuses(address), ended):
                yield "this machine"
        else:
            with _without_logs_of_raylets():
                yield f"the cluster at {address}"
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _without_logs_of_raylets() -> Iterator[None]:
    """When a node leaves, Ray prints the last lines of the log of its raylet on every driver, by an internal
    function: here not, because the stage names the node (`lost_nodes`). Where Ray's internals differ, Ray
    prints them."""
    from ray._private import worker

    original = getattr(worker, "print_to_stdstream", None)
    if original is None:
        yield
        return

    def without_logs(message: dict[str, Any], *options: Any, **more: Any) -> None:
        if not any(line.startswith(_RAYLET_ENDED) for line in message["lines"]):
            original(message, *options, **more)

    worker.print_to_stdstream = without_logs
    try:
        yield
    finally:
        worker.print_to_stdstream = original


@contextlib.contextmanager
def _limited(address: str) -> Iterator[None]:
    """Ends the process with a message and status 1 if the block, which connects to `address`, takes too long.

    On a server of HTTP/2 that is not a GCS, Ray waits for minutes without a message, in native code that no
    exception interrupts. The block runs before the first work, so that no file is left behind.
    """
    limit = max(_PATIENCE, float(os.environ.get(_WAIT, "0")))

    def watch(joined: threading.Event) -> None:
        if not joined.wait(limit):
            say(
                f"error: RAY_ADDRESS is {address}, but no GCS of a Ray cluster answered there within "
                f"{limit:g} s.\n  {_JOIN} For a slow cluster, set {_WAIT} to the seconds to wait."
            )
            os._exit(1)

    with alongside("limit of joining", watch):
        yield


def _answers(host: str, port: int, timeout: float = 10.0) -> bool:
    """Whether a server of HTTP/2, the protocol of gRPC, listens there."""
    settings_frame = bytes(3) + b"\x04" + bytes(5)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings_frame
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


def _refuses(address: str) -> bool:
    """Whether nothing listens at `address`, which is of this machine."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except ConnectionRefusedError:
        return True
    except OSError:  # too busy
        return False
    return False


def alive_nodes() -> dict[str, str]:
    """The nodes of the cluster that this process is connected to: id -> host name and address."""
    import ray

    return {
        node["NodeID"]: f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
        for node in ray.nodes()
        if node["Alive"]
    }


def lost_nodes(before: Mapping[str, str]) -> str:
    """The nodes of `before` (`alive_nodes`) that have left, as `node A (10.0.0.3)`; empty without."""
    now = alive_nodes() if before else {}
    names = [name for node, name in before.items() if node not in now]
    return f"node{'s' * (len(names) > 1)} {', '.join(names)}" if names else ""


def _wait_for(
    name: str,
    workers: int,
    bundle: dict[str, float],
    limit: float | None = None,
    before_death: Mapping[str, str] | None = None,
    waited: float = 0.0,
) -> None:
    """Returns when `workers` bundles are free at once. `limit`: seconds to wait; default: UNSEEN_RAY_WAIT.
    `before_death`, `waited`: as in `Cluster.claim`. If `waited` has reached the limit, raises at once.

    It reserves them for a moment, because only Ray's scheduler computes what fits on which node.
    """
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    required = f"{workers} x ({', '.join(f'{amount:g} {kind}' for kind, amount in bundle.items())})"
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    may_grow = _WAIT in os.environ or before_death is not None
    if not may_grow and fitting(nodes, bundle) < workers:
        cpus, gpus = (int(sum(node.get(kind, 0) for node in nodes)) for kind in ("CPU", "GPU"))
        present = f"{cpus} CPU and {gpus} GPU on {len(nodes)} node(s)"
        wait = f"set {_WAIT} to the seconds to wait when the cluster grows on demand"
        raise UserError(
            f"{required} are required, but {name} has {present} in all.",
            f"Lower train.workers or training.threads of the recipe, or {wait}.",
        )
    limit = float(os.environ.get(_WAIT, "600")) if limit is None else limit
    start = time.monotonic() - waited
    group = placement_group([bundle] * workers)
    try:
        pause = 1.0
        while waited >= limit or not group.wait(pause):
            waited = time.monotonic() - start
            lost = lost_nodes(before_death or {})
            if waited >= limit and lost:
                raise UserError(
                    f"{lost} left {name} during the training, and {required} did not become free within "
                    f"{limit:.0f} s.",
                    f"Start it again, lower train.workers, or raise {_WAIT} (seconds). The same command "
                    "resumes from the last checkpoint.",
                )
            if waited >= limit:
                raise UserError(
                    f"{required} are required, but {name} did not free them within {limit:.0f} s.",
                    f"Wait for its other jobs to end, lower train.workers, or raise {_WAIT} (seconds).",
                )
            bound = "" if math.isinf(limit) else f" of at most {limit:.0f}"
            cause = f", because {lost} left" if lost else ""
            say(f"waiting for {required} on {name}{cause}, {waited:.0f}{bound} s")
            pause = min(15.0, max(limit - waited, 0.1))
    finally:
        remove_placement_group(group)


def fitting(nodes: Sequence[dict[str, Any]], bundle: dict[str, float]) -> int:
    """How many bundles the resources of the nodes would hold if nothing else ran on them."""
    return sum(min(int(node.get(kind, 0) // amount) for kind, amount in bundle.items()) for node in nodes)
