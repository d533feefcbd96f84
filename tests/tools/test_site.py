"""The sources of the site: each page is in the navigation, and public names lead to their definitions."""

import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

from tools.docs.site import write_sources


def _files(entries: list[Any]) -> list[str]:
    return [
        file
        for entry in entries
        for file in ([entry] if isinstance(entry, str) else _files(next(iter(entry.values()))))
    ]


def test_the_sources(tmp_path: Path) -> None:
    write_sources(tmp_path)
    pages = {str(path.relative_to(tmp_path / "docs")) for path in tmp_path.glob("docs/**/*.md")}
    navigation = _files(tomllib.loads((tmp_path / "zensical.toml").read_text())["project"]["nav"])
    assert sorted(navigation) == sorted(pages)
    assert "](docs/" not in (tmp_path / "docs/index.md").read_text()
    names = re.findall("^::: (.*)$", (tmp_path / "docs/reference/index.md").read_text(), re.MULTILINE)
    for name in names:
        module, attribute = name.rsplit(".", 1)
        assert hasattr(import_module(module), attribute), name
    assert {"unseen.losses.pairs.PairLoss", "unseen.training.fit.train"} <= set(names)
