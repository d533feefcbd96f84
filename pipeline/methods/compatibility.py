"""Checks within milliseconds, without data, that the parts of a recipe are compatible: it builds the method
on torch's meta device, which allocates no weights."""

import torch

from unseen.methods.build import build_method
from unseen.methods.method import Method
from unseen.methods.multihead import Multihead
from unseen.methods.settings import CrtRecipe, Recipe
from unseen.networks.backbone import require_network, require_published
from unseen.networks.token_embedding import TokenEmbedding
from unseen.runtime.errors import UserError

_CLASSES, _SAMPLES = 100, 5000  # arbitrary sizes: no check depends on them


def require_compatible(recipe: Recipe) -> Method:
    """The method of a recipe, without weights: its parameters are on torch's meta device.

    Raises UserError as `build_method` does: for an unknown network, an argument, stage or class token that it
    lacks, an input size that the network does not accept, or pretrained weights that no library downloads. It
    allocates, reads and downloads no weights, and does not open a checkpoint.
    """
    backbone = recipe.backbone
    try:
        if backbone.module is None:
            require_network(backbone.name)
    except ValueError as error:
        raise UserError(str(error), "Correct backbone.name.") from None
    untrained = backbone.model_copy(update={"pretrained": False, "checkpoint": None})
    with torch.device("meta"):
        method = build_method(recipe.model_copy(update={"backbone": untrained}), _CLASSES, _SAMPLES)
    _require_size(method, recipe)
    if backbone.pretrained and backbone.checkpoint is None:
        try:
            require_published(method.backbone.network, backbone.name)
        except FileNotFoundError as error:
            raise UserError(
                str(error), "Name the file with backbone.checkpoint, or set backbone.pretrained=false."
            ) from None
    return method


def loss_terms(recipe: Recipe) -> list[str]:
    """The names of the terms of a method's objective."""
    loss = recipe.loss
    if isinstance(recipe, CrtRecipe):
        terms = [loss.term, f"{loss.term}_auxiliary", "consistency"]
        return terms + ["diversity"] * (recipe.transform == "coded_residual")
    memory = getattr(recipe, "memory", None)
    first, *others = (part.term for part, _ in loss.parts)
    terms = [first, *["memory"] * (memory is not None and memory.with_batch), *others]
    if getattr(recipe, "zero_shot", None) is not None:
        terms.append("zero_shot")
    if getattr(recipe, "koleo_weight", 0.0) > 0:
        terms.append("koleo")
    return terms


def _require_size(method: Method, recipe: Recipe) -> None:
    """Raises UserError if the network cannot embed images of this size, or if its maps do not fit a single
    head."""
    size = recipe.input.size
    if isinstance(method.backbone.network, TokenEmbedding):  # its images contain words, whatever their size
        return
    try:
        with torch.no_grad():
            maps = method.backbone(torch.empty(2, 3, size, size, device="meta")).maps
    except (AssertionError, RuntimeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{recipe.backbone.name} cannot embed images of {size} x {size} pixels: {reason}",
            "Correct input.size.",
        ) from None
    if isinstance(method, Multihead) and method.focus is not None:
        try:
            method.focus(*maps)
        except ValueError as error:
            raise UserError(
                f"heads: single: {error}",
                "Correct output_stride in backbone.arguments, or choose other heads.",
            ) from None
