"""`unseen doctor --verify` names every file that differs from dvc.lock."""

import os
import subprocess
import sys
from hashlib import md5
from pathlib import Path

import pytest

from unseen.cli import doctor
from unseen.cli.verify import outputs
from unseen.runtime.errors import UserError

pytestmark = pytest.mark.graph
DVC_YAML = """
stages:
  train:
    cmd: >-
      mkdir -p data/models && cat source source > data/models/weights && cp source data/models/recipe &&
      cp source log && cp source source.json && mkdir -p plots/of && cp source plots/of/git
    deps: [source]
    outs: [data/models, log, plots: {cache: false}]
    metrics:
    - source.json: {cache: false}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("verified")
    (root / "dvc.yaml").write_text(DVC_YAML)
    (root / "source").write_text("1234")
    dvc = [sys.executable, "-m", "dvc"]
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    for command in (
        ["git", "init", "-q"],
        [*dvc, "init", "-q"],
        [*dvc, "repro", "-q"],
        ["git", "add", "source.json", "dvc.lock", "plots"],
        [*git, "commit", "-qm", "all"],
    ):
        subprocess.run(command, cwd=root, check=True, capture_output=True)
    return root


def test_an_undamaged_project_has_no_problem(project: Path) -> None:
    verified = {output.path: output for output in outputs(project)}
    assert {path: (output.files, output.size) for path, output in verified.items()} == {
        "data/models": (2, 12),
        "log": (1, 4),
        "plots": (1, 4),
        "source.json": (1, 4),
    }
    assert all(output.problems == {} for output in verified.values())


def test_names_a_flipped_bit_that_changes_neither_size_nor_time(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("data/models/recipe", "log", "source.json"):
        path = project / name
        times = path.stat()
        path.write_bytes(bytes([ord("1") ^ 1]) + b"234")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert [output.problems for output in outputs(project) if output.problems] == [{name: "differs"}]
        monkeypatch.chdir(project)
        (finding,) = [finding for finding in doctor._outputs() if not finding.complete]
        assert (finding.problem, f"{name} differs" in finding.state) == ("DIFFERS", True)
        assert "dvc repro -f -s train" in finding.remedy
        path.write_text("1234")


def flip(path: Path) -> None:
    """Flips one bit; size, time and mode stay."""
    content, status = bytearray(path.read_bytes()), path.stat()
    content[0] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    path.chmod(status.st_mode)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def objects(project: Path) -> dict[str, Path]:
    """The objects of the cache by their md5."""
    return {path.parent.name + path.name: path for path in (project / ".dvc/cache/files/md5").glob("*/*")}


def findings(project: Path, monkeypatch: pytest.MonkeyPatch) -> list[doctor.Finding]:
    monkeypatch.chdir(project)
    return [finding for finding in doctor._outputs() if not finding.complete]


@pytest.mark.parametrize("damaged", ["file", "object", "file and object", "list", "file and list", "metrics"])
@pytest.mark.parametrize("chosen", [0, 1])
def test_each_printed_remedy_repairs_what_it_is_printed_for(
    project: Path, damaged: str, chosen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    before = {path: (path.read_bytes(), path.stat().st_mode) for path in objects(project).values()}
    weights, metrics = project / "data/models/weights", project / "source.json"
    (of_file,) = (path for name, path in objects(project).items() if name == md5(b"12341234").hexdigest())
    (listed,) = (path for name, path in objects(project).items() if name.endswith(".dir"))
    for path in {"file": [weights], "object": [of_file], "list": [listed], "metrics": [metrics]}.get(
        damaged, [weights, listed if "list" in damaged else of_file]
    ):
        flip(path)
    incomplete = findings(project, monkeypatch)
    marks = {finding.name: finding.problem for finding in incomplete}
    if damaged == "object":
        assert marks == {"data/models": "REPAIRED"}
        assert [finding.remedy for finding in incomplete] == [""]
    else:
        assert marks == {"source.json" if damaged == "metrics" else "data/models": "DIFFERS"}
        remedies = [line.split(": ", 1)[1] for finding in incomplete for line in finding.remedy.split("\n")]
        restoring = {"file": "dvc checkout", "metrics": "git checkout"}.get(damaged)
        assert [restoring in remedy for remedy in remedies[:-1] if restoring] == [True] * bool(restoring)
        assert len(remedies) == 1 + bool(restoring)
        subprocess.run(remedies[min(chosen, len(remedies) - 1)], shell=True, cwd=project, check=True)
    assert findings(project, monkeypatch) == []
    after = {path: (path.read_bytes(), path.stat().st_mode) for path in objects(project).values()}
    assert after == before, "the objects are read-only again"
    assert (weights.read_text(), metrics.read_text()) == ("12341234", "1234")


def test_compares_a_folder_outside_of_the_cache(project: Path) -> None:
    """DVC keeps no list of its files."""
    (project / "plots/of/git").write_text("1235")
    (output,) = [output for output in outputs(project) if output.problems]
    assert (output.problems, output.source) == ({"plots": "differs"}, "git")
    subprocess.run(["git", "checkout", "--", "plots"], cwd=project, check=True, capture_output=True)
    assert all(output.problems == {} for output in outputs(project))


def test_names_missing_and_additional_files(project: Path) -> None:
    models = project / "data/models"
    (models / "recipe").rename(models / "other")
    problems = [output.problems for output in outputs(project) if output.problems]
    (models / "other").rename(models / "recipe")
    assert problems == [
        {"data/models/other": "is not a file of the output", "data/models/recipe": "is missing"}
    ]


def test_a_missing_list_of_files_is_named(project: Path) -> None:
    (listed,) = (project / ".dvc/cache/files/md5").glob("*/*.dir")
    listed.rename(project / "listed")
    problems = [output.problems for output in outputs(project) if output.problems]
    (project / "listed").rename(listed)
    assert problems == [{"data/models": "its list of files is missing in DVC's cache"}]


def test_a_folder_without_graph_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="DVC cannot list the outputs"):
        outputs(tmp_path)
