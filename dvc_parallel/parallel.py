"""A parallel run: DVC's graph, at most `slots` stages at a time."""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from dvc_parallel.console import Console, duration, log_name, summary
from dvc_parallel.errors import RunError
from dvc_parallel.graph import Options, Stages
from dvc_parallel.processes import StageProcess, end
from dvc_parallel.scheduler import Scheduler

_OPTIONS = ("-f", "--force", "--no-run-cache", "--no-commit", "--pull", "--allow-missing")
_DEFAULT = ("-k", "--keep-going")  # what a parallel run does anyway


class Terminated(SystemExit):
    """Raised in a run that received SIGTERM or SIGHUP."""


def read_options(options: Sequence[str]) -> Options:
    """The options of `dvc repro` that apply to each single stage. Raises RunError for another one."""
    for option in options:
        if option not in (*_OPTIONS, *_DEFAULT):
            raise RunError(
                f"{option} is not an option of a parallel run.",
                f"Omit -j for all options of `dvc repro`. A parallel run accepts {', '.join(_OPTIONS)}.",
            )
    return Options(
        force=bool({"-f", "--force"} & set(options)),
        run_cache="--no-run-cache" not in options,
        commit="--no-commit" not in options,
        pull="--pull" in options,
        allow_missing="--allow-missing" in options,
    )


def run(
    targets: Sequence[str],
    options: Sequence[str],
    slots: int,
    prepare: Callable[[str], Mapping[str, str] | None],
    release: Callable[[], None],
    logs: Path,
) -> int:
    """Runs in the working directory what `dvc repro TARGETS` would run; returns 0 if all stages are complete,
    else 1. Each stage has a log in the directory `logs`.

    prepare(stage): the environment variables by which `stage` finds its resources. None means that a resource
    is not ready yet. A RunError means that the stage cannot start: it has failed.
    release(): ends the resources, after the last stage.

    Prints the events and a summary. When an exception ends the run (Ctrl-C, SIGTERM), all processes of the
    stages and the resources end first. Raises RunError for a graph that DVC cannot read and for unknown
    targets.
    """
    began = time.monotonic()
    stages = Stages(read_options(options))
    graph = stages.graph(targets)
    console = Console(len(graph.stages))
    console.line(f"{len(graph.stages)} stages, at most {slots} at a time")

    def start(stage: str) -> StageProcess | None:
        environment = prepare(stage)
        if environment is None:
            return None
        return StageProcess(stages, stage, logs / log_name(stage), environment)

    scheduler: Scheduler[StageProcess] = Scheduler(graph, slots, stages.changed, start, console.report)
    signals = (signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in signals}
    try:
        for number in signals:
            if handlers[number] is not signal.SIG_IGN:  # nohup
                signal.signal(number, _terminate)
        scheduler.run()
    finally:
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would leave processes
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        states = {stage: scheduler.state(stage) for stage in graph.stages}
        end(process for process, _ in scheduler.running.values())
        release()
        complete = all(state.complete for state in states.values())
        stages.close(complete)
        for text in summary(states, scheduler.records, logs):
            console.line(text)
        console.line(f"total: {duration(time.monotonic() - began)}")
        signal.signal(signal.SIGINT, interrupt)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return 0 if complete else 1


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated(128 + number)
