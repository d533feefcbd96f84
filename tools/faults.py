"""Plants faults of one line in a copy of the last commit and runs the tests that can notice them.

    python -m tools.faults [--seed 1] [--faults 100] [--seconds 240] [--state FILE] [PATH ...]

A fault is drawn in two steps: a line of the product that has a place for one, then one of its places. Places
are those of the syntax tree: a comparison (`<` and `<=`, `>` and `>=`, `==` and `!=`, `is`, `in`), a number
(n + 1; twice a fraction), True and False, + and -, * and /, `and` and `or`, min and max, any and all, a
condition (negated), a sign or `not` (dropped), `a if c else b` (a), the last argument (dropped), the first
two (exchanged), a call or an augmented assignment that is a statement (dropped). Annotations, docstrings and
errors that are raised have none. PATH: draws from these files and folders only.

The tests are the files below tests/ that reach the module by imports: first those that import it, then those
that import a module that does, and so on; of equal distance the fastest first. They run with `-x`, without
Ray, the graph and a GPU, at most `--seconds` for a fault. A test that fails also without the fault is left
out from then on. FILE (data/state/faults.json) has every result; a later run continues it. The table of
survivors is printed.
"""

import argparse
import ast
import json
import os
import random
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.environment import environment_of
from tests.forks import forks
from unseen.runtime.code import Code, digest_of

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"unseen": "pipeline", "unseen.stages": "stages", "unseen_search": "unseen_search"}
PACKAGES |= {"dvc_parallel": "dvc_parallel"}
BATCH = 8  # test files of one process
_COMPARISONS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
_OPERATORS = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*")}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_WITHOUT = (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)  # no place below them
_ANNOTATIONS = ("annotation", "returns", "decorator_list", "bases")


@dataclass(frozen=True)
class Fault:
    """Line `line` of a file, and the line with the fault."""

    file: str
    line: int
    before: str
    after: str


def places(file: str, text: str) -> list[Fault]:
    """The faults of a file, in the order of its lines."""
    tree = ast.parse(text)
    lines = text.split("\n")
    faults = set()
    for node in _reached(tree):
        for line, start, end, new in _replacements(node, lines):
            before = lines[line - 1].encode()
            after = (before[:start] + new.encode() + before[end:]).decode()
            faults.add(Fault(file, line, lines[line - 1], after))
    return sorted(faults, key=lambda fault: (fault.line, fault.after))


def changes(text: str, fault: Fault) -> bool:
    """Whether the text of the file with the fault is valid and means something else."""
    try:
        return digest_of(ast.parse(planted(text, fault))) != digest_of(ast.parse(text))
    except SyntaxError:
        return False


def planted(text: str, fault: Fault) -> str:
    """The text of the file with the fault."""
    lines = text.split("\n")
    assert lines[fault.line - 1] == fault.before
    return "\n".join([*lines[: fault.line - 1], fault.after, *lines[fault.line :]])


def _reached(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for name, value in ast.iter_fields(node):
        if name not in _ANNOTATIONS:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, _WITHOUT):
                    yield from _reached(child)


