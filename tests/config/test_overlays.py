"""Properties of the layers of a recipe in params.yaml, for any overlays."""

import json
import re
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.params import resolve
from unseen.config.document import Params
from unseen.config.layers import _merge as merge
from unseen.config.place import at
from unseen.runtime.errors import UserError

# Fields that no validator relates to each other.
LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "dim": st.integers(1, 512),
    "input.flip": st.floats(0, 1),
    "optimizer.learning_rate": st.floats(1e-9, 1.0),
    "optimizer.momentum": st.floats(0, 1),
    "pooling.epsilon": st.floats(0.01, 100.0),
    "pooling.transport_ratio": st.floats(0.01, 1.0),
    "schedule.warmup": st.integers(0, 50),
    "training.minimum_gain": st.floats(0, 0.1),
    "training.watch_test": st.booleans(),
}
# The blocks of params.yaml that set fields of method `variant` on data set `parts`. The last one wins.
BLOCKS = (
    "methods.gsp",
    "methods.variant",
    "datasets.parts.recipe",
    "datasets.parts.methods.gsp",
    "datasets.parts.methods.variant",
)
SECTIONS = ("", "input", "optimizer", "pooling", "schedule", "training", "batch", "backbone")

Values = dict[str, Any]  # by dotted field
OVERLAY = st.lists(st.sampled_from(sorted(LEAVES)), unique=True, max_size=5).flatmap(
    lambda fields: st.fixed_dictionaries({field: LEAVES[field] for field in fields})
)
OVERLAYS = st.tuples(*(OVERLAY for _ in BLOCKS))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("overlays") / "params.yaml"


def assign(tree: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
    tree[last] = value


def written(path: Path, blocks: Iterable[tuple[str, Values]]) -> Params:
    """params.yaml in which each block sets its fields, one key a line."""
    content: dict[str, Any] = {"methods": {"variant": {"like": "gsp"}}}
    for block, values in blocks:
        for field, value in values.items():
            assign(content, f"{block}.{field}", value)
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return Params(path)


def recipe(params: Params) -> dict[str, Any]:
    return resolve(params, "parts", "variant").model_dump(mode="json")


@pytest.mark.slow
@given(overlays=OVERLAYS)
@settings(max_examples=40)
def test_the_last_layer_wins_at_every_leaf(path: Path, overlays: tuple[Values, ...]) -> None:
    expected = recipe(written(path, ()))
    for values in overlays:
        for field, value in values.items():
            assign(expected, field, value)
    assert recipe(written(path, zip(BLOCKS, overlays, strict=True))) == expected


@pytest.mark.slow
@given(overlays=OVERLAYS, turn=st.permutations(BLOCKS))
@settings(max_examples=40)
def test_the_order_of_blocks_in_the_file_has_no_effect(
    path: Path, overlays: tuple[Values, ...], turn: list[str]
) -> None:
    by_block = dict(zip(BLOCKS, overlays, strict=True))
    expected = recipe(written(path, by_block.items()))
    assert recipe(written(path, [(block, by_block[block]) for block in turn])) == expected


@pytest.mark.slow
@given(values=OVERLAY, places=st.data())
@settings(max_examples=40)
def test_independent_layers_commute(path: Path, values: Values, places: st.DataObject) -> None:
    """A field that one layer sets has the same value in whichever layer that is."""
    drawn = [
        [(places.draw(st.sampled_from(BLOCKS)), {field: values[field]}) for field in values] for _ in "ab"
    ]
    first, second = (recipe(written(path, blocks)) for blocks in drawn)
    assert first == second
    assert {field: at(first, field) for field in values} == values


@pytest.mark.slow
@given(overlays=OVERLAYS, removed=st.sampled_from(range(len(BLOCKS))))
@settings(max_examples=40)
def test_a_deleted_overlay_leaves_no_trace(path: Path, overlays: tuple[Values, ...], removed: int) -> None:
    """The published layers are cached; an overlay must not change them."""
    blocks = list(zip(BLOCKS, overlays, strict=True))
    rest = blocks[:removed] + blocks[removed + 1 :]
    before = recipe(written(path, rest))
    recipe(written(path, blocks))
    assert recipe(written(path, rest)) == before


TREES = st.recursive(
    st.integers(0, 3) | st.none(),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(*(st.dictionaries(st.sampled_from("abc"), TREES, max_size=3) for _ in range(2)))
@settings(max_examples=50)
def test_a_merge_changes_no_argument_and_keeps_other_leaves(
    below: dict[str, Any], above: dict[str, Any]
) -> None:
    copies = deepcopy((below, above))
    merged = merge(below, above)
    assert (below, above) == copies
    assert merge(merged, above) == merged, "a second merge of the same tree has no effect"
    assert dict(leaves(merged)).items() >= dict(leaves(above)).items()
    for key, value in leaves(below):
        if untouched(above, key):
            assert at(merged, key) == value


def leaves(tree: dict[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def untouched(tree: Any, key: str) -> bool:
    """Whether `tree` has neither `key` nor a leaf above it."""
    for part in key.split("."):
        if not isinstance(tree, dict):
            return False
        if part not in tree:
            return True
        tree = tree[part]
    return False


@pytest.mark.slow
@given(
    overlays=OVERLAYS,
    block=st.sampled_from(BLOCKS),
    section=st.sampled_from(SECTIONS),
    name=st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True),
    value=st.none() | st.booleans() | st.integers() | st.text("abc") | st.just({"a": 1}),
)
@settings(max_examples=50)
def test_an_unknown_key_is_refused_with_its_line(
    path: Path, overlays: tuple[Values, ...], block: str, section: str, name: str, value: Any
) -> None:
    key = f"unknown_{name}"
    field = f"{section}.{key}" if section else key
    params = written(path, [*zip(BLOCKS, overlays, strict=True), (block, {field: value})])
    lines = path.read_text(encoding="utf-8").splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if text.strip().startswith(f'"{key}":'))
    with pytest.raises(
        UserError, match=rf"^{re.escape(f'{path}:{line}: {block}.{field} is not a setting.')}"
    ):
        resolve(params, "parts", "variant")
