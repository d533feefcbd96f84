"""The pool that reads pictures: order of results, bounded number of pictures in advance, and no processes
after the stage was killed."""

import functools
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.data.ingest.pictures import encode, pixels
from unseen.data.ingest import workers
from unseen.data.ingest.prepare import Prepared, prepare
from unseen.data.ingest.workers import Damaged, Job, outcomes
from unseen.runtime.errors import UserError


def read(source: str) -> bytes:
    if source == "missing":
        raise FileNotFoundError(2, "No such file or directory", "missing")
    return encode(pixels(int(source)), "PNG")


def read_and_touch(source: str) -> bytes:
    Path(source).touch()
    return encode(pixels(0), "PNG")


PREPARE = functools.partial(prepare, resize=None, quality=95)


def die(source: str) -> bytes:
    import os

    os._exit(9)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_results_are_in_order(processes: int) -> None:
    sources = [str(number) for number in range(40)] + ["missing"]
    results = list(outcomes(sources, Job(read, PREPARE), processes))
    for source, result in zip(sources[:-1], results, strict=False):
        assert isinstance(result, Prepared)
        assert result.image == read(source)
    assert results[-1] == Damaged("No such file or directory"), "without the path"


@pytest.mark.slow
def test_reads_a_bounded_number_of_pictures_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "CHUNK", 2)
    sources = [str(tmp_path / f"{number:03d}") for number in range(100)]
    results = outcomes(sources, Job(read_and_touch, PREPARE), 2)
    next(results)
    time.sleep(0.5)
    assert 2 <= len(list(tmp_path.iterdir())) <= 2 * (workers.CHUNKS_AHEAD * 2 + 1)
    results.close()
    assert len(list(tmp_path.iterdir())) < 100


@pytest.mark.slow
def test_reports_a_killed_process() -> None:
    with pytest.raises(UserError, match=r"(?s)was killed.*memory"):
        list(outcomes(["1", "2"], Job(die, PREPARE), 2))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killing_the_stage_ends_all_processes(tmp_path: Path, number: int) -> None:
    code = (
        "from pathlib import Path\n"
        "from unseen.data.ingest.settings import IngestSettings, PartsSource\n"
        "from unseen.data.ingest.ingest import ingest\n"
        "from unseen.runtime.stage import end_with_parent\n"
        "if __name__ == '__main__':\n"
        "    end_with_parent()\n"
        f"    ingest(PartsSource(images_per_class=500), IngestSettings(), Path({str(tmp_path / 'out')!r}), "
        "'parts', processes=2)\n"
    )
    script = tmp_path / "run.py"
    script.write_text(code)
    root = Path(__file__).resolve().parents[3]
    stage = subprocess.Popen(
        [sys.executable, str(script)],
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
        stderr=subprocess.DEVNULL,
    )
    children: list[psutil.Process] = []
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".out.*.partial/*.arrow")):
        assert time.monotonic() < deadline
        assert stage.poll() is None
        time.sleep(0.05)
    children = psutil.Process(stage.pid).children(recursive=True)
    assert len(children) >= 2
    stage.send_signal(number)
    stage.wait(30)
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    assert not (tmp_path / "out").exists()
