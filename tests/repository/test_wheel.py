"""The wheel: its packages, which work in an empty environment."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.photos import picture

ROOT = Path(__file__).resolve().parents[2]
PRODUCTS = ("unseen_search", "dvc_parallel")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and the packages of this one, but not its editable installation."""
    directory = tmp_path_factory.mktemp("wheel")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard", "--", ":!tests", ":!benchmarks", ":!docs"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = listing.stdout.split("\0")
    for name in filter(None, files):
        (directory / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, directory / "source" / name, follow_symlinks=False)
    build = "from setuptools.build_meta import build_wheel; build_wheel('..')"
    subprocess.run(
        [sys.executable, "-c", build], cwd=directory / "source", stdout=subprocess.DEVNULL, check=True
    )
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "venv"], cwd=directory, check=True)
    (packages,) = (directory / "venv/lib").glob("python*/site-packages")
    with zipfile.ZipFile(next(directory.glob("unseen-*.whl"))) as wheel:
        wheel.extractall(packages)
    # A path in a .pth file is not searched for further .pth files, such as that of the editable installation.
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join(others), encoding="utf-8")
    return directory


def in_environment(environment: Path, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [environment / "venv/bin/python", *arguments],
        cwd=directory,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_wheel_contains_the_packages(environment: Path) -> None:
    with zipfile.ZipFile(next(environment.glob("unseen-*.whl"))) as wheel:
        files = {name for name in wheel.namelist() if ".dist-info/" not in name}
    folders = {"unseen": "pipeline", "unseen/stages": "stages"} | {name: name for name in PRODUCTS}
    expected = {
        f"{package}/{path.relative_to(ROOT / folder).as_posix()}"
        for package, folder in folders.items()
        for path in (ROOT / folder).rglob("*.*")
        if "__pycache__" not in path.parts
    }
    assert files == expected


# Runs several commands in one process, which imports the libraries once. The output of each is one element.
COMMANDS = """
import contextlib, io, json, sys
from unseen.cli.main import main
results = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main(arguments)
            status = 0
        except SystemExit as ended:
            status = ended.code
    results.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(results))
"""


@pytest.mark.slow
def test_commands_without_the_graph_work_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    for label in ("a", "b"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(2):
            (tmp_path / "photos" / label / f"{number}.jpg").write_bytes(picture(2 * ord(label) + number))

    vectors = np.eye(4, dtype=np.float32)[[0, 0, 1, 1]]
    np.save(tmp_path / "vectors.npy", vectors)
    (tmp_path / "labels.txt").write_text("a\na\nb\nb\n")
    working = [
        ["doctor"],
        ["init", "birds"],
        ["index", "photos", "catalog", "--labels", "folders", "--size", "64"],
        ["find", "catalog", "photos/a/0.jpg", "--json"],
        ["evaluate", "vectors.npy", "--labels", "labels.txt"],
    ]
    refused = [["run"], ["study", "--list"], ["clean"], ["recipe", "cub", "gsp", "--diff", "HEAD"]]
    process = in_environment(environment, tmp_path, "-c", COMMANDS, json.dumps(working + refused))
    assert process.returncode == 0, process.stderr
    results = json.loads(process.stdout)
    for arguments, (status, _, printed) in zip(working, results, strict=False):
        assert status == 0, (arguments, printed)
    assert "in no project" in results[0][1]
    answer = json.loads(results[3][1])
    assert answer["queries"][0]["matches"][0]["path"] == "a/0.jpg"
    assert "MAP@R" in results[4][1]
    assert (tmp_path / "birds/params.yaml").read_bytes() == (ROOT / "params.yaml").read_bytes()
    for arguments, (status, _, printed) in zip(refused, results[len(working) :], strict=True):
        assert status == 1, arguments
        assert "contains dvc.yaml" in printed, arguments
    process = in_environment(environment, tmp_path, "-m", "unseen", "recipe", "cub", "gsp")
    assert process.returncode == 0, process.stderr
    assert "pipeline/recipes/methods/" in process.stdout
