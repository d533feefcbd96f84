"""The files of the repository agree on version, licence and checks."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tools.docs.markdown import wrapped

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read_yaml(name: str) -> dict[str, Any]:
    return YAML(typ="safe").load((ROOT / name).read_text(encoding="utf-8"))


def test_citation_and_changelog_name_the_version_and_the_licence_of_the_project() -> None:
    citation = read_yaml("CITATION.cff")
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert citation["version"] == newest[1] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]


def test_the_hooks_equal_the_commands_of_make_lint() -> None:
    hooks = [
        hook for repository in read_yaml(".pre-commit-config.yaml")["repos"] for hook in repository["hooks"]
    ]
    recipe = re.search(
        r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert recipe is not None
    commands = [line.strip().removesuffix(" .") for line in recipe[1].splitlines()]
    assert [hook["entry"].removesuffix(" --force-exclude") for hook in hooks] == commands
    assert {hook["language"] for hook in hooks} == {"system"}, "no hook downloads code"


def test_the_workflow_runs_the_script_that_every_forge_runs() -> None:
    steps = read_yaml(".github/workflows/ci.yml")["jobs"]["test"]["steps"]
    scripts = [step["run"] for step in steps if "run" in step]
    assert scripts == [".ci/run"]
    assert (ROOT / scripts[0]).stat().st_mode & 0o111, "executable"


def test_the_audit_reads_every_file_of_pins_each_week() -> None:
    workflow = read_yaml(".github/workflows/audit.yml")
    schedule, steps = workflow["on"]["schedule"], workflow["jobs"]["audit"]["steps"]
    assert [each["cron"].split()[4] for each in schedule] == ["1"], "Mondays"
    scripts = "\n".join(step.get("run", "") for step in steps)
    assert "for file in requirements/*.txt" in scripts
    assert "exit 1" in scripts
    packages = re.search(r"--ignore-packages (.*)", scripts)
    assert packages is not None
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert all(name in text for name in packages[1].split()), "each exception is stated"


def test_documents_link_to_files_that_exist() -> None:
    for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "README.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), f"{name} links to {target}"


def test_every_repaired_defect_names_tests_that_exist() -> None:
    lines = (ROOT / "docs/defects.md").read_text("utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| defect")]
    tests = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(rows) >= 35
    for row in rows:
        defect, names = row.strip("| ").rsplit(" | ", 1)
        assert re.fullmatch(r"`test_\w+`(, `test_\w+`)*", names), defect
        for name in re.findall(r"test_\w+", names):
            assert f"def {name}(" in tests, name


def test_the_tests_of_flipped_bits_exist() -> None:
    names = re.findall(r"`(test_\w+)`", (ROOT / "docs/reliability.md").read_text("utf-8"))
    tests = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(names) >= 5
    assert [name for name in names if f"def {name}(" not in tests] == []


def test_the_readme_has_at_most_200_lines() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 200


def test_documents_have_at_most_110_columns() -> None:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in listed.stdout.split()}
    assert len(pages) > 20
    assert [name for name, page in pages.items() if wrapped(page) != page] == []


def test_docstrings_name_modules_that_exist() -> None:
    """A path is that of a module of the project if its first folder is beside or above the docstring. Others
    are files of released code of papers. parts/circle.py is an example of a part of a user."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = {Path(name) for name in tracked.splitlines() if name.endswith(".py") and (ROOT / name).is_file()}
    names = {file.name for file in files}
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for file in sorted(file for file in files if file.parts[0] != "tests"):
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        documents = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
        folders = [Path(), *(Path(*file.parts[:depth]) for depth in range(2, len(file.parts)))]
        for named in map(
            Path, re.findall(r"[\w/]+\.py\b", " ".join(documents).replace("parts/circle.py", ""))
        ):
            near = [folder / named for folder in folders if (ROOT / folder / named.parts[0]).is_dir()]
            assert named.name in names if len(named.parts) == 1 else not near or files & {*near}, (
                file,
                named,
            )
