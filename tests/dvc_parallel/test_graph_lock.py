"""A dvc.lock that a killed DVC left damaged is replaced by that of the last commit; any other remains."""

import subprocess
from pathlib import Path

import pytest

from dvc_parallel.graph_lock import repair_graph_lock

LOCK = "schema: '2.0'\nstages:\n  copy:\n    cmd: cp in out\n    outs:\n    - path: out\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "in").touch()
    (tmp_path / "dvc.yaml").write_text("stages: {copy: {cmd: cp in out, deps: [in], outs: [out]}}")
    monkeypatch.chdir(tmp_path)
    for command in (["git", "init", "-q"], ["dvc", "init", "-q"]):
        subprocess.run(command, check=True)
    return tmp_path


def commit() -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "add", "-A"], check=True)
    subprocess.run(["git", *identity, "commit", "-qm", "graph"], check=True)


def test_a_damaged_file_is_replaced_and_any_other_remains(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project / "dvc.lock"
    repair_graph_lock()
    assert not path.exists()
    for committed in (False, True):
        conflict = f"<<<<<<< HEAD\n{LOCK}=======\n{LOCK}>>>>>>> branch\n"
        for valid in (conflict, LOCK):
            path.write_text(valid)
            repair_graph_lock()
            assert path.read_text() == valid
        assert capsys.readouterr().err == ""
        if committed:
            commit()
        for damaged in ("", LOCK[:10], LOCK[:26], "\0", "- a\n"):
            path.write_text(damaged)
            repair_graph_lock()
            assert (path.read_text() if path.exists() else None) == (LOCK if committed else None), damaged
            assert "dvc.lock, which a killed DVC left damaged" in capsys.readouterr().err


@pytest.mark.graph
def test_dvc_restores_the_outputs_of_a_damaged_file_from_its_run_cache(project: Path) -> None:
    dvc = ["dvc", "repro"]
    subprocess.run(dvc, check=True)
    expected = (project / "dvc.lock").read_text()
    (project / "dvc.lock").write_text("")
    refused = subprocess.run(dvc, capture_output=True, text=True, check=False)
    assert "'./dvc.lock' validation failed" in refused.stderr
    repair_graph_lock()
    restored = subprocess.run(dvc, capture_output=True, text=True, check=True)
    assert "Stage 'copy' is cached - skipping run, checking out outputs" in restored.stdout
    assert (project / "dvc.lock").read_text() == expected
