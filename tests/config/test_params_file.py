"""params.yaml is stored in the format that DVC writes: `dvc exp run -S` changes only the lines of the changed
value."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dvc.utils.hydra import apply_overrides
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "params.yaml").read_text(encoding="utf-8")
CONTENT = YAML(typ="safe").load(TEXT)


def leaves(block: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in block.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


# fields of a sweep have dots
SETTABLE = [(path, value) for path, value in leaves(CONTENT) if not any("." in key for key in path)]
CASES = [
    pytest.param(path, new, id=f"{'.'.join(path)}={new}")
    for path, value in SETTABLE
    for new in (("[]", "[b, c]") if isinstance(value, list) else ("{name: b}",) if value == {} else ("7",))
]


@pytest.mark.parametrize(("path", "new_text"), CASES)
def test_a_change_keeps_all_other_lines(path: tuple[str, ...], new_text: str, tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(TEXT, encoding="utf-8")
    added = "++" if new_text.startswith("{") else ""
    apply_overrides(file, [f"{added}{'.'.join(path)}={new_text}"])
    changed = file.read_text(encoding="utf-8")
    expected = YAML(typ="safe").load(TEXT)
    block = expected
    for key in path[:-1]:
        block = block[key]
    old_value, block[path[-1]] = block[path[-1]], YAML(typ="safe").load(new_text)
    assert YAML(typ="safe").load(changed) == expected
    lost_lines = set(TEXT.splitlines()) - set(changed.splitlines())
    assert len(lost_lines) <= 1 + (len(old_value) if isinstance(old_value, list) else 0), lost_lines


@pytest.mark.parametrize(
    ("change", "undo"),
    [
        ("++methods.gsp={dim: 64}", "~methods.gsp"),
        ("++datasets.folder.recipe.dim=64", "~datasets.folder.recipe.dim"),
        ("++datasets.folder.methods.ms={dim: 64}", "~datasets.folder.methods.ms"),
        ("++datasets.birds={source: {kind: folder}}", "~datasets.birds"),
        ("evaluate.reduce={dim: 128}", "evaluate.reduce=null"),
        ("run.sweeps=[]", "run.sweeps=[gsp]"),
    ],
)
def test_a_change_can_be_undone(change: str, undo: str, tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(TEXT, encoding="utf-8")
    apply_overrides(file, [change])
    assert file.read_text(encoding="utf-8") != TEXT
    apply_overrides(file, [undo])
    assert file.read_text(encoding="utf-8") == TEXT


def test_the_file_is_short() -> None:
    assert len(SETTABLE) > 50
    assert len(TEXT.splitlines()) <= 150
