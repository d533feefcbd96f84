"""The lines of a parallel run."""

from pathlib import Path

from dvc_parallel.console import Console, summary
from dvc_parallel.scheduler import Record, State


def test_a_stage_that_could_not_start_has_a_reason_and_no_log() -> None:
    lines: list[str] = []
    console = Console(2, lines.append)
    console.report("first", None, Record(State.UNCHANGED))
    console.report("sweep@a", None, Record(State.FAILED, problem="The cluster ended.\n  Run it again."))
    assert lines == ["[2/2] sweep@a: failed, not started: The cluster ended.\n  Run it again.\n"]
    states = {"sweep@a": State.FAILED, "train@a": State.FAILED}
    records = {"sweep@a": Record(State.FAILED, problem="The cluster ended."), "train@a": Record(State.FAILED)}
    assert summary(states, records, Path("logs"))[2:] == [
        "  sweep@a     0.0 s  failed",
        "  train@a     0.0 s  failed  logs/train@a.log",
    ]
