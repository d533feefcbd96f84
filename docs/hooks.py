"""MkDocs hooks: add README, CONTRIBUTING, CHANGELOG and one page of API reference per package to the site."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "unseen",
    *sorted(f"unseen.{path.parent.name}" for path in ROOT.glob("pipeline/*/__init__.py")),
    "unseen_search",
    "dvc_parallel",
)


def on_config(config: Any) -> Any:
    """Adds these pages to the navigation."""
    config.nav = [
        "index.md",
        *config.nav,
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        {"API reference": [_page(package) for package in PACKAGES]},
    ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the files of these pages."""
    pages = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
    for name, page in pages.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    for package in PACKAGES:
        options = "    options:\n      show_submodules: false\n" if package == "unseen" else ""
        text = f"---\ntitle: {package}\n---\n\n# {package}\n\n::: {package}\n{options}"
        files.append(File.generated(config, _page(package), content=text))
    return files


def _page(package: str) -> str:
    return f"reference/{package}.md"
