"""Every file operation of every stage fails once: `python -m tests.torture.file_operations`.

For n = 1, 2, 3, ... and each fault of shim.FAULTS, an operation of operations.OPERATIONS runs with its n-th
file operation failing, and then again without a fault, until n exceeds the number of its file operations.
Required:

    after the fault    each output has its old bytes or its new bytes; a directory may be at .NAME.replaced,
                       from where the next run restores it
    the message        an error ends with one message and without a traceback, and leaves no partial file
    the next run       succeeds, has the bytes of an undisturbed run and the permissions of new files, and
                       leaves no partial file

The next run is omitted if every file has the content that it had before an earlier next run, which succeeded:
most errors leave the old files.

The finished cases are in a file, so that a killed campaign continues. Cases of another version of the code
run again. Several processes may run different operations at the same time.
"""

import argparse
import hashlib
import os
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from tests.torture import network, shim
from tests.torture.fork import Ended, Fork, import_all
from tests.torture.operations import OPERATIONS, PREPARATION, ROOT, Operation, required, write_project
from tests.torture.results import RESULTS, Result, current, load, record

Tree = dict[str, str] | None  # permissions and sha256 by relative path; None: absent
STATE = ROOT / "data/state/torture.json"
RESULT = RESULTS / "file_operations.json"
_KILLED = -9
_RANDOM = re.compile(r"[0-9a-f]{32}|(?<=\.tmp)\w{6}")  # in the names of partial files
_INTERVAL = 20.0  # seconds between two records of the progress


def run(operation: Operation, project: Path, number: int = 0, fault: int = shim.NONE) -> Ended:
    """Runs an operation in a fork."""
    from unseen.training import pace

    def with_all_checkpoints() -> None:
        pace.SHORT = 60.0  # seconds: a busy machine has all checkpoints, and so all file operations
        operation.run()

    return Fork(with_all_checkpoints, project, number, fault).ended()


def tree(path: Path) -> Tree:
    """The content and permissions of a file or directory."""
    if not path.exists():
        return None
    return {str(file.relative_to(path)): _identity(file) for file in files_of(path)}


def _identity(file: Path) -> str:
    return f"{file.stat().st_mode:o} {hashlib.sha256(file.read_bytes()).hexdigest()}"


def files_of(path: Path) -> list[Path]:
    """A file itself, or the files of a directory."""
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())


