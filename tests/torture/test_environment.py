"""Stages up to a training run for a user without the rights of root and without a home directory, in a path
with a space and a letter outside ASCII."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.environment import environment_of
from tests.torture.operations import ROOT, required, write_project

# Only root may read the modules of a Python below /root: they are imported before the user changes.
PROGRAM = """
import os, sys
from importlib import import_module
from tests.torture.operations import required

operations = required(["train"])
for operation in operations:
    for module in operation.modules:
        import_module(module)
os.chdir(sys.argv[1])
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
assert os.getuid() != 0
for operation in operations:
    operation.run()
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that all users can reach, unlike tmp_path."""
    with TemporaryDirectory(prefix="unseen-environment-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.mark.slow
def test_stages_run_without_root_and_home(open_folder: Path) -> None:
    project = open_folder / "my pröject"
    project.mkdir()
    write_project(project)
    for path in (project, *project.rglob("*")):
        os.chmod(path, 0o777)
    variables = {name: value for name, value in os.environ.items() if name != "HOME"}
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(project)],
        env=variables | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    for operation in required(["train"]):
        for output in operation.outputs:
            assert (project / output).is_file() or any((project / output).rglob("*")), output


def test_a_copy_of_the_project_inherits_no_settings_of_dvc_git_and_make(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("DVC_STUDIO_TOKEN", "GIT_DIR", "MAKEFLAGS", "PYTEST_CURRENT_TEST", "UNRELATED"):
        monkeypatch.setenv(name, "x")
    variables = environment_of(tmp_path / "copy", tmp_path)
    assert [name for name, value in variables.items() if value == "x"] == ["UNRELATED"]
    assert (variables["PYTHONPATH"], variables["HOME"]) == (str(tmp_path / "copy"), str(tmp_path))
    assert variables["PATH"].startswith(f"{Path(sys.executable).parent}{os.pathsep}")
