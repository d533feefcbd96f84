"""From a recipe to a method, the same bytes for the same seed."""

import torch

from pipeline.config.methods import Recipe
from pipeline.methods.method import Method
from pipeline.methods.modules import load
from pipeline.runtime.errors import UserError


def build_method(recipe: Recipe, classes: int, samples: int) -> Method:
    """The method of a recipe, its random weights drawn from torch's generator. `classes` and `samples`:
    training classes and training images.

    Raises UserError where the parts do not fit: an unknown network or argument, weights that are not there or
    of another network, a stage that does not exist, a class token asked of a network without one, an input
    size that the network does not take.
    """
    try:
        method: Method = load(recipe.module)(recipe, classes, samples)
    except FileNotFoundError as error:
        raise UserError(
            f"Method {recipe.method}: {error}",
            "Name the file with backbone.checkpoint, or set backbone.pretrained=false.",
        ) from error
    except ValueError as error:
        raise UserError(
            f"Method {recipe.method}: {error}",
            "Correct the recipe of that method or data set in params.yaml.",
        ) from error
    needed = method.backbone.input_size
    if needed is not None and needed != (recipe.input.size, recipe.input.size):
        raise UserError(
            f"Method {recipe.method}: {recipe.backbone.name} takes images of {needed[0]} x {needed[1]}, "
            f"input.size is {recipe.input.size}.",
            "Set input.size to that, or the network's size with backbone.arguments: {img_size: ...}.",
        )
    return method


def initial_method(recipe: Recipe, classes: int, samples: int, seed: int) -> Method:
    """The method before its first training step, drawn from `seed` alone. The generator of the caller is left
    as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_method(recipe, classes, samples)
