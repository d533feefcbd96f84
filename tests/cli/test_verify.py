"""`unseen doctor --verify` names every file that differs from dvc.lock."""

import os
import subprocess
import sys
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
      mkdir -p data/models && cp source data/models/weights && cp source data/models/recipe &&
      cp source log && cp source source.json
    deps: [source]
    outs: [data/models, log]
    metrics:
    - source.json: {cache: false}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("verified")
    (root / "dvc.yaml").write_text(DVC_YAML)
    (root / "source").write_text("1234")
    for command in (["init", "-q", "--no-scm"], ["repro", "-q"]):
        subprocess.run([sys.executable, "-m", "dvc", *command], cwd=root, check=True, capture_output=True)
    return root


def test_an_undamaged_project_has_no_problem(project: Path) -> None:
    verified = {output.path: output for output in outputs(project)}
    assert {path: (output.files, output.size) for path, output in verified.items()} == {
        "data/models": (2, 8),
        "log": (1, 4),
        "source.json": (1, 4),
    }
    assert all(output.problems == {} for output in verified.values())


def test_names_a_flipped_bit_that_changes_neither_size_nor_time(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("data/models/weights", "log", "source.json"):
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
