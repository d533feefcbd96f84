"""docs/report.md, applied to a copy of the project: its section is on the page and passes its test."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/report.md").read_text(encoding="utf-8")
NEW = {"python", "html"}  # languages of blocks that are new files


def blocks() -> list[tuple[str, str, str]]:
    """Language, file and text of each block. The file is the last one that the text names before it."""
    listed, path = [], ""
    for match in re.finditer(r"`([\w/]+\.\w+)`|^```(\w+)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL):
        path = match[1] or path
        if match[2]:
            listed.append((match[2], path, match[3]))
    return listed


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the section of the guide."""
    root = tmp_path_factory.mktemp("extended")
    for name in ("pipeline", "tests/report"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "params.yaml"):
        shutil.copy2(ROOT / name, root / name)
    for language, path, text in blocks():
        if language in NEW:
            assert not (ROOT / path).exists(), f"{path} exists already"
            (root / path).write_text(text, encoding="utf-8")
        else:
            lines = text.splitlines(keepends=True)
            before, after = ("".join(line[1:] for line in lines if line[0] != sign) for sign in "+-")
            content = (root / path).read_text(encoding="utf-8")
            assert content.count(before) == 1, f"{path} does not contain what the guide changes:\n{before}"
            (root / path).write_text(content.replace(before, after), encoding="utf-8")
    return root


def run(root: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_file_that_the_guide_names_exists(extended: Path) -> None:
    named = set(re.findall(r"`((?:pipeline|tests)/[\w/]+(?:\.\w+)?)`", GUIDE))
    assert len(named) > 12
    assert [name for name in sorted(named) if not (extended / name).exists()] == []


def test_the_section_passes_its_test(extended: Path) -> None:
    checked = "addopts=--jaxtyping-packages=pipeline.report,beartype.beartype"
    new = [path for language, path, _ in blocks() if language == "python" and path.startswith("tests/")]
    assert len(new) == 1
    every = "tests/report/test_page.py::test_every_section_has_module_template_entry_and_test"
    output = run(extended, "pytest", "-n0", "-q", "-p", "no:cacheprovider", "-o", checked, *new, every)
    assert "3 passed" in output


def test_the_section_has_the_style_of_the_project(extended: Path) -> None:
    files = [path for language, path, _ in blocks() if language == "python"]
    run(extended, "ruff", "check", "--no-cache", *files)
    run(extended, "ruff", "format", "--check", "--no-cache", *files)
