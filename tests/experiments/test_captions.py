"""The rows of each published study have the conditions that the paper states for them (captions.yaml)."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.params import resolve
from unseen.config.document import Params
from unseen.experiments.catalogue import definitions, entries, studies
from unseen.methods.settings import CrtRecipe, Recipe
from unseen.runtime.stage import ROOT

CAPTIONS = YAML(typ="safe").load(Path(__file__).with_name("captions.yaml"))
STUDIES = {item.name: item for item in studies().values() if item.is_published and item.study.has_rows}


def conditions(recipe: Recipe) -> dict[str, Any]:
    """A schedule that follows validation has `refit` in place of `published`: in the end all classes."""
    is_refit = recipe.schedule.name == "plateau" and recipe.training.protocol == "refit"
    return {
        "batch": recipe.batch.size,
        "size": recipe.input.size,
        "network": recipe.backbone.name,
        "dim": recipe.embedding.dim if isinstance(recipe, CrtRecipe) else recipe.dim,
        "protocol": "published" if is_refit else recipe.training.protocol,
    }


def test_every_study_with_rows_has_a_caption() -> None:
    assert set(CAPTIONS) == set(STUDIES)
    assert all(CAPTIONS.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_rows_have_the_conditions_of_the_caption(name: str) -> None:
    item, stated = STUDIES[name], dict(CAPTIONS[name])
    label, others = stated.pop("rows", None), stated.pop("others", {})
    if axes := stated.pop("axes", None):
        assert list(item.study.numeric_axes) == axes
    if figures := stated.pop("figures", None):
        assert list(item.study.figures) == figures
    for rows, of_rows in ((label, stated), *others.items()):
        methods = [entry.method for entry in entries(item) if rows in (None, entry.label)]
        assert methods, rows
        params = definitions(Params(ROOT / "params.yaml"), *methods)
        for dataset in item.study.datasets:
            resolved = [conditions(resolve(params, dataset, method)) for method in methods]
            for field, value in of_rows.items():
                expected = value[dataset] if isinstance(value, dict) else value
                of_caption = set(expected) if isinstance(expected, list) else {expected}
                assert {row[field] for row in resolved} == of_caption, f"{rows}: {field} on {dataset}"
