"""Whether the parts of a recipe fit together, known in milliseconds and before there are data: its method is
built without memory for its weights."""

import torch

from pipeline.config.methods import Recipe
from pipeline.methods.build import build_method
from pipeline.models.backbone import require_network, require_published
from pipeline.runtime.errors import UserError

_CLASSES, _SAMPLES = 100, 5000  # stand-ins: nothing that can be wrong depends on them


def require_fit(recipe: Recipe) -> None:
    """Raises UserError where `build_method` would: an unknown network, an argument, stage or class token that
    it does not have, an input size that it does not take, pretrained weights that no library fetches. No
    weight is drawn, read or fetched; a checkpoint is not opened.
    """
    backbone = recipe.backbone
    try:
        require_network(backbone.name)
    except ValueError as error:
        raise UserError(str(error), "Correct backbone.name.") from None
    bare = recipe.model_copy(
        update={"backbone": backbone.model_copy(update={"pretrained": False, "checkpoint": None})}
    )
    with torch.device("meta"):
        method = build_method(bare, _CLASSES, _SAMPLES)
    if backbone.pretrained and backbone.checkpoint is None:
        try:
            require_published(method.backbone.network, backbone.name)
        except FileNotFoundError as error:
            raise UserError(
                str(error), "Name the file with backbone.checkpoint, or set backbone.pretrained=false."
            ) from None