def _replacements(node: ast.AST, lines: Sequence[str]) -> Iterator[tuple[int, int, int, str]]:
    """Line, first and end byte, and the new text of each fault at a node."""

    def source(part: ast.expr) -> str:
        return lines[part.lineno - 1].encode()[part.col_offset : part.end_col_offset].decode()

    def replace(part: Any, new: str) -> Iterator[tuple[int, int, int, str]]:
        if part.lineno == part.end_lineno:
            yield part.lineno, part.col_offset, part.end_col_offset, new

    def between(left: Any, right: Any, change: tuple[str, str]) -> Iterator[tuple[int, int, int, str]]:
        if left.end_lineno == right.lineno:
            text = lines[right.lineno - 1].encode()[left.end_col_offset : right.col_offset].decode()
            new = text.replace(*change, 1)
            yield right.lineno, left.end_col_offset, right.col_offset, new

    one_line = getattr(node, "lineno", 0) == getattr(node, "end_lineno", 1)
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield from between(left, right, _COMPARISONS[type(operator)])
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            yield from between(left, right, _OPERATORS[type(operator)])
        case ast.BoolOp(op=operator, values=[left, right, *_]):
            change = ("and", "or") if isinstance(operator, ast.And) else ("or", "and")
            yield from between(left, right, change)
        case ast.Constant(value=bool() as value):
            yield from replace(node, str(not value))
        case ast.Constant(value=int() | float() as value):
            yield from replace(node, repr(value + 1 if isinstance(value, int) else 2 * value or 1.0))
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand) if one_line:
            yield from replace(node, f"({source(operand)})")
        case ast.IfExp(body=body) if one_line:
            yield from replace(node, f"({source(body)})")
        case ast.Name(id=name) if name in _NAMES:
            yield from replace(node, _NAMES[name])
        case ast.Expr(value=ast.Call()) | ast.AugAssign() if one_line:
            yield from replace(node, "pass")
        case ast.Call(args=arguments, keywords=keywords) if one_line:
            ends = [part.end_col_offset or 0 for part in arguments] + [
                each.end_col_offset or 0 for each in keywords
            ]
            if len(ends) > 1:
                yield node.lineno, ends[-2], (node.end_col_offset or 0) - 1, ""
            if len(arguments) > 1:
                first, second = arguments[:2]
                gap = lines[node.lineno - 1].encode()[first.end_col_offset : second.col_offset].decode()
                new = f"{source(second)}{gap}{source(first)}"
                yield node.lineno, first.col_offset, second.end_col_offset or 0, new
    tests = [node.test] if isinstance(node, ast.If | ast.While | ast.IfExp) else getattr(node, "ifs", [])
    for test in tests:
        if test.lineno == test.end_lineno:
            yield from replace(test, f"(not ({source(test)}))")


def drawn(folder: Path, paths: Sequence[str], seed: int, count: int) -> list[Fault]:
    """`count` faults on different lines of the product in `folder`, or of the given files and folders."""
    texts: dict[str, str] = {}
    lines: dict[tuple[str, int], list[Fault]] = defaultdict(list)
    for path in sorted(path for name in PACKAGES.values() for path in (folder / name).rglob("*.py")):
        file = path.relative_to(folder).as_posix()
        if not paths or file.startswith(tuple(paths)):
            texts[file] = path.read_text(encoding="utf-8")
            for fault in places(file, texts[file]):
                lines[fault.file, fault.line].append(fault)
    draw = random.Random(seed)
    faults = (draw.choice(lines[line]) for line in draw.sample(sorted(lines), len(lines)))
    return list(islice((fault for fault in faults if changes(texts[fault.file], fault)), count))


class Imports:
    """Which test files reach a module by imports, by the number of imports between."""

    def __init__(self, folder: Path) -> None:
        roots = {name: folder / path for name, path in PACKAGES.items()} | {"tests": folder / "tests"}
        code = Code({name: path for name, path in roots.items() if path.is_dir()}, all_modules=True)
        self._names = {path.resolve(): name for name, path in code._files.items()}
        self._importers: dict[str, set[str]] = defaultdict(set)
        self._folder = folder
        for name in code._files:
            parents = [name[:end] for end, letter in enumerate(name) if letter == "."]
            for imported in set(code._module(name).imports) - set(parents):
                self._importers[imported].add(name)

    def distances(self, file: str) -> dict[str, int]:
        """The number of imports from each test file to a file, from the nearest to the farthest."""
        reached = {self._names[(self._folder / file).resolve()]: 0}
        pending = list(reached)
        for name in pending:
            for importer in sorted(self._importers[name]):
                if importer not in reached:
                    reached[importer] = reached[name] + 1
                    pending.append(importer)
        return {
            f"{name.replace('.', '/')}.py": distance
            for name, distance in reached.items()
            if name.startswith("tests.") and name.rpartition(".")[2].startswith("test_")
        }


