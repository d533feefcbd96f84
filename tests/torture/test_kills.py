"""The campaign of kills continues where it was stopped, and each command has its own record."""

import json
import mmap
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.torture import kills, miniature, numbered, results, shim
from tests.torture.results import version


class Undisturbed:
    """Counts the kills instead of running them."""

    def __init__(self, copy: object, stages: object) -> None:
        self.numbers: list[int] = []
        RUNS.append(self.numbers)

    def kill(self, number: int) -> tuple[str, list[str]]:
        self.numbers.append(number)
        return f"{kills.drawn(number)[0]}, all, SIGKILL", []


RUNS: list[list[int]] = []


def test_a_kill_is_drawn_by_its_number_only() -> None:
    name, draw = kills.drawn(7)
    again, other = kills.drawn(7)
    assert (name, draw.getstate()) == (again, other.getstate())
    assert draw.getstate() != random.Random(7).getstate(), (
        "the rest of the kill is drawn from the same generator"
    )
    assert {kills.drawn(number)[0] for number in range(300)} == set(kills.MODULES)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs Linux")
def test_shared_memory_that_no_process_maps_is_left() -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="unseen test ") as file:
        file.write(b"x")
        file.flush()
        name = Path(file.name).name
        assert name in numbered.shared_memory()
        with mmap.mmap(file.fileno(), 1):
            assert name not in numbered.shared_memory()


@pytest.mark.slow
def test_shared_memory_of_other_programs_is_not_visible() -> None:
    if subprocess.run(["unshare", "--map-root-user", "--mount", "true"], check=False).returncode:
        pytest.skip("no permission to create a mount namespace")
    code = "from tests.torture import numbered as n; n.own_shared_memory(); print(n.shared_memory())"
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="sem.unseen"):
        process = subprocess.run(
            [sys.executable, "-c", code], cwd=results.ROOT, capture_output=True, text=True, check=False
        )
    assert process.stdout == "set()\n", process.stderr


# Without torch, so that a kill costs little. If a file `hold` exists, the stage deletes it and does not end.
STAGE = """
import time
from pathlib import Path
from unseen.runtime.files import atomic_file
from unseen.runtime.stage import main

def run() -> None:
    with atomic_file(Path("data/metrics/out.json")) as path:
        path.write_text("{")
        if Path({hold!r}).exists():
            Path({hold!r}).unlink()
            time.sleep(600)
        path.write_text("{}")

if __name__ == "__main__":
    main(run)
"""
GRAPH = """
stages:
  resolve:
    cmd: exec env UNSEEN_PARENT=$PPID python -m unseen.stages.resolve
    metrics:
      - data/metrics/out.json:
          cache: false
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_a_kill_ends_a_stage_and_the_next_run_repairs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = tmp_path / "hold"

    def sleep(seconds: float) -> None:
        """The kill comes when the stage has written half of its output."""
        if hold.exists():
            assert numbered.within(120, lambda: not hold.exists())
        else:
            time.sleep(seconds)

    monkeypatch.setattr(kills, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    monkeypatch.setattr(kills, "drawn", lambda number: ("resolve", random.Random(number)))
    monkeypatch.setattr(kills, "shared_memory", set)  # that of other programs comes and goes
    monkeypatch.setattr(kills, "shared_memory_left", lambda before: [])
    number = next(number for number in range(100) if _kills_a_stage(random.Random(number)))
    with miniature.project() as copy:
        stage = STAGE.replace("{hold!r}", repr(str(hold)))
        (copy.path / "stages/resolve.py").write_text(stage, encoding="utf-8")
        (copy.path / "dvc.yaml").write_text(GRAPH, encoding="utf-8")
        campaign = kills.Campaign(copy, ("resolve",))
        hold.touch()
        description, problems = campaign.kill(number)
        assert (copy.path / "data/metrics/out.json").read_text(encoding="utf-8") == "{}"
    assert description == "dvc repro --single-item --force resolve, stage, SIGKILL"
    assert problems == []


def _kills_a_stage(draw: random.Random) -> bool:
    """Whether the kill ends the stage by SIGKILL."""
    return (draw.choice(kills.TARGETS), draw.choice(kills.SIGNALS)) == ("stage", signal.SIGKILL)


def test_the_campaign_runs_only_kills_without_a_record_of_the_present_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kills, "Campaign", Undisturbed)
    monkeypatch.setattr(kills, "project", lambda several: nullcontext())
    RUNS.clear()
    state = tmp_path / "state.json"
    kills.campaign(5, state)
    kills.campaign(8, state)
    assert RUNS == [[0, 1, 2, 3, 4], [5, 6, 7]]
    records = json.loads(state.read_text())
    for name, record in records.items():
        assert record["digest"] == version(kills.MODULES[name])
        assert all(kills.drawn(int(number))[0] == name for number in record["kills"])
    changed = kills.drawn(0)[0]
    state.write_text(json.dumps(records | {changed: records[changed] | {"digest": "of other code"}}))
    kills.campaign(8, state)
    assert RUNS[2] == [number for number in range(8) if kills.drawn(number)[0] == changed]


@pytest.mark.slow
@pytest.mark.skipif(shim.compiler() is None, reason="needs Linux and a C compiler")
def test_a_sample_of_kills_of_trivial_stages(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    command = [sys.executable, "-m", "tests.torture.kills", "--stage", kills.TRIVIAL, "--kills", "4"]
    subprocess.run([*command, "--state", str(state)], cwd=results.ROOT, check=True)
    recorded = json.loads(state.read_text())[kills.TRIVIAL]["kills"]
    assert [kill["violations"] for kill in recorded.values()] == [[]] * 4, recorded
