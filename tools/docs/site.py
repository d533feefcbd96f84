"""Builds the documentation as a site, which works from the disk: site/index.html.

    python -m tools.docs.site

Zensical renders README.md, the pages of docs/, and an API reference from the docstrings: the public names,
whose arguments stay, then all modules by package.
"""

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from unseen.runtime.lazy import for_type_checkers

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "docs/zensical.toml"
PROJECT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PACKAGES = (
    "unseen",
    *sorted(f"unseen.{path.parent.name}" for path in ROOT.glob("pipeline/*/__init__.py")),
    "unseen_search",
    "dvc_parallel",
)


_OF_NAME = """\
::: {}
    options:
      heading: {}
      heading_level: 3
      show_root_heading: true
      show_root_toc_entry: true

"""


def main() -> None:
    with TemporaryDirectory() as directory:
        write_sources(Path(directory))
        subprocess.run(
            [sys.executable, "-m", "zensical", "build"],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
            check=True,
        )
        shutil.rmtree(ROOT / "site", ignore_errors=True)
        shutil.move(Path(directory, "site"), ROOT / "site")


def write_sources(directory: Path) -> None:
    """The folder that Zensical builds: its configuration, and docs/ with all pages."""
    pages = shutil.copytree(ROOT / "docs", directory / "docs", ignore=shutil.ignore_patterns("*.toml"))
    shutil.copy(CONFIG, directory / "zensical.toml")
    for name in PROJECT:
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        pages.joinpath(name).write_text(text.replace("](README.md", "](index.md"), encoding="utf-8")
    pages.joinpath("README.md").rename(pages / "index.md")
    reference = pages / "reference"
    reference.mkdir()
    (reference / "index.md").write_text(_public_names(), encoding="utf-8")
    for package in PACKAGES:
        options = "    options:\n      show_submodules: false\n" if package == "unseen" else ""
        text = f"# {package}\n\n::: {package}\n{options}"
        (reference / f"{package}.md").write_text(text, encoding="utf-8")


def _public_names() -> str:
    """The page of the names that packages export."""
    text = "# Public names\n\nThese names and their arguments stay (`tests/test_stable_names.py`).\n"
    for package in PACKAGES:
        names = getattr(import_module(package), "__all__", ())
        if names:
            text += f"\n## {package}\n\n"
            text += "".join(_OF_NAME.format(_definition(package, name), name) for name in names)
    return text


def _definition(package: str, name: str) -> str:
    """Where a public name is defined: packages import their names at their first use."""
    module = Path(str(import_module(package).__file__)).read_text(encoding="utf-8")
    return ".".join(for_type_checkers(module).get(name, (package, name)))


if __name__ == "__main__":
    main()