class Runner:
    """Runs faults of the code in `folder`. `state`: `seconds` of test files, and `broken` tests."""

    def __init__(self, folder: Path, commands: Path, state: dict[str, Any], seconds: float) -> None:
        self._folder, self._commands, self._state, self._seconds = folder, commands, state, seconds
        self._imports = Imports(folder)

    def run(self, fault: Fault) -> dict[str, Any]:
        """The result: `caught` by a test, or `survived` in `files` test files, of `of` that reach it."""
        path = self._folder / fault.file
        text = path.read_text(encoding="utf-8")
        known = self._state["seconds"]
        distances = self._imports.distances(fault.file)
        files = sorted(distances, key=lambda file: (distances[file], known.get(file, 1.0), file))
        end, done = time.monotonic() + self._seconds, 0
        pending = [files[start : start + BATCH] for start in range(0, len(files), BATCH)]
        while pending and time.monotonic() < end:
            path.write_text(planted(text, fault), encoding="utf-8")
            try:
                finished, failed = self._test(pending[0], end - time.monotonic())
            finally:
                path.write_text(text, encoding="utf-8")
            if failed is not None:
                if failed not in self._test([failed], 120)[1:]:
                    return {"result": "caught", "test": failed}
                self._state["broken"].append(failed)
            elif finished:
                done += len(pending.pop(0))
        return {"result": "survived", "files": done, "of": len(files)}

    def _test(self, names: Sequence[str], seconds: float) -> tuple[bool, str | None]:
        """Whether the tests ended in the time, and the first that failed."""
        report = self._commands / "report.xml"
        report.unlink(missing_ok=True)
        command = [str(self._commands / "python"), "-m", "pytest", "-x", "-q", "-n0", "--timeout=60"]
        command += ["-p", "no:cacheprovider", "-m", "not ray and not graph and not gpu", *names]
        command += [f"--deselect={name}" for name in self._state["broken"]]
        command += [f"--junitxml={report}", "-o", "junit_family=xunit1"]
        environment = environment_of(self._folder, self._commands) | {"OMP_NUM_THREADS": "1"}
        with open(os.devnull, "wb") as nowhere, suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command, cwd=self._folder, env=environment, stdout=nowhere, stderr=nowhere, timeout=seconds,
                stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
        if not report.is_file():
            return False, None
        took: dict[str, float] = defaultdict(float)
        for case in ElementTree.parse(report).iter("testcase"):
            file = case.get("file") or f"{case.get('name', '').replace('.', '/')}.py"
            if case.find("failure") is not None or case.find("error") is not None:
                return True, f"{file}::{case.get('name')}" if case.get("file") else file
            took[file] += float(case.get("time", 0))
        self._state["seconds"] |= {file: round(value, 1) for file, value in took.items()}
        return True, None


def table(results: Sequence[dict[str, Any]]) -> str:
    """The survivors as a table of Markdown."""
    rows = ["| file | line | before | after | test files |", "|---|---|---|---|---|"]
    for result in results:
        if result["result"] == "survived":
            before, after = (result[key].strip().replace("|", "\\|") for key in ("before", "after"))
            ran = f"{result['files']} of {result['of']}"
            rows.append(f"| `{result['file']}` | {result['line']} | `{before}` | `{after}` | {ran} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="PATH")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=240, help="most for the tests of one fault")
    parser.add_argument("--state", type=Path, default=ROOT / "data/state/faults.json")
    arguments = parser.parse_args()
    state: dict[str, Any] = {"seconds": {}, "broken": [], "faults": []}
    if arguments.state.is_file():
        state = json.loads(arguments.state.read_text(encoding="utf-8"))
    results = []
    with tempfile.TemporaryDirectory(prefix="faults-") as temporary:
        folder, commands = Path(temporary) / "code", Path(temporary) / "commands"
        commands.mkdir()
        subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(folder)], check=True)
        with forks(commands, os.environ):
            runner = Runner(folder, commands, state, arguments.seconds)
            for fault in drawn(folder, arguments.paths, arguments.seed, arguments.faults):
                key = asdict(fault)
                result = next((known for known in state["faults"] if key.items() <= known.items()), None)
                if result is None:
                    result = key | runner.run(fault)
                    state["faults"].append(result)
                    arguments.state.parent.mkdir(parents=True, exist_ok=True)
                    arguments.state.write_text(json.dumps(state, indent=1), encoding="utf-8")
                results.append(result)
                print(f"{fault.file}:{fault.line} {result['result']} {result.get('test', '')}", flush=True)
    caught = sum(result["result"] == "caught" for result in results)
    print(f"\n{caught} of {len(results)} faults of seed {arguments.seed} are caught.\n\n{table(results)}")


if __name__ == "__main__":
    main()
