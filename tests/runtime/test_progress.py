"""Progress: plain lines in a log, with rate, ETA and the caller's note."""

import re
import time
from pathlib import Path

import pytest

from pipeline.runtime.progress import Progress


def test_a_log_gets_plain_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as stream, Progress("train", 100, "images", stream, interval=0.0) as progress:
        progress.resume_at(50)
        progress.advance(25, "loss 1.5")
        progress.advance(25)
    lines = log.read_text().splitlines()
    assert re.fullmatch(r"train: 75/100 images  [\d,]+ images/s  ETA 0:00  loss 1\.5", lines[0])
    assert lines[-1].startswith("train: 100/100 images")
    assert "\x1b" not in log.read_text()
    assert "\r" not in log.read_text()


def test_what_was_said_last_is_not_said_again(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("train", 100, "images", interval=0.0) as progress:
        progress.advance(50)
        progress.advance(50)
    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == ["50/100", "100/100"]


@pytest.mark.parametrize("units", [0, 7])
def test_a_last_line_comes_whatever_the_interval(units: int, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("train", 100, "images", interval=1000.0) as progress:
        progress.advance(units)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"train: {units}/100 images  ")
    assert ("images/s" in line) is (units > 0)


@pytest.mark.parametrize(
    ("seconds", "rate"),
    [(0.0005, "2,000 models/s"), (0.5, "2.0 models/s"), (1, "1.0 models/s"), (2.5, "24 models/min"), (40, "1.5 models/min"), (1200, "3.0 models/h")],
)
def test_a_slow_rate_is_one_per_minute_or_hour(
    seconds: float, rate: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with Progress("analyze", 2, "models", interval=1000.0) as progress:
        now += seconds
        progress.advance()
    assert f"  {rate}  " in capsys.readouterr().err
