"""Runs `python -m MODULE ARGUMENTS`, a program that starts many workers of Ray, with workers that fork:
`python -m tests.torture.forked_workers MODULE ARGUMENTS`.

A worker imports the libraries of a training, and Ray, for 8 s of CPU time. This program imports them once,
and Ray once for each node of Ray that it starts, because Ray reads variables of the node when it is imported.
A node has a server, a fork of this program, and executes this file as the command of a worker. The command
sends its arguments, variables and standard streams to the server, and ends with the worker, a fork of the
server.
"""

import argparse
import ctypes
import gc
import importlib
import itertools
import json
import os
import runpy
import signal
import socket
import sys
import traceback
from types import SimpleNamespace
from typing import Any, NoReturn

_ADDRESS = "UNSEEN_FORKED_WORKERS"  # variable of the nodes of Ray: the name of the server's socket
_IMPORTED = ("pandas", "pyarrow.fs", "pyarrow.parquet", "unseen.training.loop", "tests.training.jobs")
_OF_WORKERS = ("ray.train.torch", "unseen.cluster.train_workers", "unseen.cluster.training")  # import Ray
_PR_SET_PDEATHSIG = 1


def _main(module: str) -> None:
    """Starts the server, which ends with this process, and runs the program."""
    for library in _IMPORTED:
        importlib.import_module(library)
    assert "ray" not in sys.modules, "the libraries import Ray"
    listener = _listener(name := f"unseen-workers-{os.getpid()}")
    if os.fork() == 0:
        _serve_nodes(listener, name)
    listener.close()
    from ray._private import services

    start = services.start_raylet

    def start_raylet(*arguments: Any, **named: Any) -> Any:
        ours = [__file__ if str(value).endswith("/setup_worker.py") else value for value in arguments]
        assert ours != list(arguments), "this version of Ray gives the command of its workers otherwise"
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect("\0" + name)
            os.environ[_ADDRESS] = connection.recv(100).decode()  # the node inherits it
        return start(*ours, **named)

    services.start_raylet = start_raylet
    del sys.argv[0]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _listener(name: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0" + name)
    listener.listen(64)
    return listener


def _serve_nodes(listener: socket.socket, name: str) -> NoReturn:
    """Forks the server of a node at each connection, and replies the name of its socket. Ends with the
    program."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in itertools.count():
        connection, _ = listener.accept()
        of_node = _listener(f"{name}-{number}")
        if os.fork() == 0:
            listener.close()
            connection.close()
            _serve(of_node)
        of_node.close()
        connection.sendall(f"{name}-{number}".encode())
        connection.close()
    raise AssertionError("the loop does not end")


def _serve(listener: socket.socket) -> NoReturn:
    """The server of a node."""
    from tests.forks import received

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    while True:
        connection, _ = listener.accept()
        _, _, *arguments = received(connection)
        if "ray" not in sys.modules:
            _import()
        if os.fork() == 0:
            listener.close()
            _work(arguments)
        connection.close()


def _import() -> None:
    """Imports what needs Ray. Ray seeds its generator of IDs when it is used first: forks of a process that
    has used it have equal IDs. An import uses it for the IDs of actor classes only."""
    from ray import ActorClassID, actor

    actor.ActorClassID = SimpleNamespace(from_random=lambda: ActorClassID(os.urandom(ActorClassID.size())))
    for library in _OF_WORKERS:
        importlib.import_module(library)
    actor.ActorClassID = ActorClassID
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the pages of all objects


def _work(arguments: list[str]) -> NoReturn:
    """The worker of a command, which waits for the end of the connection."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    from ray._private.runtime_env.context import RuntimeEnvContext

    parser = argparse.ArgumentParser()
    parser.add_argument("--serialized-runtime-env-context", default="{}")
    parser.add_argument("--language")
    options, command = parser.parse_known_args(arguments)
    os.environ.update(RuntimeEnvContext.deserialize(options.serialized_runtime_env_context).env_vars)
    sys.argv[:] = command
    status = 1
    try:
        runpy.run_path(command[0], run_name="__main__")
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)


def _request() -> None:
    """The command of a worker."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0" + os.environ[_ADDRESS])
        socket.send_fds(connection, [b"-"], [0, 1, 2])
        connection.sendall(json.dumps([os.getcwd(), dict(os.environ), *sys.argv[1:]]).encode())
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)


if __name__ == "__main__":
    if _ADDRESS in os.environ:
        _request()
    else:
        _main(sys.argv[1])
