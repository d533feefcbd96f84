"""The published recipe files are valid, name existing items, and repeat no value."""

from typing import Any

import pytest

from tests.params import resolve, write
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.layers import flat
from unseen.config.place import ABSENT, at
from unseen.config.recipe_files import (
    ROOT,
    chain,
    dataset_file,
    method_class,
    method_file,
    published,
    sweep_of,
)
from unseen.config.resolve import dataset_settings
from unseen.config.stages import SweepSettings
from unseen.experiments.sweep.space import draw, trial_recipes
from unseen.runtime.errors import UserError

STEMS = {kind: sorted(path.stem for path in (ROOT / kind).glob("*.yaml")) for kind in ("methods", "datasets")}


@pytest.fixture(scope="module")
def params(tmp_path_factory: pytest.TempPathFactory) -> Params:
    """Published recipes without changes of a user."""
    return write(tmp_path_factory.mktemp("params"), {"ingest": {}})


def empty(block: Any) -> bool:
    return block in ({}, None) or (
        isinstance(block, dict) and any(empty(value) for value in block.values() if isinstance(value, dict))
    )


@pytest.mark.parametrize("name", STEMS["methods"])
def test_a_method_file_names_existing_methods_and_has_no_empty_block(name: str) -> None:
    file = method_file(name)
    names = [target for change in file.changes for target in change.names]
    assert set(names) <= set(published("datasets"))
    assert not any(empty(change.recipe) for change in file.changes)
    assert file.recipe or file.base
    assert not (file.like and (file.base or file.method or file.changes or file.sweep))
    assert method_class(name) if not name.startswith("_") else True


def test_a_method_without_a_class_of_recipe_is_an_error() -> None:
    with pytest.raises(UserError, match=r"_mlrc\.yaml: `method` is missing"):
        method_class("_mlrc")


@pytest.mark.parametrize("name", STEMS["datasets"])
def test_a_data_set_file_names_existing_sets_and_has_no_empty_block(name: str) -> None:
    file = dataset_file(name)
    assert {target for change in file.changes for target in change.names} <= set(STEMS["methods"])
    assert not any(empty(change.recipe) for change in file.changes)
    if not name.startswith("_"):
        assert chain("datasets", name)[-1] == file.source["kind"] == name


@pytest.mark.slow
def test_every_published_value_has_an_effect(params: Params) -> None:
    """A value that equals the layer below in every recipe is redundant."""
    effective: dict[tuple[str, str, str], bool] = {}
    for dataset in published("datasets"):
        for method in published("methods"):
            recipe = resolve(params, dataset, method).model_dump(mode="json")
            for patch in Definitions(params).layers(dataset, method).patches:
                for field, value in flat(patch.fields).items():
                    key = (patch.place.label, patch.place.key, field)
                    effective[key] = effective.get(key, False) or at(recipe, field) == value
    assert len(effective) > 300
    assert [key for key, decides in effective.items() if not decides] == []


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in published("methods") if sweep_of(name)])
def test_a_published_search_makes_valid_trials(params: Params, method: str) -> None:
    search = SweepSettings.parse(sweep_of(method))
    trials = draw(search)
    assert len(trials) >= 4
    for dataset in ("cub", "parts"):
        recipes = trial_recipes(Definitions(params), dataset, method, search, trials)
        for field, axis in search.space.items():
            for recipe, values in zip(recipes, trials, strict=True):
                content = recipe.model_dump(mode="json")
                assert {at(content, name) for name in (field, *axis.tied)} == {values[field]}
                assert at(content, field) is not ABSENT


def test_every_method_of_the_papers_has_a_published_search() -> None:
    """IRT off the shelf has no training. A hybrid of losses has its own search axis."""
    assert [name for name in published("methods") if sweep_of(name) is None] == ["irt_o"]


def test_all_data_sets_have_a_source(params: Params) -> None:
    for dataset in published("datasets"):
        assert dataset_settings(Definitions(params), dataset)[0].kind == dataset
