"""Builds the method of a recipe. Equal seeds give equal bytes."""

import torch

from unseen.methods.method import Method
from unseen.methods.settings import Recipe
from unseen.runtime.errors import UserError
from unseen.runtime.parts import load


def build_method(recipe: Recipe, classes: int, samples: int) -> Method:
    """The method of a recipe, with random weights from torch's generator. `classes` and `samples` are the
    numbers of training classes and images.

    Raises UserError for incompatible parts: an unknown network or argument, weights that are missing or of
    another network, a stage that does not exist, pooling `cls` with a network without class token, an input
    size that the network does not accept.
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
            "Set input.size to that size, or change the size of the network with backbone.arguments: "
            "{img_size: ...}.",
        )
    return method


def initial_method(recipe: Recipe, classes: int, samples: int, seed: int) -> Method:
    """The method before its first training step. It depends only on the recipe and `seed`. The state of the
    caller's generator does not change."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_method(recipe, classes, samples)
