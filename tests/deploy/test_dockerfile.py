"""The build steps of deploy/Dockerfile without Docker, with a `make` that records its calls."""

import subprocess
from pathlib import Path

import pytest

from tests.deploy.dockerfile import ROOT, build

INDEX = "https://packages.example.org/cpu"
# Records its folder, arguments and index, and creates the Python of the environment, which does the same.
MAKE = """#!/bin/sh
echo "$(basename $0) in $PWD with $(ls | wc -l): $* index=$PIP_EXTRA_INDEX_URL" >> LOG
for argument; do
    case $argument in
        VENV=*) mkdir -p "${argument#VENV=}/bin" && cp "$0" "${argument#VENV=}/bin/python" ;;
    esac
done
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the calls of `make` and of the Python that it installs."""
    log, program = tmp_path / "log", tmp_path / "bin/make"
    program.parent.mkdir()
    program.write_text(MAKE.replace("LOG", str(log)), encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    return log


@pytest.mark.parametrize(
    ("target", "arguments", "index"),
    [
        ("cuda", "FAISS=gpu COMPILE=--compile cluster s3", ""),
        ("cpu", "FAISS=cpu COMPILE=--compile cluster s3", INDEX),
    ],
)
def test_a_target_installs_its_packages_in_the_folder(
    tmp_path: Path, log: Path, target: str, arguments: str, index: str
) -> None:
    root = tmp_path / "root"
    build(target, root, {"TORCH_INDEX": INDEX})
    (call,) = log.read_text(encoding="utf-8").splitlines()
    assert call == f"make in {root}/opt/unseen with 5: VENV={root}/opt/venv {arguments} index={index}"
    copied = {path.relative_to(root / "opt/unseen") for path in (root / "opt/unseen").rglob("*")}
    assert {Path("Makefile"), Path("pyproject.toml"), Path("requirements/runtime.txt")} <= copied
    assert (root / "home/unseen").is_dir()
    assert not (root / "shared").exists(), "the volume is mounted there"


def test_the_service_installs_the_code(tmp_path: Path, log: Path) -> None:
    root = tmp_path / "root"
    build("serve", root, {"TORCH_INDEX": INDEX})
    packages, code = log.read_text(encoding="utf-8").splitlines()
    assert packages.endswith(f"FAISS=cpu COMPILE=--compile serve index={INDEX}")
    assert code.startswith(f"python in {root}/opt/unseen with ")
    assert "-m pip install --quiet --no-deps --no-build-isolation . " in code
    assert (root / "opt/unseen/unseen/cli/main.py").read_bytes() == (
        ROOT / "pipeline/cli/main.py"
    ).read_bytes()


def test_a_failing_step_ends_the_build(tmp_path: Path, log: Path) -> None:
    (tmp_path / "bin/make").write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    with pytest.raises(subprocess.CalledProcessError, match="returned non-zero exit status 3"):
        build("cpu", tmp_path / "root", {})
