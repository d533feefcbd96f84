"""A private Ray cluster for this process, with its own address, directory and token."""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from unseen.cluster.alongside import alongside
from unseen.runtime.errors import UserError
from unseen.runtime.files import accepting_files, create_directory, unwritable_is_an_error
from unseen.runtime.leftovers import OWNER, cluster_files, owned, remove_abandoned
from unseen.runtime.names import say

_LONGEST = 107 - len("/unseen-12345678/session_2026-11-20_13-58-04_892619_1234567/sockets/plasma_store")
_TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
_token_in_use: list[bool] = []
_DAEMONS = ("raylet", "gcs_server")  # processes without which a cluster ends
_ENDED = (
    "The Ray cluster of this machine ended: one of its processes was killed, or the memory is full.\n"
    "  Run the same command again. Trainings resume from the last checkpoint."
)
_INTERVAL = 0.5  # seconds between two looks at them
_START_SECONDS = 600.0  # in which a raylet that runs must register
_AGENTS = "agents"  # file of their process ids
# Processes that end may still create files in the directory $1.
_AFTER_DEATH = """read nothing
kill -9 $(cat "$1/agents")
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf "$1"
    sleep 0.3
    [ -e "$1" ] || exit
done"""


def use_own_token() -> None:
    """Sets a token that only this process and its children have, unless RAY_AUTH_MODE is set.

    Called before Ray is imported, because Ray reads the mode then. Ray would write its own token to the home
    directory. Without a token every user of the machine could run code in the cluster.
    """
    os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")  # this machine is not preempted
    if "RAY_AUTH_MODE" not in os.environ and ("ray" not in sys.modules or _token_in_use):
        os.environ.update(_TOKEN)
        _token_in_use.append(True)


