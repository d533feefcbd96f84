"""Stages up to a training run for a user without the rights of root and without a home directory, in a path
with a space and a letter outside ASCII."""

import os
import sys
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.environment import environment_of
from tests.torture.operations import required, write_project

NOBODY = 65534


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that all users can reach, unlike tmp_path."""
    with TemporaryDirectory(prefix="unseen-environment-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.mark.slow
def test_stages_run_without_root_and_home(open_folder: Path, tmp_path: Path) -> None:
    project = open_folder / "my pröject"
    project.mkdir()
    write_project(project)
    for path in (project, *project.rglob("*")):
        os.chmod(path, 0o777)
    operations = required(["train"])
    for module in {name for operation in operations for name in operation.modules}:
        import_module(module)
    log = tmp_path / "log"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with log.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                os.chdir(project)
                if os.getuid() == 0:
                    os.setgroups([])
                    os.setgid(NOBODY)
                    os.setuid(NOBODY)
                os.environ.pop("HOME", None)
                for operation in operations:
                    operation.run()
            status = 0 if os.getuid() != 0 else 2
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, log.read_text()
    for operation in operations:
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
