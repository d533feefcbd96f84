"""The console of a worker: a terminal of the same width as that of the stage, or a log."""

import re
from pathlib import Path

from unseen.cluster.console import Console
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