@contextlib.contextmanager
def private_cluster(processes: int, gpu: bool, object_store: int) -> Iterator[str]:
    """Starts a cluster for `processes` processes at a time.

    All its processes end when the block ends, and when this process is killed. If its raylet or its GCS ends
    before, this process ends with a message and status 1. Raises UserError if one of
    them ends before the cluster has started.
    """
    import ray

    with _directory() as directory:
        others = set(psutil.Process().children(recursive=True))
        keep = False
        try:
            try:
                _init(processes, gpu, object_store, directory, others)
            except Exception as error:  # the types of Ray differ: Exception, RuntimeError, ConnectionError
                keep = True
                reason, remedy = _cause(error, others)
                raise UserError(f"Ray did not start on this machine: {reason}", remedy) from error
            started = [
                process for process in psutil.Process().children(recursive=True) if process not in others
            ]
            # There is nothing to scale, and the monitor takes a second to end by itself.
            _end([process for process in started if _is(process, "autoscaler/_private/monitor.py")])
            names = "ray::DashboardAgent", "ray::RuntimeEnvAgent"
            agents = [str(process.pid) for process in started if _is(process, *names)]
            (directory / _AGENTS).write_text(" ".join(agents), encoding="utf-8")
            daemons = [process for process in started if process.name() in _DAEMONS]
            with ends_without(lambda: not all(map(_runs, daemons)), _ENDED):
                yield "this machine"
        except (UserError, SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            keep = True
            raise
        finally:
            started = [
                process for process in psutil.Process().children(recursive=True) if process not in others
            ]
            ray.shutdown()
            _end(started)
            if keep:
                tomorrow = time.time() + 86400
                os.utime(directory / OWNER, (tomorrow, tomorrow))  # it is left over from then on
                say(f"Ray's logs: {directory}/session_latest/logs")
            else:
                _remove(directory)


@contextlib.contextmanager
def ends_without(has_ended: Callable[[], bool], error: str) -> Iterator[None]:
    """Ends this process with `error` and status 1 if `has_ended()` becomes true during the block.

    Without a raylet or a GCS, Ray ends a driver in native code: after 13 s or a minute, and mostly before an
    exception reaches Python. What a kill leaves is left here too, and removed likewise.
    """

    def watch(done: threading.Event) -> None:
        while not done.wait(_INTERVAL):
            # A signal that ends the daemons may also end the block.
            if has_ended() and not done.wait(_INTERVAL):
                say(f"\nerror: {error}")
                os._exit(1)

    with alongside("watch of the cluster", watch):
        yield


def _init(processes: int, gpu: bool, object_store: int, directory: Path, others: set[psutil.Process]) -> None:
    """Starts Ray. `others`: the children of this process that are not of Ray."""
    import ray

    with _without_api_server(), _waiting_for_raylet(others):
        ray.init(
            address="local",
            num_cpus=processes,
            num_gpus=None if gpu else 0,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="warning",
            object_store_memory=object_store,
            _temp_dir=str(directory),
        )


@contextlib.contextmanager
def _waiting_for_raylet(others: set[psutil.Process]) -> Iterator[None]:
    """Ray waits until its raylet has registered, for as long as the raylet runs and at most _START_SECONDS.

    Ray itself waits 30 s, which a busy machine exceeds; so it does where its internals differ.
    """
    from ray._private import services

    get_node = getattr(services, "get_node", None)
    if get_node is None:
        yield
        return

    def patient(*arguments: object) -> object:
        began = time.monotonic()
        while True:
            try:
                return get_node(*arguments)
            except RuntimeError:  # not registered
                if not _raylet_runs(others) or time.monotonic() - began > _START_SECONDS:
                    raise
            time.sleep(_INTERVAL)

    services.get_node = patient
    try:
        yield
    finally:
        services.get_node = get_node


def _has_ipv4_loopback() -> bool:
    with contextlib.suppress(OSError), socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return True
    return False


def _raylet_runs(others: set[psutil.Process]) -> bool:
    started = set(psutil.Process().children(recursive=True)) - others
    return any(process.name() == "raylet" for process in started if _runs(process))


def _cause(error: Exception, others: set[psutil.Process]) -> tuple[str, str]:
    """Why Ray did not start, and what to do."""
    if not _has_ipv4_loopback():
        reason = "its processes connect to each other at 127.0.0.1, which this machine lacks (IPv6 only)."
        remedy = "Add 127.0.0.1/8 to the interface lo, or train on one worker, which needs no Ray."
        return reason, remedy
    if "timed out" in str(error).lower():
        if _raylet_runs(others):
            load = f"a load of {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
            reason = f"its raylet did not register within {_START_SECONDS:.0f} s, at {load}."
            return reason, "Run the same command again when the machine is less busy."
        return "its raylet ended.", "It was killed, or the memory is full. Run the same command again."
    remedy = "The memory or a limit (`ulimit -a`) does not suffice. Run the same command again."
    return (str(error) or repr(error)).splitlines()[0], remedy


@contextlib.contextmanager
def _without_api_server() -> Iterator[None]:
    """Ray starts without its API server, an internal. If a version of Ray lacks that function, the server
    starts.

    Without a dashboard the server only reports the usage of Ray. Even if reports are disabled, it requests
    the name of the cloud from 169.254.169.254 and metadata.google.internal.
    """
    from ray._private import services

    start = getattr(services, "start_api_server", None)
    if start is None:
        yield
        return
    services.start_api_server = lambda *_, **__: (None, None)  # no address, no process
    try:
        yield
    finally:
        services.start_api_server = start


def _remove(directory: Path) -> None:
    """Removes a directory in which ending processes may still create files. What remains after three seconds
    is left over, and the next run removes it."""
    deadline = time.monotonic() + 3
    shutil.rmtree(directory, ignore_errors=True)
    while directory.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    """A new directory for Ray's logs and sockets under RAY_TMPDIR (default /tmp), owned during the block.

    Directories that killed stages left behind are removed.
    """
    parent = cluster_files()
    if len(str(parent)) > _LONGEST:
        raise UserError(
            f"RAY_TMPDIR is {parent}: Ray writes sockets there, whose paths may not exceed 107 characters.",
            f"Choose a directory whose path has at most {_LONGEST} characters, or unset it.",
        )
    with unwritable_is_an_error(parent):
        create_directory(parent)
        remove_abandoned(parent, "unseen-*")
        with accepting_files(parent):
            directory = Path(tempfile.mkdtemp(prefix="unseen-", dir=parent))
    with owned(directory), _removed_with_this_process(directory):
        yield directory


def _is(process: psutil.Process, *names: str) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(part.strip().endswith(names) for part in process.cmdline())
    return False


@contextlib.contextmanager
def _removed_with_this_process(directory: Path) -> Iterator[None]:
    """Kills Ray's agents and removes `directory` when this process is killed.

    Ray's daemons then end by themselves at once, but its two agents only after half a minute. So a shell
    waits for the end of a pipe that this process holds open. SIGTERM kills this process too, if it arrives
    after ray.shutdown(), which restores the default action, and before the handler is set again.
    """
    watcher = subprocess.Popen(
        ["/bin/sh", "-c", _AFTER_DEATH, "sh", str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        watcher.kill()
        watcher.communicate()


def _end(processes: Sequence[psutil.Process]) -> None:
    """Kills those of `processes` that run, and waits until none runs."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + 10
    while any(map(_runs, processes)) and time.monotonic() < deadline:
        time.sleep(0.01)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
