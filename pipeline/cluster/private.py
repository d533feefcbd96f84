"""A Ray cluster of this process alone. It is never found by others and never finds others: its own address, its own directory, its own token."""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from pipeline.runtime.errors import UserError

_LONGEST = 107 - len("/unseen-12345678/session_2026-11-20_13-58-04_892619_1234567/sockets/plasma_store")
_TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
_token_in_use: list[bool] = []


def use_own_token() -> None:
    """Before Ray is imported, which is when it settles how it authenticates: a token that only this process and its children know.

    Ray's own would be written to the home directory; without one every user of the machine could run code as us. RAY_AUTH_MODE wins where it is set.
    """
    os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")  # nobody takes this machine away
    if "RAY_AUTH_MODE" not in os.environ and ("ray" not in sys.modules or _token_in_use):
        os.environ.update(_TOKEN)
        _token_in_use.append(True)


@contextlib.contextmanager
def private_cluster(processes: int, gpu: bool, object_store: int) -> Iterator[str]:
    """Starts a cluster for `processes` workers and ends it, with every process of it, when the block ends or this process is killed."""
    import ray

    directory = _directory()
    others = set(psutil.Process().children(recursive=True))
    keep = False
    try:
        ray.init(
            address="local",
            num_cpus=processes + 2,  # as many Python processes start at once: the workers, and the controller and the barrier of a training
            num_gpus=None if gpu else 0,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="warning",
            object_store_memory=object_store,
            _temp_dir=str(directory),
        )
        started = [process for process in psutil.Process().children(recursive=True) if process not in others]
        _end([process for process in started if _is(process, "autoscaler/_private/monitor.py")])  # nothing to scale; takes a second to end by itself
        with _ended_with_us([process for process in started if _is(process, "ray::DashboardAgent", "ray::RuntimeEnvAgent")]):
            yield "this machine"
    except (UserError, SystemExit, KeyboardInterrupt):
        raise
    except BaseException:
        keep = True
        raise
    finally:
        started = [process for process in psutil.Process().children(recursive=True) if process not in others]
        ray.shutdown()
        _end(started)
        if keep:
            sys.stderr.write(f"Ray's logs: {directory}/session_latest/logs\n")
        else:
            shutil.rmtree(directory, ignore_errors=True)


def _directory() -> Path:
    """A fresh directory for Ray's logs and sockets under RAY_TMPDIR (default /tmp); those that killed stages left a day ago are removed."""
    parent = Path(os.environ.get("RAY_TMPDIR", "/tmp"))
    if len(str(parent)) > _LONGEST:
        raise UserError(
            f"RAY_TMPDIR is {parent}: Ray puts sockets below it, whose paths may not exceed 107 characters.",
            f"Choose a directory whose path has at most {_LONGEST} characters, or unset it.",
        )
    parent.mkdir(parents=True, exist_ok=True)
    for owner in parent.glob("unseen-*/owner"):
        with contextlib.suppress(OSError, ValueError):  # another user's, or gone
            if time.time() - owner.stat().st_mtime > 86400 and not psutil.pid_exists(int(owner.read_text())):
                shutil.rmtree(owner.parent, ignore_errors=True)
    directory = Path(tempfile.mkdtemp(prefix="unseen-", dir=parent))
    (directory / "owner").write_text(str(os.getpid()))
    return directory


def _is(process: psutil.Process, *names: str) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(part.strip().endswith(names) for part in process.cmdline())
    return False


@contextlib.contextmanager
def _ended_with_us(processes: Sequence[psutil.Process]) -> Iterator[None]:
    """Kills `processes` when this one is killed: Ray's daemons see to it themselves, but its two agents notice after half a minute only.

    A shell waits for the end of a pipe whose other end dies with this process.
    """
    command = f"read nothing; kill -9 {' '.join(str(process.pid) for process in processes)}"
    watcher = subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield
    finally:
        watcher.kill()
        watcher.communicate()


def _end(processes: Sequence[psutil.Process]) -> None:
    """Kills what still runs and waits until it does no more; the system may take a while longer to forget it."""
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
