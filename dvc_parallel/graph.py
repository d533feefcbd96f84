"""The stages of dvc.yaml in DVC's order, DVC's test whether a stage must run, and the two parts of a stage
before and after its command.

DVC has no public functions for them. This file contains the calls of its internal functions: those with which
`dvc repro` plans a run (dvc/repo/reproduce.py, DVC 3.67) and runs a stage (dvc/stage/__init__.py, run.py).
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dvc_parallel.errors import RunError
from dvc_parallel.graph_lock import GraphLock
from dvc_parallel.lock_file import UNFINISHED, remove_partial, repair_lock_file

_COUNTS = "entries-"  # begins the names of the files of graph_lock.py in .dvc/tmp


@dataclass(frozen=True)
class Graph:
    """The stages of a run: `stages` in an order in which each stage follows its dependencies, and the direct
    `dependencies` of each stage among them."""

    stages: tuple[str, ...]
    dependencies: Mapping[str, frozenset[str]]

    def dependents(self, stage: str) -> set[str]:
        """All stages that depend on `stage`, directly or through other stages."""
        result: set[str] = set()
        for name in self.stages:
            direct = self.dependencies[name]
            if stage in direct or not result.isdisjoint(direct):
                result.add(name)
        return result


@dataclass(frozen=True)
class Options:
    """The options of `dvc repro` that concern one stage."""

    force: bool = False
    run_cache: bool = True
    commit: bool = True
    pull: bool = False
    allow_missing: bool = False


@dataclass
class Command:
    """A stage whose command must run: `lines`, each in a process of its own with these arguments of Popen.

    `paths` contains DVC's lock of the paths of the stage.
    """

    lines: Sequence[str]
    arguments: Mapping[str, Any]
    paths: ExitStack = field(repr=False)


class Stages:
    """The stages of the DVC project in the working directory, read once. What a run left that did not finish
    is removed (lock_file.py).

    Raises RunError if DVC cannot read dvc.yaml or params.yaml.
    """

    def __init__(self, options: Options | None = None) -> None:
        from dvc.exceptions import DvcException
        from dvc.repo import Repo
        from dvc.repo.reproduce import get_active_graph

        self._options = options or Options()
        self._locks: dict[str, GraphLock] = {}
        repair_lock_file()
        try:
            self._repo: Any = Repo(_wait_for_lock=True)
            self._repo._reset = lambda: None  # DVC would read the graph again after each release of its lock
            self._graph = get_active_graph(self._repo.index.graph)  # frozen stages without dependencies
        except TypeError as error:
            if "not iterable" not in str(error):
                raise
            raise RunError(
                f"dvc.yaml cannot be expanded: an axis of a matrix is a single value ({error}).",
                "Write the axes in block `run` of params.yaml as lists, for example `datasets: [parts]`.",
            ) from error
        except DvcException as error:
            raise RunError(
                f"DVC cannot read the graph: {error}", "Correct dvc.yaml, params.yaml or dvc.lock."
            ) from error
        self._by_name: dict[str, Any] = {stage.addressing: stage for stage in self._graph}
        self._unfinished = Path(self._repo.tmp_dir, UNFINISHED)
        if self._unfinished.exists():
            with self._locked():
                outputs = [out.fs_path for stage in self._graph for out in stage.outs]
                remove_partial(self._unfinished.parent, outputs)
        self._unfinished.touch()

    def graph(self, targets: Sequence[str] = ()) -> Graph:
        """The stages that `dvc repro TARGETS` would visit: `targets` and their dependencies, or all.

        A target is what `dvc repro` accepts: a stage, a matrix (`train`) or a cell (`train@parts-ms-0`).
        """
        from dvc.exceptions import DvcException
        from dvc.repo.reproduce import collect_stages, plan_repro

        try:
            selected = collect_stages(self._repo, targets) if targets else None
        except DvcException as error:
            remedy = "`dvc stage list --name-only` lists the stages."
            raise RunError(f"DVC does not find the target: {error}", remedy) from error
        planned = plan_repro(self._graph, selected)
        names = {stage.addressing for stage in planned}
        return Graph(
            tuple(stage.addressing for stage in planned),
            {
                stage.addressing: frozenset(other.addressing for other in self._graph.successors(stage))
                & names
                for stage in planned
            },
        )

    def changed(self, stage: str) -> bool:
        """Whether `dvc repro --single-item` would run or restore `stage` now.

        Its command, a dependency or an output differs from dvc.lock. This is `Stage.changed` of DVC without
        its locks. No stage of this run writes these files now.
        """
        of_dvc = self._by_name[stage]
        if self._options.force or of_dvc.changed_stage():
            return True
        ignored = {"deleted", "not in cache"} if self._options.allow_missing else set()
        if not of_dvc.frozen:
            if of_dvc.is_callback or of_dvc.always_changed:
                return True
            if any(set(dep.status().values()) - ({"deleted"} & ignored) for dep in of_dvc.deps):
                return True
        return any(set(out.status().values()) - ignored for out in of_dvc.outs)

    def begin(self, stage: str, environment: Mapping[str, str]) -> Command | None:
        """Removes the outputs of a changed stage, and restores them from the run cache if they are there.

        None means that the stage is complete; otherwise its command must run with the variables of
        `environment`, and then `finish` or `Command.paths.close`. Until then DVC refuses other processes that
        use its paths. Raises RunError.
        """
        from dvc.stage.cache import RunCacheNotFoundError
        from dvc.stage.run import _enforce_cmd_list, _make_cmd, _pull_missing_deps, get_executable
        from dvc.stage.run import prepare_kwargs as arguments_of_popen

        of_dvc, options = self._by_name[stage], self._options
        with self._locked(stage):
            with self._paths(of_dvc):
                if of_dvc.frozen or not of_dvc.cmd:  # an import, a file of `dvc add`
                    of_dvc.run(no_commit=not options.commit, allow_missing=options.allow_missing)
                    self._write(of_dvc)
                    return None
                of_dvc.remove_outs(ignore_remove=False, force=False)
                if not options.force:
                    if options.pull:
                        _pull_missing_deps(of_dvc)
                    try:
                        self._repo.stage_cache.restore(of_dvc, run_cache=options.run_cache, pull=options.pull)
                        self._save(of_dvc)
                        return None
                    except RunCacheNotFoundError:
                        of_dvc.save_deps()
            paths = ExitStack()
            paths.enter_context(self._paths(of_dvc, f"{stage}: "))
        lines = [_make_cmd(get_executable(), line) for line in _enforce_cmd_list(of_dvc.cmd)]
        return Command(lines, arguments_of_popen(of_dvc, dict(environment)), paths)

    def finish(self, stage: str, command: Command) -> None:
        """Writes the outputs of `stage`, whose command has ended, to the cache and dvc.lock. RunError."""
        with self._locked(stage):
            command.paths.close()
            with self._paths(self._by_name[stage]):
                self._save(self._by_name[stage])

    def _paths(self, of_dvc: Any, prefix: str = "") -> AbstractContextManager[None]:
        """DVC's lock of the paths of a stage. A kill leaves it to `repair_lock_file`. Stages that run at the
        same time differ by `prefix`; without one, functions of DVC hold it, too."""
        from dvc.dependency.db import AbstractDependency
        from dvc.rwlock import rwlock

        reads = [dep.fs_path for dep in of_dvc.deps if not isinstance(dep, AbstractDependency)]
        writes = [out.fs_path for out in of_dvc.outs]
        hardlink = self._repo.config["core"].get("hardlink_lock", False)
        held: AbstractContextManager[None] = rwlock(
            self._repo.tmp_dir, self._repo.fs, prefix + " ".join(sys.argv), reads, writes, hardlink
        )
        return held

    def _save(self, of_dvc: Any) -> None:
        uncached = any(not out.use_cache for out in of_dvc.outs if not (out.is_metric or out.is_plot))
        of_dvc.save(
            allow_missing=self._options.allow_missing, run_cache=self._options.commit and not uncached
        )
        if self._options.commit:
            of_dvc.commit(allow_missing=self._options.allow_missing)
        self._write(of_dvc)

    def _write(self, of_dvc: Any) -> None:
        from dvc.repo.reproduce import plan_repro
        from dvc.stage.serialize import to_lockfile

        if not hasattr(of_dvc.dvcfile, "_lockfile"):  # a file of `dvc add`
            of_dvc.dump(update_pipeline=False)
            return
        path = of_dvc.dvcfile._lockfile.path
        if path not in self._locks:
            order = plan_repro(self._graph)
            names = [stage.name for stage in order if stage.path_in_repo == of_dvc.path_in_repo]
            count = Path(self._repo.tmp_dir, _COUNTS + of_dvc.path_in_repo.replace(os.sep, "-"))
            self._locks[path] = GraphLock(path, names, count)
        self._locks[path].write(of_dvc.name, to_lockfile(of_dvc)[of_dvc.name])
        self._repo.scm_context.track_file(os.path.relpath(path))

    @contextmanager
    def _locked(self, stage: str = "") -> Iterator[None]:
        """Holds DVC's lock of the repository, as `dvc repro` does except during a command."""
        from dvc.exceptions import DvcException
        from dvc.repo import lock_repo

        try:
            with lock_repo(self._repo), self._repo.scm_context(quiet=True):
                yield
        except DvcException as error:
            continued = f"unseen run {stage}".strip()
            raise RunError(f"DVC: {error}", f"Then continue: `{continued}`.") from error

    def close(self, complete: bool = False) -> None:
        """To be called at the end of a run. `complete`: no stage failed."""
        if complete:
            for file in (*self._unfinished.parent.glob(f"{_COUNTS}*"), self._unfinished):
                file.unlink(missing_ok=True)
        self._repo.close()
