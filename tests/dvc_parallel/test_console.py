"""The lines of a parallel run."""

from collections.abc import Mapping
from pathlib import Path

from dvc_parallel.console import Console, summary
from dvc_parallel.processes import StageProcess
from dvc_parallel.scheduler import StageRecord, State


class Unchanged:
    """A graph in which no stage has a command to run."""

    def begin(self, _: str, __: Mapping[str, str]) -> None:
        return None


def test_a_stage_has_a_line_at_its_start_and_its_end_and_a_failed_one_the_end_of_its_log(
    tmp_path: Path,
) -> None:
    lines: list[str] = []
    console = Console(2, lines.append)
    process = StageProcess(Unchanged(), "train@a", tmp_path / "train@a.log", {})
    process.log.write_text("".join(f"step {step}\n" for step in range(30)))
    console.report("train@a", process, None)
    console.report("train@a", process, StageRecord(State.DONE, 12.34))
    console.report("sweep@a", process, StageRecord(State.FAILED, 75.0))
    assert lines[:3] == [
        f"[0/2] train@a: started, log {process.log}\n",
        "[1/2] train@a: done, 12.3 s\n",
        "[2/2] sweep@a: failed, 01:15\n",
    ]
    assert lines[3:] == [f"    step {step}\n" for step in range(10, 30)]


def test_a_stage_that_could_not_start_has_a_reason_and_no_log() -> None:
    lines: list[str] = []
    console = Console(2, lines.append)
    console.report("first", None, StageRecord(State.UNCHANGED))
    console.report("sweep@a", None, StageRecord(State.FAILED, problem="The cluster ended.\n  Run it again."))
    assert lines == ["[2/2] sweep@a: failed, not started: The cluster ended.\n  Run it again.\n"]
    states = {"sweep@a": State.FAILED, "train@a": State.FAILED}
    records = {
        "sweep@a": StageRecord(State.FAILED, problem="The cluster ended."),
        "train@a": StageRecord(State.FAILED),
    }
    assert summary(states, records, Path("logs"))[2:] == [
        "  sweep@a     0.0 s  failed",
        "  train@a     0.0 s  failed  logs/train@a.log",
    ]
