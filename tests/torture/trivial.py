"""A project whose stages are shell commands of milliseconds, for `unseen run` in forks of one process.

The process has imported DVC, which takes longer than all stages. Before a run the project is in a state:

    new        no stage has run
    complete   every stage has run; only a run with --force runs them again
    changed    every stage has run with other sources, so that each replaces its outputs
    restored   as complete, but the sources are earlier ones, whose outputs are in the run cache
"""

import gc
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tests.torture import shim
from tests.torture.fork import Fork
from tests.torture.miniature import Project
from tests.torture.operations import write_project

STATES = ("new", "complete", "changed", "restored")
TARGET = "collect"  # depends on all stages, and has no result that `unseen run` prints
_IMPORTED = ("dvc.cli.parser", "dvc.repo.reproduce", "dvc.repo.status", "dvc.stage.cache", "unseen.cli.run")
_CONFIG = "[core]\nanalytics = false\ncheck_update = false\n"
_OF_DVC = ("btime", "lock", "rwlock", "rwlock.lock")
_LEFT_OUT = (".git/", ".dvc/tmp/", "data/logs/", "data/state/")
_GRAPH = """
stages:
  copy:
    matrix: {name: [a, b, c]}
    cmd: sh stages.sh copy-${item.name} source-${item.name}
    deps: [source-a, "source-${item.name}"]
    outs: ["copy-${item.name}"]
  folder:
    matrix: {name: [a, b, c]}
    cmd:
      - mkdir folder-${item.name}
      - sh stages.sh folder-${item.name}/first copy-${item.name}
      - sh stages.sh folder-${item.name}/second copy-${item.name}
    deps: ["copy-${item.name}"]
    outs: ["folder-${item.name}"]
  measure:
    foreach: [a, b]
    do:
      cmd: sh stages.sh size-${item}.json copy-${item}
      deps: ["copy-${item}"]
      metrics: [{"size-${item}.json": {cache: false}}]
  alone:
    cmd: sh stages.sh alone source-c
    deps: [source-c]
    params: [run.seeds]
    outs: [alone]
  collect:
    cmd: sh stages.sh collected alone folder-*/first
    deps: [alone, folder-a, folder-b, folder-c, size-a.json, size-b.json]
    outs: [collected]
"""
# Writes the first file in two steps, from the others.
_SCRIPT = 'out=$1; shift; echo "$out" > "$out"; sleep 0.03; cat "$@" >> "$out"\n'


@dataclass(frozen=True)
class Trivial(Project):
    """The project. `scratch` also contains its states, DVC's files of this machine, and the last output."""

    def start(self, command: str, killed_at: int = 0) -> Fork:  # type: ignore[override]
        """Runs `dvc ...` or `unseen run -j ...` in a fork, which SIGKILL ends at its file operation
        `killed_at` = 1, 2, ..."""

        def run() -> None:
            variables = self.environment() | {"DVC_SITE_CACHE_DIR": str(self.scratch / "site")}
            os.environ.clear()
            os.environ.update(variables)
            tempfile.tempdir = None
            sys.argv[:] = words = command.split()
            if words[0] == "dvc":
                raise SystemExit(import_module("dvc.cli").main(words[1:]))
            raise SystemExit(import_module("unseen.cli.run").run(words[4:], int(words[3])))

        return Fork(run, self.path, killed_at, shim.FAULTS["SIGKILL"])

    def outputs(self) -> dict[str, str]:
        """Permissions and sha256 of dvc.lock, the outputs and the objects of DVC's cache, by name. DVC adds
        lines to .gitignore in the order in which stages end."""
        outputs = {}
        for path in (path for path in self.path.rglob("*") if path.is_file()):
            name, content = path.relative_to(self.path).as_posix(), path.read_bytes()
            if name == ".gitignore":
                content = b"".join(sorted(content.splitlines(keepends=True)))
            if not name.startswith(_LEFT_OUT):
                outputs[name] = f"{path.stat().st_mode:o} {hashlib.sha256(content).hexdigest()}"
        return outputs

    def leftovers(self) -> list[str]:
        """Temporary files, files of DVC beside those of every run, and entries of DVC's lock of paths."""
        temporary = [f"tmp/{path.name}" for path in (self.scratch / "tmp").iterdir()]
        of_dvc = self.path / ".dvc/tmp"
        entries = [".dvc/tmp/rwlock"] if '"pid"' in (of_dvc / "rwlock").read_text(encoding="utf-8") else []
        return temporary + entries + [path.name for path in of_dvc.iterdir() if path.name not in _OF_DVC]

    def enter(self, state: str) -> None:
        for folder in (self.path, self.scratch / "site"):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.scratch / state, self.path, symlinks=True)


@contextmanager
def project() -> Iterator[Trivial]:
    """The project with its states, as a git repository, in a path with a space and a letter outside ASCII."""
    for module in _IMPORTED:
        import_module(module)
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the pages of all objects
    with tempfile.TemporaryDirectory(prefix="unseen-trivial-") as folder:
        copy = Trivial(Path(folder).resolve() / "my pröject", Path(folder).resolve())
        (copy.scratch / "tmp").mkdir()
        write_project(copy.path)
        for name, text in {"dvc.yaml": _GRAPH, "stages.sh": _SCRIPT, ".dvc/config": _CONFIG}.items():
            (copy.path / name).parent.mkdir(exist_ok=True)
            (copy.path / name).write_text(text, encoding="utf-8")
        subprocess.run(["git", "init", "--quiet", "--template="], cwd=copy.path, check=True)
        repro = f"dvc repro {TARGET}"
        for state, command, sources in zip(STATES, ("", repro, "", repro), (1, 1, 2, 1), strict=True):
            if command and (problem := copy.run(command)):
                raise RuntimeError(f"{command} fails: {problem}")
            for name in "abc":
                (copy.path / f"source-{name}").write_text(f"{name} {sources}\n", encoding="utf-8")
            shutil.copytree(copy.path, copy.scratch / state, symlinks=True)
        yield copy
