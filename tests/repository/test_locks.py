"""requirements/*.txt pin every package of pyproject.toml, and make installs no other package."""

import re
import subprocess
import sys
import tomllib
from itertools import product
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BASE = ("runtime", "torch")
OF_EXTRA = {
    "cpu": "faiss-cpu",
    "gpu": "faiss-gpu",
    "dev": "development",
    "cluster": "cluster",
    "serve": "serve",
    "s3": "s3",
    "docs": "docs",
}
FILES = ("build", "runtime", "torch", "cuda", *OF_EXTRA.values())
MACHINES = [
    {
        "python_version": version,
        "python_full_version": f"{version}.0",
        "platform_machine": machine,
        "sys_platform": "linux",
    }
    for version, machine in product(("3.11", "3.12", "3.13", "3.14"), ("x86_64", "aarch64"))
]


def read_lock(file: str) -> dict[str, tuple[Requirement, list[str]]]:
    """Name -> its pin and the hashes below it. Any other line is an error."""
    pins: dict[str, tuple[Requirement, list[str]]] = {}
    hashes: list[str] = []
    for line in (ROOT / f"requirements/{file}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        if (digest := re.fullmatch(r"    --hash=(sha256:[0-9a-f]{64})(?: \\)?", line)) is not None:
            hashes.append(digest[1])
        else:
            requirement = Requirement(line.removesuffix(" \\"))
            hashes = []
            assert canonicalize_name(requirement.name) not in pins, (
                f"{file}: {requirement.name} is pinned twice"
            )
            pins[canonicalize_name(requirement.name)] = requirement, hashes
    return pins


@pytest.mark.parametrize("file", FILES)
def test_every_package_has_one_version_and_hashes(file: str) -> None:
    pins = read_lock(file)
    assert pins
    for requirement, hashes in pins.values():
        (specifier,) = requirement.specifier
        assert specifier.operator == "=="
        assert requirement.url is None
        assert bool(hashes) is (file != "torch"), requirement.name


def test_a_package_of_two_files_has_one_version() -> None:
    versions: dict[str, set[str]] = {}
    for file in FILES:
        for name, (requirement, _) in read_lock(file).items():
            versions.setdefault(name, set()).add(str(requirement.specifier))
    assert {name: pinned for name, pinned in versions.items() if len(pinned) > 1} == {}


@pytest.mark.parametrize("extra", [None, *OF_EXTRA])
def test_the_pins_are_in_the_ranges_of_the_project(extra: str | None) -> None:
    files = BASE if extra is None else (*BASE, OF_EXTRA[extra])
    pins = {name: pin for file in files for name, (pin, _) in read_lock(file).items()}
    ranges = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
    for requirement in map(Requirement, ranges):
        pin = pins[canonicalize_name(requirement.name)]
        (specifier,) = pin.specifier
        assert specifier.version in requirement.specifier, requirement.name
        assert all(pin.marker is None or pin.marker.evaluate(machine) for machine in MACHINES), pin


def test_a_machine_without_gpu_installs_no_cuda_library() -> None:
    files = ("build", *BASE, "faiss-cpu", "development", "cluster", "s3")
    names = {name for file in files for name in read_lock(file)}
    assert [name for name in names if re.match(r"nvidia-|cuda-|triton|faiss-gpu", name)] == []
    assert {"nvidia-cublas", "cuda-toolkit", "triton"} <= read_lock("cuda").keys()


@pytest.mark.parametrize(("stamp", "files"), [(".runtime", ()), (".development", ("development",))])
@pytest.mark.parametrize("build", ["cpu", "gpu"])
def test_make_installs_only_from_the_locks(
    tmp_path: Path, stamp: str, files: tuple[str, ...], build: str
) -> None:
    command = ["make", "--dry-run", f"VENV={tmp_path}", f"FAISS={build}", f"{tmp_path}/{stamp}-{build}"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    installs = re.findall(r"pip install (.*?)(?:; fi)?$", printed, re.MULTILINE)
    assert all("--no-deps" in install and "--no-build-isolation" in install for install in installs)
    lock_files = [re.findall(r"requirements/(\S+)\.txt", install) for install in installs]
    assert lock_files == [["build"], ["runtime", f"faiss-{build}", *files], ["torch"], ["cuda"], []]
    unhashed = [install for install in installs if "--require-hashes" not in install]
    assert [install.split()[-1] for install in unhashed] == ["requirements/torch.txt", "."]


def test_an_interrupted_installation_of_a_package_is_repeated(tmp_path: Path) -> None:
    for name in ("whole-1.0.dist-info", "cut-1.0.dist-info"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "METADATA").touch()
    (tmp_path / "whole-1.0.dist-info/INSTALLER").write_text("pip")
    command = [sys.executable, str(ROOT / "requirements/unfinished.py"), str(tmp_path)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "cut-1.0.dist-info was not installed completely" in output
    assert [path.name for path in tmp_path.iterdir()] == ["whole-1.0.dist-info"]
    target = f"{tmp_path}/.runtime-cpu"
    command = ["make", "--dry-run", f"VENV={tmp_path}", "FAISS=cpu", target]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert lines.index("requirements/unfinished.py") < lines.index("pip install")


@pytest.mark.parametrize("has_pip", [True, False])
def test_an_environment_without_pip_is_created_again(tmp_path: Path, has_pip: bool) -> None:
    """As `python -m venv` leaves it if it is killed before it installs pip."""
    environment, log = tmp_path / "environment", tmp_path / "log"
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin/python"
    python.write_text(f"#!/bin/sh\nexit {0 if has_pip else 1}\n")
    creating = tmp_path / "python3"
    creating.write_text(f'#!/bin/sh\ncase "$*" in *venv*) echo "$@" >> {log};; esac\n')
    for path in (python, creating):
        path.chmod(0o755)
    command = ["make", f"VENV={environment}", f"PYTHON={creating}", f"{environment}/.python"]
    for _ in range(2):
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    expected = "" if has_pip else f"-m venv {environment}\n"
    assert (log.read_text() if log.exists() else "") == expected