def state_of(project: Path, unstable: Sequence[str]) -> str:
    """A digest of the names, kinds and contents of everything below `project`, without the random parts of
    names and without the content of `unstable`."""
    digest = hashlib.sha256()
    for path in sorted(project.rglob("*"), key=lambda path: _RANDOM.sub("", str(path))):
        name = path.relative_to(project).as_posix()
        content = path.read_bytes() if path.is_file() and name not in unstable else b""
        kind = "link" if path.is_symlink() else "folder" if path.is_dir() else "file"
        digest.update(f"{_RANDOM.sub('', name)}\0{kind}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def replaced(path: Path) -> Path:
    return path.with_name(f".{path.name}.replaced")


class Case:
    """The operation with its undisturbed outputs, in `project`."""

    def __init__(self, operation: Operation, project: Path) -> None:
        self.operation, self.project = operation, project
        self.outputs = [project / output for output in operation.outputs]
        self.stable = [project / name for name in operation.outputs if name not in operation.unstable]
        first = run(operation, project)
        if first.status != 0:
            raise RuntimeError(f"{operation.name} fails without a fault:\n{first.output}")
        import_all(first.imported)  # once, and not in every case
        self.new = {path: tree(path) for path in self.stable}
        self.saved = project.with_name("saved")
        shutil.rmtree(self.saved, ignore_errors=True)
        for path in self.outputs:
            target = self.saved / path.relative_to(project)
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, target)
        self.reset()
        self.operations = run(operation, project).operations  # of a run that replaces its outputs
        os.umask(umask := os.umask(0))
        self.umask = umask
        self.succeeds: set[str] = set()  # states from which a run was as it should be

    def reset(self) -> dict[Path, Tree]:
        """Gives every output other bytes than those of an undisturbed run, and returns them."""
        for name in self.operation.scratch:
            shutil.rmtree(self.project / name, ignore_errors=True)
        for path in self.outputs:
            for old in (path, replaced(path)):
                shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
            if self.operation.replaces:
                saved = self.saved / path.relative_to(self.project)
                path.parent.mkdir(parents=True, exist_ok=True)
                (shutil.copytree if saved.is_dir() else shutil.copy2)(saved, path)
                for file in (
                    [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
                ):
                    file.write_bytes(file.read_bytes() + b"old")
        return {path: tree(path) for path in self.stable}

    def violations(self, number: int, fault: str) -> list[str]:
        """What the fault broke, in one line each."""
        old = self.reset()
        before = self._partial_files()  # of an earlier case that ended by a kill
        ended = run(self.operation, self.project, number, shim.FAULTS[fault])
        problems = []
        for path in self.stable:
            now = tree(path) if path.exists() else tree(replaced(path))
            if now not in (old[path], self.new[path]):
                problems.append(f"{path.name} is neither old nor new")
        if ended.status not in (0, 1, _KILLED) or "Traceback" in ended.output:
            problems.append(f"traceback: {_last_line(ended)}")
        elif ended.status == 1 and ended.output.count("error: ") != 1:
            problems.append(f"{ended.output.count('error: ')} messages")
        if fault in shim.ENDS and ended.status != _KILLED:
            problems.append(f"not killed, status {ended.status}")
        if ended.status != _KILLED:
            left = self._partial_files() - before
            problems += [f"{path.name} is left by the error" for path in sorted(left)]
        if ended.status == 0 and any(tree(path) != self.new[path] for path in self.stable):
            problems.append("success without the new bytes")
        return problems + self._violations_of_the_next_run()

    def _partial_files(self) -> set[Path]:
        """Those with content beside the outputs; an empty one may be that whose removal failed. The writer of
        checkpoints may not have ended: a run ends by os._exit."""
        scratch = tuple(f"{self.project / name}/" for name in self.operation.scratch)
        files = self.project.rglob(".*.partial")
        partial = {path for path in files if path.is_file() and path.stat().st_size > 0}
        return {path for path in partial if not str(path).startswith(scratch)}

    def _violations_of_the_next_run(self) -> list[str]:
        state = state_of(self.project, self.operation.unstable)
        if state in self.succeeds:
            return []
        ended = run(self.operation, self.project)
        problems = []
        if ended.status != 0:
            problems.append(f"the next run fails: {_last_line(ended)}")
        problems += [
            f"{file.name} has other permissions than a new file"
            for path in self.stable
            for file in (files_of(path) if path.exists() else [])
            if file.stat().st_mode & 0o777 != 0o666 & ~self.umask
        ]
        problems += [
            f"{path.name} differs after the next run" for path in self.stable if tree(path) != self.new[path]
        ]
        left = [
            path.name for path in self.project.rglob(".*") if path.name.endswith((".partial", ".replaced"))
        ]
        problems += [f"{name} is left" for name in left]
        if not problems:
            self.succeeds.add(state)
        return problems


def _last_line(ended: Ended) -> str:
    return (ended.output.strip().splitlines() or ["no output"])[-1]


def cpu_seconds() -> float:
    """Of this process and its finished children."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def campaign(names: list[str], state: Path, stride: int, result: Path) -> None:
    """Runs the cases that the file `state` lacks, of every `stride`-th file operation. Writes them to it, and
    their counts to `result`."""
    operations = required(names)
    for module in {module for operation in operations for module in operation.modules}:
        import_module(module)
    with tempfile.TemporaryDirectory(prefix="unseen-torture-") as scratch:
        project = Path(scratch) / "my pröject"  # also a path with a space and a letter outside ASCII
        project.mkdir()
        write_project(project, network.NAME)
        for operation in operations:
            if operation.name in PREPARATION:
                PREPARATION[operation.name](project)
            case = Case(operation, project)
            if not names or operation.name in names:
                cases = current(load(state), operation.name, operation.modules)
                _run_cases(case, cases, stride, partial(_record, state, result, operation.name, cases))
            case.reset()
            for path in case.outputs:  # the next operation reads undisturbed outputs
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            run(operation, project)


def _run_cases(case: Case, result: Result, stride: int, save: Callable[[], None]) -> None:
    name = case.operation.name
    result["operations"] = case.operations
    done = result.setdefault("cases", {})
    result.setdefault("cpu_seconds", 0.0)
    saved = time.monotonic()
    for number in range(1, case.operations + 1, stride):
        for fault in shim.FAULTS:
            if f"{number} {fault}" in done:
                continue
            start = cpu_seconds()
            violations = case.violations(number, fault)
            done[f"{number} {fault}"] = violations
            result["cpu_seconds"] += cpu_seconds() - start
            for violation in violations:
                sys.stdout.write(f"{name}, operation {number}, {fault}: {violation}\n")
                sys.stdout.flush()
        if time.monotonic() - saved > _INTERVAL:
            save()
            saved = time.monotonic()
    save()
    every = len(shim.FAULTS) * case.operations
    sys.stdout.write(f"{name}: {len(done):,} of {every:,} cases, {result['cpu_seconds']:.0f} CPU s\n")
    sys.stdout.flush()


def _record(state: Path, result: Path, name: str, cases: Result) -> None:
    record(state, name, cases)
    record(result, name, counts(cases))


def counts(result: Result) -> Result:
    """The counts of an operation, for the page."""
    return {
        **{key: result[key] for key in ("commit", "digest", "operations", "cpu_seconds")},
        "cases": len(result["cases"]),
        "faults": list(shim.FAULTS),
        "violations": {case: problems for case, problems in result["cases"].items() if problems},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Every file operation fails once.")
    parser.add_argument("operations", nargs="*", help=f"some of: {', '.join(o.name for o in OPERATIONS)}")
    parser.add_argument("--stride", type=int, default=1, help="only every n-th file operation")
    parser.add_argument("--state", type=Path, default=STATE, help="file of the finished cases")
    parser.add_argument("--result", type=Path, default=RESULT, help="file of the counts")
    arguments = parser.parse_args()
    if shim.compiler() is None:
        raise SystemExit("The campaign needs Linux and a C compiler (cc).")
    shim.restart_with_library()
    campaign(arguments.operations, arguments.state, arguments.stride, arguments.result)
    if any(result["violations"] for result in load(arguments.result).values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
