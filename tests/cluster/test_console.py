"""The console of a worker: a terminal of the same width as that of the stage, or a log."""

import re
from pathlib import Path

import pytest

from unseen.cluster.console import Console, copied
from unseen.runtime.progress import Progress

NOTE = "step 12  loss 1.234 (terms 1, 2, 3, 4)  validation R@1 56.7%"


def test_a_worker_cuts_its_line_to_the_terminal_of_the_stage(tmp_path: Path) -> None:
    for columns in (None, 30):
        path = tmp_path / str(columns)
        with Console(path, columns) as console, Progress("train", 9, "images", console) as progress:
            progress.advance(9, NOTE)
        content = path.read_bytes().decode()
        assert (NOTE in content) is (columns is None)
        assert ("\r" in content) is (columns is not None)
        assert max(map(len, re.split("[\r\n]+", content))) <= (columns or 200)
        assert content.endswith("\n")
        assert content.count("\n") == 1


def test_workers_that_start_again_repeat_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "console"
    for line in ("Zürich 1\n", "Zürich 2\n"):
        with copied(path, 0.01), Console(path, None) as console:
            console.write(line)
    assert capsys.readouterr().err == "Zürich 1\nZürich 2\n"
