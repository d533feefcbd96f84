"""What a parallel run prints: one line per event of a stage, the last lines of a failed stage, a summary."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tqdm import tqdm

from dvc_parallel.processes import StageProcess
from dvc_parallel.scheduler import StageRecord, State

_LAST_LINES = 20  # of the log of a failed stage
_LISTED = 6  # stages without a process that one line of the summary names


class Console:
    """Prints to `write`, default standard output. `total` is the number of stages."""

    def __init__(self, total: int, write: Callable[[str], object] | None = None) -> None:
        self.total, self.ended, self._write = total, 0, write or sys.stdout.write

    def line(self, text: str) -> None:
        self._write(f"{text}\n")
        sys.stdout.flush()

    def report(self, stage: str, process: StageProcess | None, record: StageRecord | None) -> None:
        """An event of the scheduler. Unchanged stages have no line; the summary lists them."""
        if record is not None:
            self.ended += 1
        place = f"[{self.ended:>{len(str(self.total))}}/{self.total}] {stage}"
        if process is None:
            if record is not None and record.problem:
                self.line(f"{place}: {record.state.value}, not started: {record.problem}")
            return
        if record is None:
            self.line(f"{place}: started, log {process.log}")
            return
        self.line(f"{place}: {record.state.value}, {duration(record.seconds)}")
        if record.state is State.FAILED:
            for text in process.last_lines(_LAST_LINES):
                self.line(f"    {text}")


def duration(seconds: float) -> str:
    """Seconds with one digit below a minute, otherwise minutes or hours."""
    return f"{seconds:.1f} s" if seconds < 59.95 else str(tqdm.format_interval(seconds))


def summary(states: dict[str, State], records: dict[str, StageRecord], logs: Path) -> list[str]:
    """One line per stage that had a process, and one line for each other state."""
    width = max(map(len, states), default=0)
    lines = ["", "summary:"]
    for state in (State.DONE, State.RESTORED, State.FAILED, State.INTERRUPTED):
        for stage in (stage for stage, value in states.items() if value is state):
            seconds = f"{duration(records[stage].seconds):>8}" if stage in records else " " * 8
            failed = state is State.FAILED and not records[stage].problem  # otherwise it has no log
            log = f"  {logs}/{log_name(stage)}" if failed else ""
            lines.append(f"  {stage:<{width}}  {seconds}  {state.value}{log}")
    for state in (State.UNCHANGED, State.NOT_STARTED):
        stages = [stage for stage, value in states.items() if value is state]
        if stages:
            lines.append(f"  {state.value}: {_listed(stages)}")
    return lines


def _listed(stages: Sequence[str]) -> str:
    more = f" and {len(stages) - _LISTED} more" if len(stages) > _LISTED else ""
    return f"{len(stages)} ({', '.join(stages[:_LISTED])}{more})"


def log_name(stage: str) -> str:
    """The file name of the log of a stage; a stage of another dvc.yaml has a path in its name."""
    return f"{stage.replace('/', '-').replace(':', '-')}.log"
