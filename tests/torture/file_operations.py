"""Every file operation of every stage fails once: `python -m tests.torture.file_operations`.

For n = 1, 2, 3, ... and each fault of shim.FAULTS, an operation of operations.OPERATIONS runs with its n-th
file operation failing, and then again without a fault, until n exceeds the number of its file operations.
Required:

    after the fault    each output has its old bytes or its new bytes; a directory may be at .NAME.replaced,
                       from where the next run restores it
    the message        an error ends with one message and without a traceback
    the next run       succeeds, has the bytes of an undisturbed run, and leaves no partial file

The finished cases are in a file, so that a killed campaign continues. Cases of another version of the code
run again.
"""

import argparse
import hashlib
import os
import resource
import shutil
import sys
import tempfile
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.torture import shim
from tests.torture.operations import OPERATIONS, PREPARATION, ROOT, Operation, required, write_project
from tests.torture.results import RESULTS, current, load, save

Tree = dict[str, str] | None  # sha256 by relative path; None: absent
STATE = ROOT / "data/state/torture.json"
RESULT = RESULTS / "file_operations.json"
_KILLED = -9


def run(operation: Operation, project: Path, number: int = 0, fault: int = shim.NONE) -> tuple[int, str, int]:
    """Runs an operation in a fork. Returns its exit status (-9: killed), its output, and the number of its
    file operations."""
    from pipeline.runtime.stage import report_errors

    log = project.with_name("output")
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 70
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        try:
            os.chdir(project)
            shim.arm(project, number, fault)
            with report_errors():
                operation.run()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.write(writer, str(shim.count()).encode())
            os._exit(status)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        operations = int(pipe.read() or 0)
    return os.waitstatus_to_exitcode(status), log.read_text(errors="replace"), operations


def tree(path: Path) -> Tree:
    """The content of a file or directory."""
    if not path.exists():
        return None
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files_of(path)
    }


def files_of(path: Path) -> list[Path]:
    """A file itself, or the files of a directory."""
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())


def replaced(path: Path) -> Path:
    return path.with_name(f".{path.name}.replaced")


class Case:
    """The operation with its undisturbed outputs, in `project`."""

    def __init__(self, operation: Operation, project: Path) -> None:
        self.operation, self.project = operation, project
        self.outputs = [project / output for output in operation.outputs]
        self.stable = [project / name for name in operation.outputs if name not in operation.unstable]
        status, output, self.operations = run(operation, project)
        if status != 0:
            raise RuntimeError(f"{operation.name} fails without a fault:\n{output}")
        self.new = {path: tree(path) for path in self.stable}
        self.saved = project.with_name("saved")
        shutil.rmtree(self.saved, ignore_errors=True)
        for path in self.outputs:
            target = self.saved / path.relative_to(project)
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, target)

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
        status, output, _ = run(self.operation, self.project, number, shim.FAULTS[fault])
        problems = []
        for path in self.stable:
            now = tree(path) if path.exists() else tree(replaced(path))
            if now not in (old[path], self.new[path]):
                problems.append(f"{path.name} is neither old nor new")
        if status not in (0, 1, _KILLED) or "Traceback" in output:
            problems.append(f"traceback: {(output.strip().splitlines() or ['no output'])[-1]}")
        elif status == 1 and output.count("error: ") != 1:
            problems.append(f"{output.count('error: ')} messages")
        if fault == "SIGKILL" and status != _KILLED:
            problems.append(f"not killed, status {status}")
        if status == 0 and any(tree(path) != self.new[path] for path in self.stable):
            problems.append("success without the new bytes")
        status, output, _ = run(self.operation, self.project)
        if status != 0:
            problems.append(f"the next run fails: {(output.strip().splitlines() or ['no output'])[-1]}")
        problems += [
            f"{path.name} differs after the next run" for path in self.stable if tree(path) != self.new[path]
        ]
        left = [
            path.name for path in self.project.rglob(".*") if path.name.endswith((".partial", ".replaced"))
        ]
        return problems + [f"{name} is left" for name in left]


def cpu_seconds() -> float:
    """Of this process and its finished children."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def campaign(names: list[str], state: Path, stride: int, results: dict[str, Any], result: Path) -> None:
    """Runs the cases that `results` lacks, of every `stride`-th file operation. Writes them to `state`, and
    their counts to `result`."""
    operations = required(names)
    for module in {module for operation in operations for module in operation.modules}:
        import_module(module)
    with tempfile.TemporaryDirectory(prefix="unseen-torture-") as scratch:
        project = Path(scratch) / "my pröject"  # also a path with a space and a letter outside ASCII
        project.mkdir()
        write_project(project)
        for operation in operations:
            if operation.name in PREPARATION:
                PREPARATION[operation.name](project)
            case = Case(operation, project)
            if names and operation.name not in names:
                continue
            record = current(results, operation.name, operation.modules)
            record["operations"] = case.operations
            done = record.setdefault("cases", {})
            record.setdefault("cpu_seconds", 0.0)
            for number in range(1, case.operations + 1, stride):
                for fault in shim.FAULTS:
                    if f"{number} {fault}" in done:
                        continue
                    start = cpu_seconds()
                    violations = case.violations(number, fault)
                    done[f"{number} {fault}"] = violations
                    record["cpu_seconds"] += cpu_seconds() - start
                    for violation in violations:
                        sys.stdout.write(f"{operation.name}, operation {number}, {fault}: {violation}\n")
                save(state, results)
                save(result, summary(results))
            case.reset()
            for path in case.outputs:  # the next operation reads undisturbed outputs
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            run(operation, project)
            every = len(shim.FAULTS) * case.operations
            sys.stdout.write(f"{operation.name}: {len(done):,} of {every:,} cases\n")
            sys.stdout.flush()


def summary(cases: dict[str, Any]) -> dict[str, Any]:
    """The counts of each operation, for the page."""
    return {
        name: {
            **{key: record[key] for key in ("commit", "digest", "operations", "cpu_seconds")},
            "cases": len(record["cases"]),
            "violations": {case: problems for case, problems in record["cases"].items() if problems},
        }
        for name, record in cases.items()
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
    results = load(arguments.state)
    campaign(arguments.operations, arguments.state, arguments.stride, results, arguments.result)
    if any(violations for record in results.values() for violations in record["cases"].values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
