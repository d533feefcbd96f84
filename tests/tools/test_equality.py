"""The comparison of two dumps of tools/equality.py."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools/equality.py"


def test_names_what_differs_and_leaves_out_times(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("equality", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    first = dict(tool.leaves({"map": [0.5, None], "rungs": [{"seconds": 3.0, "size": 64}]}, "ladder"))
    assert first == {"ladder/map/0": 0.5, "ladder/map/1": None, "ladder/rungs/0/size": 64}
    second = {**first, "ladder/map/0": 0.25, "ladder/more": 1}
    for name, values in (("a", first), ("b", second)):
        (tmp_path / name).write_text(json.dumps({"ladder": values}))
    for name, status, row in (
        ("a", 0, "| ladder | 3 | 3 | 0 |  |"),
        ("b", 1, "| ladder | 4 | 2 | 2 | `ladder/map/0`, `ladder/more` |"),
    ):
        command = [sys.executable, str(TOOL), "compare", str(tmp_path / "a"), str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.splitlines()[-1]) == (status, row)
