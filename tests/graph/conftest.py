"""A copy of the project, small enough to run its whole graph in a test."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from ruamel.yaml import YAML

from tests.environment import environment_of
from tests.forks import forks
from unseen.runtime.digest import sha256_of

ROOT = Path(__file__).resolve().parents[2]
NETWORK = {
    "backbone": {
        "name": "test_resnet",
        "pretrained": False,
        "batch_norm": "batch",
        "arguments": {"output_stride": 8},
    },
    "input": {"size": 32, "resize": 36, "crop_scale": [0.5, 1.0], "fit": "shorter"},
    "batch": {"classes": 4, "images_per_class": 3},
    "optimizer": {"name": "adamw", "learning_rate": 1.0e-3, "new_layers_only": 0},
    "schedule": {"name": "constant"},
    "training": {"iterations": 8, "validate_every": 4, "patience": None},
}


# Folders of data/ whose files every run reproduces to the byte; so it does the report of one commit.
EQUAL = (
    *("shards", "models", "embeddings", "positions", "evaluation", "analysis"),
    *("metrics", "history", "sweep"),
)


@dataclass(frozen=True)
class Project:
    """A git clone of the project under `path`; `home` replaces the user's home directory. `installed`: the
    folder from which another project imports the packages.

    The commands `python`, `dvc` and `unseen` that `run` and `refused` execute are those of tests/forks.py, in
    directory `commands`. `environment` is that of the real ones.
    """

    path: Path
    home: Path
    commands: Path
    installed: Path | None = None

    def environment(self) -> dict[str, str]:
        return environment_of(self.installed or self.path, self.home)

    def digests(self, *folders: str, of: str = "") -> dict[str, str]:
        """SHA-256 of each file in these folders of data/, or of those in a folder `of` below."""
        found: dict[str, str] = {}
        for folder in folders:
            paths = (self.path / "data" / folder).rglob("*")
            files = [path for path in sorted(paths) if path.is_file() and (not of or of in path.parts)]
            assert files, f"no stage wrote files in {folder}"
            names = (path.relative_to(self.path).as_posix() for path in files)
            found |= dict(zip(names, (sha256_of(path) for path in files), strict=True))
        return found

    def run(self, command: str, timeout: float = 500) -> str:
        """The output of a shell command, which must succeed."""
        status, output = self._execute(command, timeout)
        assert status == 0, f"{command} ended with {status}\n{output}"
        return output

    def refused(self, command: str) -> str:
        """The output of a shell command, which must fail."""
        status, output = self._execute(command, 120)
        assert status != 0, f"{command} was expected to fail\n{output}"
        return output

    def _execute(self, command: str, timeout: float) -> tuple[int, str]:
        """Exit status and output of a shell command, first stdout, then stderr."""
        environment = self.environment()
        process = subprocess.run(
            ["bash", "-c", command],
            cwd=self.path,
            env=environment | {"PATH": f"{self.commands}{os.pathsep}{environment['PATH']}"},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return process.returncode, process.stdout + process.stderr

    def commit(self, message: str) -> None:
        self.run(f"git add -A && git commit -q --allow-empty -m '{message}'")

    def restore(self) -> None:
        """Back to the last commit, data included."""
        self.run("git reset -q --hard && git clean -fdq && dvc checkout -q --force")

    def processes(self) -> list[str]:
        """Command lines of the processes whose working directory is in the copy, and of their descendants."""
        command_lines = []
        for process in psutil.process_iter():
            try:
                line, directory = " ".join(process.cmdline()), process.cwd()
                inside = directory.startswith(str(self.path)) or process.environ().get("PWD", "").startswith(
                    str(self.path)
                )
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
            if inside and process.pid != os.getpid():
                command_lines.append(line)
        return command_lines


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    base = tmp_path_factory.mktemp("graph")
    with tempfile.TemporaryDirectory(
        dir="/tmp"
    ) as commands:  # the path of a socket has at most 107 characters
        copy = Project(base / "unseen", base / "home", Path(commands))
        copy.home.mkdir()
        with forks(copy.commands, copy.environment()):
            write_copy(copy)
            yield copy
            assert copy.processes() == []


def write_copy(copy: Project) -> None:
    """The files of this clone, without what the graph built, with small settings, in a commit."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in listed:
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():
            (copy.path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy.path / name, follow_symlinks=False)
    for built in [
        copy.path / "dvc.lock",
        *copy.path.glob("data/metrics/**/*.json"),
        *copy.path.glob("data/history/**/*.csv"),
        *copy.path.glob("data/plots/**/*.*"),
    ]:
        built.unlink(missing_ok=True)
    environment = copy.path / ".venv"  # `make` puts its commands before those of PATH
    environment.mkdir()
    (environment / "bin").symlink_to(copy.commands)
    for name in (".runtime-cpu", ".runtime-gpu"):
        (environment / name).touch()
    shrink(copy.path / "params.yaml")
    copy.run("git init -q && git config user.email graph@example.org && git config user.name graph")
    copy.commit("small")


@pytest.fixture
def built(project: Project) -> Project:
    """The copy after its first run, at its last commit."""
    if not (project.path / "dvc.lock").exists():
        project.run("dvc repro")
        project.commit("first run")
    project.restore()
    return project


def shrink(path: Path) -> None:
    """Few classes, two methods, eight steps; every stage of the graph stays."""
    yaml = YAML()
    params = yaml.load(path.read_text(encoding="utf-8"))
    params["run"]["methods"] = ["ms", "gsp"]
    params["train"]["checkpoint_every"] = 2
    params["analyze"]["bootstrap"] = 100
    params["sweep"]["gsp"].update(
        {"space": {"pooling.transport_ratio": {"grid": [0.2, 0.6]}}, "iterations": 4}
    )
    gsp = {"pooling": {"prototypes": 8, "initialization_memory": 24}}
    source = {"train_classes": 10, "test_classes": 6, "images_per_class": 6}
    # Copies: YAML writes an object that occurs twice as an alias, which DVC does not change.
    params["datasets"]["parts"] = {
        "source": source,
        "recipe": deepcopy(NETWORK),
        "methods": {"gsp": deepcopy(gsp)},
    }
    params["datasets"]["folder"].update({"recipe": NETWORK, "methods": {"gsp": gsp}})
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(params, file)
