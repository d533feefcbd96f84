"""Values in the commands that the project prints, against the parser of DVC's -S."""

from pathlib import Path
from typing import Any

import pytest
from dvc.utils.hydra import apply_overrides
from ruamel.yaml import YAML

from unseen.config.command import literal


@pytest.mark.parametrize(
    "value",
    [True, None, 3, 0.5, "gsp", "a b", "größe x", 'say "x"', "a,b", [1, "b c"], {"name": "ms", "scale": 2}],
    ids=str,
)
def test_dvc_reads_the_literal_of_a_value_as_the_value(value: Any, tmp_path: Path) -> None:
    params = tmp_path / "params.yaml"
    params.write_text("field: 0\n", encoding="utf-8")
    apply_overrides(params, [f"field={literal(value)}"])
    assert YAML(typ="safe").load(params.read_text(encoding="utf-8"))["field"] == value
