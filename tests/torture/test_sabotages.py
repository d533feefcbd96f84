"""A sample of the sabotages, and the changes themselves."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torture import shim
from tests.torture.results import ROOT, load
from tests.torture.sabotage_table import SABOTAGES, Sabotage
from tests.torture.sabotages import DAMAGED, NONE, OPERATION, STATE, Recorded, in_fork, sample_in_clone
from tools.docs.reliability import page

SAMPLE = ("file not synced", "partial files of killed writers kept", "digest of embeddings not compared")


def test_every_sabotage_changes_code_that_exists() -> None:
    assert len({sabotage.name for sabotage in SABOTAGES}) == len(SABOTAGES) >= 30
    for sabotage in SABOTAGES:
        assert sabotage.code().co_name == sabotage.function.rpartition(".")[2]


def _answer() -> int:
    return 42


_imported_elsewhere = _answer


def test_a_sabotage_changes_a_function_within_its_block() -> None:
    sabotage = Sabotage("", __name__, "_answer", "42", "0")
    with sabotage.applied():
        assert in_fork(lambda: (_imported_elsewhere(), None)) == (0, None)
    assert _imported_elsewhere() == 42
    with pytest.raises(ValueError, match="0 times"):
        Sabotage("", __name__, "_answer", "43", "0").code()


def test_a_sabotage_changes_the_file_of_a_copy(tmp_path: Path) -> None:
    sabotage = next(each for each in SABOTAGES if each.name == "file renamed before its fsync")
    path = tmp_path / "pipeline/runtime/files.py"
    path.parent.mkdir(parents=True)
    text = (ROOT / "pipeline/runtime/files.py").read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    sabotage.edit(tmp_path)
    line = " " * 16
    first, second = f"{line}_sync(partial)\n", f"{line}partial.replace(path)\n"
    assert path.read_text(encoding="utf-8") == text.replace(first + second, f"{second}{line}_sync(path)\n", 1)


def test_a_result_of_another_text_is_discarded(tmp_path: Path) -> None:
    runs: list[str] = []

    def sample(new: str) -> None:
        sabotage = Sabotage("x", "unseen.runtime.digest", "sha256_of", "hexdigest", new)
        before = os.stat(tmp_path).st_mtime_ns
        Recorded(tmp_path / "x.json").run(sabotage, DAMAGED, ["unseen.runtime.digest"], lambda: (1, None))
        if os.stat(tmp_path).st_mtime_ns != before:
            runs.append(new)

    for new in ("digest", "digest", "name"):
        sample(new)
    assert runs == ["digest", "name"]


def test_a_violation_without_a_sabotage_ends_the_campaign(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="without a sabotage: broken"):
        Recorded(tmp_path / "x.json").run(None, DAMAGED, ["unseen.runtime.digest"], lambda: (1, "broken"))


def test_a_campaign_in_a_clone_needs_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.torture.results.commit", lambda: "0123456789-dirty")
    with pytest.raises(RuntimeError, match="commit the changes first"):
        sample_in_clone("tests.torture.kills", [], None)


def test_a_sabotage_that_no_campaign_finds_has_a_reason() -> None:
    recorded = load(STATE)
    for sabotage in SABOTAGES:
        is_found = any(row["violation"] for row in recorded.get(sabotage.name, {}).values())
        assert is_found or sabotage.unfound, sabotage.name
        for test in re.findall(r"`(test_\w+\.py)`", sabotage.unfound):
            assert list((ROOT / "tests").rglob(test)), test


@pytest.mark.slow
@pytest.mark.skipif(shim.compiler() is None, reason="needs Linux and a C compiler")
def test_the_campaigns_find_a_sample_of_the_sabotages(tmp_path: Path) -> None:
    state = tmp_path / "sabotages.json"
    command = [sys.executable, "-m", "tests.torture.sabotages", *SAMPLE, "--points", "5"]
    process = subprocess.run(
        [*command, "--state", str(state)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
    found = json.loads(state.read_text())
    assert found.keys() == {NONE, *SAMPLE}
    operation = f"{OPERATION}sweep records"
    assert "power loss" in found[SAMPLE[0]][operation]["violation"]
    assert "is left" in found[SAMPLE[1]][operation]["violation"]
    assert found[SAMPLE[2]][DAMAGED]["violation"].endswith("values changed without notice")
    text = page(tmp_path)
    assert "| file not synced | `atomic_file` | found (sweep records, " in text
    assert f"3 of {len(SABOTAGES)} are found" in text
