"""Progress: lines in a log with rate, ETA and the note of the caller; one line on a terminal."""

import fcntl
import os
import re
import struct
import termios
from pathlib import Path

import pytest
import tqdm

from unseen.runtime.progress import Progress, terminal_columns


def test_a_log_has_plain_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as stream, Progress("train", 100, "images", stream, interval=0.0) as progress:
        progress.resume_at(50)
        progress.advance(25, "loss 1.5")
        progress.advance(25)
    lines = log.read_text().splitlines()
    assert re.fullmatch(r"train: 75/100 images  [\d,]+ images/s  ETA 00:00  loss 1\.5", lines[0])
    assert lines[-1].startswith("train: 100/100 images")
    assert "\x1b" not in log.read_text()
    assert "\r" not in log.read_text()


def test_skipped_work_has_no_effect_on_the_rate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds_now = 100.0
    monkeypatch.setattr(tqdm.std, "time", lambda: seconds_now)
    with Progress("claims", 10, "trainings", interval=0.0) as progress:
        for work in (progress.advance, progress.skip, progress.skip, progress.advance):
            seconds_now += 60 if work == progress.advance else 0
            work()
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "claims: 4/10 trainings  1.0 trainings/min  ETA 06:00"


def test_the_last_line_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("train", 100, "images", interval=0.0) as progress:
        progress.advance(50)
        progress.advance(50)
    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == ["50/100", "100/100"]


@pytest.mark.parametrize("units", [0, 7])
def test_a_last_line_is_written_for_any_interval(units: int, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("train", 100, "images", interval=1000.0) as progress:
        progress.advance(units)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"train: {units}/100 images  ")
    assert ("images/s" in line) is (units > 0)


@pytest.mark.parametrize(
    ("seconds", "rate"),
    [
        (0.0005, "2,000 models/s"),
        (0.5, "2.0 models/s"),
        (1, "1.0 models/s"),
        (2.5, "24 models/min"),
        (40, "1.5 models/min"),
        (1200, "3.0 models/h"),
    ],
)
def test_a_slow_rate_is_one_per_minute_or_hour(
    seconds: float, rate: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds_now = 100.0
    monkeypatch.setattr(tqdm.std, "time", lambda: seconds_now)
    with Progress("analyze", 2, "models", interval=1000.0) as progress:
        seconds_now += seconds
        progress.advance()
    assert f"  {rate}  " in capsys.readouterr().err


NOTE = "step 12  loss 1.234 (terms 1, 2, 3, 4)  validation R@1 56.7%"


def run_on_a_terminal(columns: int) -> tuple[int | None, str]:
    """The width that the code reads, and the output of ten steps with a long or a short note on a
    terminal."""
    terminal, device = os.openpty()
    fcntl.ioctl(device, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(device, "w") as stream:
        width = terminal_columns(stream)
        with Progress("train", 100, "images", stream) as progress:
            progress.mininterval = 0
            for step in range(10):
                progress.advance(10, NOTE if step < 5 else "short")
        output = b""
        while not output.endswith(b"\n"):  # of the last line
            output += os.read(terminal, 2**16)
    os.close(terminal)
    return width, output.decode()


@pytest.mark.parametrize("columns", [30, 200])
def test_a_terminal_has_one_line_cut_to_its_width(columns: int) -> None:
    width, output = run_on_a_terminal(columns)
    assert width == columns
    lines = [line for line in output.replace("\r\n", "\n").split("\r") if line]
    assert len(lines) == 11
    assert max(len(line.rstrip("\n")) for line in lines) <= columns
    assert lines[4].startswith("train: 50/100 images  ")
    assert (NOTE in lines[4]) is (columns == 200)
    assert lines[-1].endswith("\n")
    assert "\n" not in "".join(lines)[:-1], "one line"
    assert lines[-1].startswith("train: 100/100 images ")
    assert len(lines[5]) >= len(lines[4].rstrip()), "spaces overwrite the end of a longer line"


def test_a_terminal_of_unknown_width() -> None:
    assert run_on_a_terminal(0)[0] == 80
