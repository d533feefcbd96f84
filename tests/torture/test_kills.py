"""The campaign of kills continues where it was stopped, and each command has its own record."""

import json
import mmap
import random
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.torture import kills, numbered, results, shim
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
@pytest.mark.parametrize(("stage", "count"), [("resolve", 1), (kills.TRIVIAL, 8)])
def test_a_sample_of_kills_loses_and_leaves_nothing(stage: str, count: int, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    command = [sys.executable, "-m", "tests.torture.kills", "--stage", stage, "--kills", str(count)]
    subprocess.run([*command, "--state", str(state)], cwd=results.ROOT, check=True)
    recorded = json.loads(state.read_text())[stage]["kills"]
    assert [kill["violations"] for kill in recorded.values()] == [[]] * count, recorded
