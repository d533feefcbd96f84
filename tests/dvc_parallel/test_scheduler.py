"""The scheduler, with processes that a test ends."""

import pytest

from dvc_parallel.errors import RunError
from dvc_parallel.graph import Graph
from dvc_parallel.scheduler import Scheduler, StageRecord, State

DIAMOND = Graph(
    ("a", "b", "c", "d", "alone"),
    {
        "a": frozenset(),
        "b": frozenset("a"),
        "c": frozenset("a"),
        "d": frozenset({"b", "c"}),
        "alone": frozenset(),
    },
)


class Process:
    """Ends after `looks` calls of `returncode`, with `status`."""

    def __init__(self, status: int = 0, looks: int = 1, was_restored: bool = False) -> None:
        self.status, self.looks, self.restored = status, looks, was_restored

    def was_restored(self) -> bool:
        return self.restored

    def returncode(self) -> int | None:
        self.looks -= 1
        return None if self.looks >= 0 else self.status


class Run:
    """A run of DIAMOND: `started` and `most` stages at a time are recorded."""

    def __init__(self, slots: int, unchanged: str = "", **processes: Process) -> None:
        self.started: list[str] = []
        self.most = 0
        self.processes = processes
        self.scheduler = Scheduler(
            DIAMOND, slots, lambda stage: stage not in unchanged.split(), self.start, self.report
        )
        self.scheduler.run()
        self.states = {stage: self.scheduler.state(stage) for stage in DIAMOND.stages}

    def start(self, stage: str) -> Process | None:
        incomplete = DIAMOND.dependencies[stage] - self.scheduler.records.keys()
        assert not incomplete, f"{stage} started before {incomplete}"
        self.started.append(stage)
        return self.processes.get(stage, Process())

    def report(self, stage: str, process: Process | None, record: StageRecord | None) -> None:
        self.most = max(self.most, len(self.scheduler.running))


def test_dependents_are_direct_or_through_other_stages() -> None:
    dependents = {stage: DIAMOND.dependents(stage) for stage in DIAMOND.stages}
    assert dependents == {"a": {"b", "c", "d"}, "b": {"d"}, "c": {"d"}, "d": set(), "alone": set()}
    chain = Graph(("a", "b", "c"), {"a": frozenset(), "b": frozenset("a"), "c": frozenset("b")})
    assert chain.dependents("a") == {"b", "c"}


@pytest.mark.parametrize(("slots", "most"), [(1, 1), (2, 2), (8, 2)])
def test_runs_every_stage_once_after_its_dependencies(slots: int, most: int) -> None:
    run = Run(slots, alone=Process(looks=0))
    assert sorted(run.started) == sorted(DIAMOND.stages)
    assert set(run.states.values()) == {State.DONE}
    assert run.most == most


def test_starts_the_stages_with_most_dependents_first() -> None:
    assert Run(1).started == ["a", "b", "c", "d", "alone"]


def test_a_failed_stage_stops_only_its_dependents() -> None:
    run = Run(1, b=Process(status=1))
    assert run.started == ["a", "b", "c", "alone"]
    assert [run.states[stage] for stage in "abcd"] == [
        State.DONE,
        State.FAILED,
        State.DONE,
        State.NOT_STARTED,
    ]
    assert run.states["alone"] is State.DONE


def test_an_unchanged_stage_does_not_start_and_its_dependents_do() -> None:
    run = Run(2, unchanged="a b", c=Process(was_restored=True))
    assert sorted(run.started) == ["alone", "c", "d"]
    assert run.states["a"] is run.states["b"] is State.UNCHANGED
    assert run.states["c"] is State.RESTORED


def test_a_stage_waits_for_a_resource_while_others_run() -> None:
    asked: list[str] = []

    def start(stage: str) -> Process | None:
        asked.append(stage)
        return None if stage == "a" and asked.count("a") < 3 else Process()

    scheduler = Scheduler(DIAMOND, 2, lambda stage: True, start, lambda *_: None)
    scheduler.run()
    assert asked[:3] == ["a", "alone", "a"]
    assert all(record.state is State.DONE for record in scheduler.records.values())
    assert len(scheduler.records) == len(DIAMOND.stages)


def test_a_stage_that_cannot_start_fails_and_the_others_run() -> None:
    def start(stage: str) -> Process:
        if stage == "b":
            raise RunError("The cluster ended.", "Run it again.")
        return Process()

    scheduler = Scheduler(DIAMOND, 2, lambda stage: True, start, lambda *_: None)
    scheduler.run()
    assert scheduler.records["b"] == StageRecord(State.FAILED, problem="The cluster ended.\n  Run it again.")
    assert [scheduler.state(stage) for stage in ("a", "c", "alone")] == [State.DONE] * 3
    assert scheduler.state("d") is State.NOT_STARTED


def test_a_run_that_an_exception_ends_has_interrupted_stages() -> None:
    def report(stage: str, process: Process | None, record: StageRecord | None) -> None:
        if stage == "alone":
            raise KeyboardInterrupt

    scheduler = Scheduler(DIAMOND, 2, lambda stage: True, lambda stage: Process(looks=9), report)
    with pytest.raises(KeyboardInterrupt):
        scheduler.run()
    assert scheduler.state("a") is scheduler.state("alone") is State.INTERRUPTED
    assert scheduler.state("b") is State.NOT_STARTED
