"""Starts each stage when its dependencies are complete, at most `slots` at a time.

A stage that fails stops only the stages that depend on it. Ready stages start in the order of the number of
their dependents, so that a chain of stages does not wait for stages on which none depends.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar, runtime_checkable

from dvc_parallel.errors import RunError
from dvc_parallel.graph import Graph

_INTERVAL = 0.05  # seconds between two polls of the running processes


class State(Enum):
    """The state of a stage after the run."""

    DONE = "done"
    RESTORED = "restored from the cache"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    NOT_STARTED = "not started"

    @property
    def complete(self) -> bool:
        return self in (State.DONE, State.RESTORED, State.UNCHANGED)


@dataclass(frozen=True)
class StageRecord:
    """The state of a stage after a run, and the seconds that its process took. `problem`: why it has none."""

    state: State
    seconds: float = 0.0
    problem: str = ""


@runtime_checkable
class Process(Protocol):
    """The process of a stage."""

    def returncode(self) -> int | None: ...

    def was_restored(self) -> bool: ...


AnyProcess = TypeVar("AnyProcess", bound=Process)


class Scheduler(Generic[AnyProcess]):
    """One run of `graph`. `records` contains the stages that ended, `running` the others that started.

    changed(stage): whether a stage whose dependencies are complete must run.
    start(stage): starts it. None means that a resource is not ready yet; the stage is asked for again later.
    A RunError means that the stage cannot start: it has failed.
    report(stage, process, record): a stage started (no record) or ended (no process if it did not start).
    """

    def __init__(
        self,
        graph: Graph,
        slots: int,
        changed: Callable[[str], bool],
        start: Callable[[str], AnyProcess | None],
        report: Callable[[str, AnyProcess | None, StageRecord | None], None],
    ) -> None:
        self.graph, self.slots = graph, slots
        self._changed, self._start, self._report = changed, start, report
        self.records: dict[str, StageRecord] = {}
        self.running: dict[str, tuple[AnyProcess, float]] = {}
        self._to_run: set[str] = set()  # stages that are ready and were found changed
        weight = {stage: len(graph.dependents(stage)) for stage in graph.stages}
        self._waiting = sorted(graph.stages, key=lambda stage: -weight[stage])  # stable: DVC's order within

    def run(self) -> None:
        """Returns when no stage runs and none can start. Stages without a record then did not start."""
        while True:
            progress = self._collect() | self._start_ready()
            if not self.running and not progress and not self._to_run:
                return
            if not progress:
                time.sleep(_INTERVAL)

    def state(self, stage: str) -> State:
        """The state of a stage after `run`, also after a run that an exception ended."""
        if stage in self.running:
            return State.INTERRUPTED
        return self.records[stage].state if stage in self.records else State.NOT_STARTED

    def _start_ready(self) -> bool:
        """Starts stages while slots are free. Returns whether a stage started, failed to, or is unchanged."""
        if len(self.running) == self.slots:
            return False
        progress = False
        for stage in [stage for stage in self._waiting if self._is_ready(stage)]:
            if len(self.running) == self.slots:
                break
            if stage not in self._to_run and not self._changed(stage):
                self._waiting.remove(stage)
                self._end(stage, None, StageRecord(State.UNCHANGED))
                progress = True
                continue
            self._to_run.add(stage)
            try:
                process = self._start(stage)
            except RunError as error:
                self._to_run.remove(stage)
                self._waiting.remove(stage)
                self._end(stage, None, StageRecord(State.FAILED, problem=str(error)))
                progress = True
                continue
            if process is not None:
                self._to_run.remove(stage)
                self._waiting.remove(stage)
                self.running[stage] = process, time.monotonic()
                self._report(stage, process, None)
                progress = True
        return progress

    def _is_ready(self, stage: str) -> bool:
        return all(
            other in self.records and self.records[other].state.complete
            for other in self.graph.dependencies[stage]
        )

    def _collect(self) -> bool:
        """Records the processes that ended. Returns whether there was one."""
        ended = [stage for stage, (process, _) in self.running.items() if process.returncode() is not None]
        for stage in ended:
            process, began = self.running.pop(stage)
            state = State.FAILED
            if process.returncode() == 0:
                state = State.RESTORED if process.was_restored() else State.DONE
            self._end(stage, process, StageRecord(state, time.monotonic() - began))
        return bool(ended)

    def _end(self, stage: str, process: AnyProcess | None, record: StageRecord) -> None:
        self.records[stage] = record
        self._report(stage, process, record)
