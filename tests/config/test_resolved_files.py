"""Reading the resolved settings of a stage."""

import os
from pathlib import Path

import pytest

from unseen.config.inputs import path_of, resolved
from unseen.runtime.settings import Strict


def test_a_named_pipe_in_the_place_of_a_resolved_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = path_of("ingest", "parts")
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(OSError, match="it is a named pipe"):
        resolved(Strict, "ingest", "parts")
