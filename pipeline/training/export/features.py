"""The features of a network before training, without a projection: the floor of a trained method.

    z = v / ||v||    v: mean over the positions of the last map that the method reads, or the class token if
                     the method reads it

The network has its start weights. A head with random weights is left out, because it removes information that
the network has: a random projection to 128 dimensions costs several points of MAP@R. So are normalisation
layers and poolings of the head other than these two.
"""

import json
from pathlib import Path
from typing import Literal

from unseen.methods.artifact import LoadedModel, Weights, load_method
from unseen.methods.build import initial_method
from unseen.methods.settings import BaselineRecipe, IrtRecipe, Recipe, parse_recipe
from unseen.poolings.settings import AveragePooling, ClsPooling

START: Weights = "untrained"  # the weights of the features
Network = Weights | Literal["features"]


def load_network(directory: Path, network: Network) -> LoadedModel:
    """A network of a model directory, in eval mode. Raises UserError as `load_method` does."""
    if network != "features":
        return load_method(directory, network)
    loaded = load_method(directory, START)
    recipe = loaded.recipe
    headless = BaselineRecipe(
        backbone=recipe.backbone.model_copy(
            update={"pretrained": False, "checkpoint": None, "stages": loaded.method.backbone.stages}
        ),
        input=recipe.input,
        pooling=ClsPooling() if _reads_class_token(recipe) else AveragePooling(),
        dim=None,
    )
    method = initial_method(headless, classes=1, samples=1, seed=loaded.seed)
    method.backbone.load_state_dict(loaded.method.backbone.state_dict())
    return LoadedModel(method.eval(), recipe, loaded.dataset, loaded.seed)


def embeds_features(directory: Path) -> bool:
    """Whether the embedding of a model before training is its features: it has no layer after the mean or the
    class token. The model has been loaded before, so its recipe is valid."""
    recipe = parse_recipe(json.loads((directory / "recipe.json").read_text(encoding="utf-8"))["recipe"])
    return (
        isinstance(recipe, BaselineRecipe | IrtRecipe)
        and isinstance(recipe.pooling, AveragePooling | ClsPooling)
        and recipe.dim is None
        and not recipe.projection.layer_norm
    )


def _reads_class_token(recipe: Recipe) -> bool:
    return isinstance(recipe, BaselineRecipe | IrtRecipe) and isinstance(recipe.pooling, ClsPooling)
