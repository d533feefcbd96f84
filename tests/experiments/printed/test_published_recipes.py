"""Every row that names a recipe is reproducible: its settings resolve, and the result meets the conditions of
the row.
"""

from functools import cache
from pathlib import Path

import pytest

from tests.params import resolve
from unseen.config.document import Params
from unseen.experiments.printed.model import Row, rows
from unseen.methods.settings import BaselineRecipe, CrtRecipe, GspRecipe, Recipe
from unseen.networks.weights import published_weights

PARAMS = Params(Path(__file__).resolve().parents[3] / "params.yaml")
NAMED = [row for row in rows() if row.method is not None]
NATIVE = {
    "resnet50": 2048,
    "resnet101": 2048,
    "deit_small": 384,
    "deit_base": 768,
}  # channels of the last map


def recipe_of(row: Row) -> Recipe:
    return _resolved(row.dataset, row.method or "", tuple(row.recipe.items()))


@cache
def _resolved(dataset: str, method: str, settings: tuple[tuple[str, object], ...]) -> Recipe:
    return resolve(PARAMS, dataset, method, dict(settings))


@pytest.mark.slow
def test_settings_resolve_to_the_conditions_of_the_row() -> None:
    assert len(NAMED) > 450
    for row in NAMED:
        recipe = recipe_of(row)
        assert row.backbone in (None, recipe.backbone.name), row
        assert row.size in (None, recipe.input.size), row
        if row.dim is None or row.reduced:
            continue
        dim = recipe.embedding.dim if isinstance(recipe, CrtRecipe) else recipe.dim
        native = next(
            (width for name, width in NATIVE.items() if recipe.backbone.name.startswith(name)), None
        )
        assert row.dim == (dim or native or 0) * (4 if row.setting == "mlrc-concatenated" else 1), row


def test_every_row_and_its_recipe_name_published_weights() -> None:
    for row in NAMED:
        backbone = recipe_of(row).backbone
        assert backbone.pretrained, row
        assert backbone.name in published_weights(), row
        assert row.backbone in (None, backbone.name), row


@pytest.mark.parametrize("dataset", ["cub", "cars", "sop", "inshop"])
def test_rows_of_one_loss_in_gsp_differ_only_in_pooling(dataset: str) -> None:
    """Average pooling is compared in the setting of GSP: loss, batch, optimiser, schedule, training and
    memory are equal."""
    parts = ("loss", "batch", "optimizer", "schedule", "training", "memory", "backbone", "input", "dim")
    named = {
        row.name: recipe_of(row)
        for row in NAMED
        if (row.paper, row.table, row.dataset) == ("gsp", "2", dataset)
    }
    for loss in ("C2", "MS", "Triplet", "PNCA", "PAnchor", "C1 + XBM"):
        average, gsp = named[f"{loss} + GAP"], named[f"{loss} + GSP"]
        assert isinstance(gsp, GspRecipe)
        assert isinstance(average, GspRecipe | BaselineRecipe)
        assert gsp.zero_shot is not None
        assert average.pooling.name in ("average", "attribute_average")
        for part in parts:
            assert getattr(average, part) == getattr(gsp, part), (loss, part)
