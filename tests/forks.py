"""Runs `python -m MODULE` in a fork of one process that has imported the libraries.

A stage imports them for 5 s of CPU time. `python -m tests.forks DIRECTORY` writes the commands `python`,
`dvc` and `unseen` to DIRECTORY and serves them. A command sends its arguments, variables, working directory,
stdin, stdout and stderr, and ends with the status of the fork. The fork imports the code of the project anew,
from its working directory and PYTHONPATH. Its parent is the server: a test of signals or of a killed parent
starts Python.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_OWN = ("pipeline", "stages", "unseen", "unseen_search", "dvc_parallel", "tests")
_LIBRARIES_OF = (
    "unseen_search.catalog", "unseen.cluster.training", "unseen.evaluation.evaluate", "unseen.report.page",
    "unseen.training.loop", "dvc.cli.parser",
    "dvc.repo.experiments.run", "dvc.repo.reproduce",
)  # fmt: skip
_COMMAND = """#!{interpreter} -IS
import json, os, socket, sys
name = os.path.basename(sys.argv[0])
arguments = sys.argv[1:] if name == "python" else ["-m", name, *sys.argv[1:]]
if arguments[:1] != ["-m"]:
    os.execv({python!r}, [{python!r}, *arguments])  # Python looks for its packages beside argv[0]
request = json.dumps([os.getcwd(), dict(os.environ), *arguments[1:]])
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({address!r})
    socket.send_fds(connection, [b"-"], [0, 1, 2])
    connection.sendall(request.encode())
    connection.shutdown(socket.SHUT_WR)
    status = int(connection.recv(16))
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@contextlib.contextmanager
def forks(directory: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """`directory` holds the commands; they work inside the context."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.forks", str(directory)],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == b"ready\n"
        yield
    finally:
        server.stdin.close()
        server.wait(timeout=60)
        server.stdout.close()


def _main(directory: Path) -> None:
    """The server, which ends with stdin. Kills a fork whose command has ended."""
    for name in _LIBRARIES_OF:
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] in _OWN]:
        del sys.modules[name]
    libraries = [path for path in sys.path if Path(path).resolve() != ROOT]
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the pages of all objects
    running: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX) as listener:
        address = str(directory / "socket")
        listener.bind(address)
        listener.listen(64)
        interpreter = directory / "interpreter"  # a path without spaces
        interpreter.symlink_to(sys.executable)
        text = _COMMAND.format(interpreter=interpreter, python=sys.executable, address=address)
        for name in ("python", "dvc", "unseen"):
            (directory / name).write_text(text, encoding="utf-8")
            (directory / name).chmod(0o755)
        print("ready", flush=True)
        while sys.stdin not in (
            ready := select.select([listener, sys.stdin], [], [], 0.01 if running else None)[0]
        ):
            if ready:
                connection, _ = listener.accept()
                child = os.fork()
                if child == 0:
                    listener.close()
                    _run(connection, libraries)
                running[child] = connection
            for child, connection in list(running.items()):
                hung_up = select.poll()
                hung_up.register(connection, 0)
                if hung_up.poll(0):
                    os.kill(child, signal.SIGKILL)
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    with contextlib.suppress(BrokenPipeError), running.pop(child):
                        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def received(connection: socket.socket) -> Any:
    """The request of a command: directory, variables and arguments. This fork gets its directory, variables
    and standard streams."""
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as file:
        directory, variables, *arguments = json.load(file)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(variables)
    return directory, variables, *arguments


def _run(connection: socket.socket, libraries: list[str]) -> None:
    """Ends this fork with the module of the request. Python's own end would copy the pages of all objects."""
    with connection:
        directory, variables, module, *arguments = received(connection)
    if "UNSEEN_PARENT" in variables:
        os.environ["UNSEEN_PARENT"] = str(os.getppid())
    own = [path for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [directory, *own, *libraries]
    sys.path_importer_cache.clear()
    sys.argv[1:] = arguments
    status = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        if isinstance(error.code, int):
            status = error.code
        elif error.code is not None:
            status = 1
            print(error.code, file=sys.stderr)
    except BaseException:
        status = 1
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
