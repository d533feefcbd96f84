"""Names of data sets and methods, as text that a user may type."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from unseen.runtime.setting_names import checked_name


@pytest.mark.slow
@given(st.text(max_size=12))
def test_an_accepted_name_is_unchanged_in_yaml_files_and_stage_names(name: str) -> None:
    try:
        checked_name(name)
    except ValueError:
        return
    assert name.isascii()
    assert YAML(typ="safe", pure=True).load(f"{{{name}: 1}}") == {name: 1}
    assert name.strip("/.@ ") == name
    assert "." not in name
    assert "/" not in name


@pytest.mark.parametrize("name", ["my-birds", "a", "Birds2", "a_b-c", "noisy", "gsp-soft"])
def test_accepts_ordinary_names(name: str) -> None:
    assert checked_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "2birds", "my birds", "my.birds", "-birds", "a/b", "..", "true", "No", "y", "Null", "ünder", "a\n"],
)
def test_refuses_other_names(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        checked_name(name)
