"""The stages of dvc.yaml in DVC's order, and DVC's test whether a stage must run.

DVC has no public function for the graph of stages. This file contains all calls of its internal functions:
those with which `dvc repro` plans a run (dvc/repo/reproduce.py, DVC 3.67).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dvc_parallel.errors import RunError


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
            if self.dependencies[name] & (result | {stage}):
                result.add(name)
        return result


class Stages:
    """The stages of the DVC project in the working directory.

    Raises RunError if DVC cannot read dvc.yaml or params.yaml.
    """

    def __init__(self) -> None:
        from dvc.exceptions import DvcException
        from dvc.repo import Repo
        from dvc.repo.reproduce import get_active_graph

        try:
            self._repo = Repo(_wait_for_lock=True)
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
        its locks, for which the stages that run compete. No stage of this run writes these files now, and a
        process that is started checks again with the locks.
        """
        of_dvc = self._by_name[stage]
        deps_changed = not of_dvc.frozen and (
            of_dvc.is_callback or of_dvc.always_changed or any(dep.status() for dep in of_dvc.deps)
        )
        return bool(of_dvc.changed_stage() or deps_changed or any(out.status() for out in of_dvc.outs))

    def close(self) -> None:
        self._repo.close()
