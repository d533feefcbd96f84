"""Checks within milliseconds, without data, that the parts of a recipe are compatible: it builds the method
on torch's meta device, which allocates no weights."""

import torch

from pipeline.config.methods import Recipe
from pipeline.methods.build import build_method
from pipeline.models.backbone import require_network, require_published
from pipeline.runtime.errors import UserError

_CLASSES, _SAMPLES = 100, 5000  # arbitrary sizes: no check depends on them


def require_compatible(recipe: Recipe) -> int:
    """The dimension D of the embeddings of a recipe.

    Raises UserError as `build_method` does: for an unknown network, an argument, stage or class token that it
    lacks, an input size that it does not accept, or pretrained weights that no library downloads. It
    allocates, reads and downloads no weights, and does not open a checkpoint.
    """
    backbone = recipe.backbone
    try:
        require_network(backbone.name)
    except ValueError as error:
        raise UserError(str(error), "Correct backbone.name.") from None
    untrained = backbone.model_copy(update={"pretrained": False, "checkpoint": None})
    with torch.device("meta"):
        method = build_method(recipe.model_copy(update={"backbone": untrained}), _CLASSES, _SAMPLES)
    if backbone.pretrained and backbone.checkpoint is None:
        try:
            require_published(method.backbone.network, backbone.name)
        except FileNotFoundError as error:
            raise UserError(
                str(error), "Name the file with backbone.checkpoint, or set backbone.pretrained=false."
            ) from None
    return method.dim
