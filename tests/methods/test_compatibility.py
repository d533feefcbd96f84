"""Recipes and networks that fit each other."""

from pathlib import Path

import pytest

from tests.methods.small import CLASSES, METHODS, SAMPLES, batch, places, recipe
from tests.params import resolve
from unseen.config.document import Params
from unseen.config.recipe_files import published
from unseen.methods.build import initial_method
from unseen.methods.compatibility import loss_terms, require_compatible
from unseen.runtime.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "method", "changed", "message"),
    [
        ("cub", "irt_r", {"input.size": 232}, "takes images of 224 x 224, input.size is 232"),
        (
            "cub",
            "gsp",
            {},
            r"No library downloads the pretrained weights of bn_inception[^$]*backbone\.checkpoint",
        ),
        ("tokens", "ms", {"backbone.pretrained": True}, "token_embedding has no published weights"),
        ("parts", "multihead", {"backbone.stages": [-9, -1]}, "feature maps"),
        ("parts", "multihead", {"heads": "single"}, r"heads: single: focus needs a fine map of 14 x 14"),
        ("parts", "ms", {"pooling.name": "cls"}, "class token"),
    ],
)
def test_refuses_an_invalid_recipe_without_its_weights(
    dataset: str, method: str, changed: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        require_compatible(resolve(Params(ROOT / "params.yaml"), dataset, method, changed))


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["folder", "tokens", "landmarks"])
def test_every_recipe_builds_a_method(dataset: str) -> None:
    params = Params(ROOT / "params.yaml")
    for method in published("methods"):
        require_compatible(resolve(params, dataset, method, {"backbone.pretrained": False}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "blocks"),
    [
        *((method, {}) for method in METHODS),
        ("baseline", {"memory": {"size": 30}}),
        ("baseline", {"memory": {"size": 30, "with_batch": False}}),
        ("baseline", {"loss": {"name": "snca"}}),
        ("baseline", {"loss": {"name": "proxy_anchor"}}),
        ("crt", {"transform": "average"}),
        ("gsp", {"zero_shot": None}),
        ("irt", {"koleo_weight": 0.0}),
        ("irt", {"loss": {"name": "proxy_anchor"}, "memory": None}),
    ],
)
def test_the_terms_of_a_recipe_are_those_of_its_objective(method: str, blocks: dict[str, object]) -> None:
    settings, (images, labels) = recipe(method, **blocks), batch()
    built = initial_method(settings, CLASSES, SAMPLES, seed=0).train()
    assert loss_terms(settings) == list(built.objective(built(images), labels, places(labels)))
