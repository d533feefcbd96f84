"""A killed `dvc repro` leaves no process and resumes to the same bytes."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.graph.conftest import Project

pytestmark = [pytest.mark.graph, pytest.mark.timeout(400)]
REPRO = "dvc repro --force --single-item train@parts-gsp-0"


def test_a_killed_run_leaves_no_process_and_resumes_to_the_same_bytes(built: Project) -> None:
    built.run("dvc repro --single-item train@parts-gsp-0")
    outs = [
        built.path / "data/models/parts/gsp/0/weights.safetensors",
        built.path / "data/history/parts/gsp/0.csv",
    ]
    expected = [path.read_bytes() for path in outs]
    for kill in (signal.SIGTERM, signal.SIGKILL):
        with held_at_its_first_checkpoint(built):
            killed_in_the_middle(built, kill)
        output = built.run(REPRO)
        assert "resuming at step" in output
        assert [path.read_bytes() for path in outs] == expected


@contextlib.contextmanager
def held_at_its_first_checkpoint(built: Project) -> Iterator[None]:
    """The training waits after each checkpoint, so that it cannot end before it is killed."""
    files, marker = built.path / "pipeline/runtime/files.py", built.home / "hold"
    text = files.read_text(encoding="utf-8")
    line = "            partial.replace(path)\n            _sync(path.parent)\n"
    assert line in text
    wait = f"""            import time
            while path.suffix == ".pt" and Path({str(marker)!r}).exists():
                time.sleep(0.02)
"""
    marker.touch()
    files.write_text(text.replace(line, line + wait, 1), encoding="utf-8")
    try:
        yield
    finally:
        files.write_text(text, encoding="utf-8")
        marker.unlink()


def started(built: Project) -> subprocess.Popen[bytes]:
    """`dvc repro` of one training, in the background."""
    command = [sys.executable, "-m", *REPRO.split()]
    return subprocess.Popen(
        command, cwd=built.path, env=built.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def killed_in_the_middle(built: Project, kill: signal.Signals) -> None:
    state = built.path / "data/state"
    process = started(built)
    assert within(120, lambda: any(state.rglob("*.pt")) or process.poll() is not None)
    assert process.poll() is None, "the run ended before its first checkpoint was seen"
    process.send_signal(kill)
    process.wait()
    assert within(40, lambda: built.processes() == []), built.processes()
    assert any(state.rglob("*.pt")), "the checkpoint is missing"


def test_a_run_killed_at_the_start_of_a_stage_leaves_no_process(built: Project) -> None:
    process = started(built)
    assert within(60, lambda: any("unseen.stages.train" in line for line in built.processes()))
    process.kill()
    process.wait()
    assert within(120, lambda: built.processes() == []), built.processes()
    assert not (built.path / "data/models/parts/gsp/0").exists(), "the stage trained to its end"


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_mistake_in_params_stops_the_run_before_it_starts(built: Project) -> None:
    """tests/experiments/plan/test_checks.py names further mistakes."""
    built.run("sed -i 's/prototypes: 8/prototypess: 8/' params.yaml")
    output = built.refused("dvc repro")
    assert "prototypess is not a setting" in output
    assert "Did you mean prototypes" in output
    assert "Traceback" not in output
    assert "Running stage 'resolve'" in output
    assert output.count("Running stage") == 1
    assert (built.path / "data/models/parts/gsp/0/weights.safetensors").exists(), (
        "the earlier model still exists"
    )
