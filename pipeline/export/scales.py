"""One descriptor of a picture at several scales, as landmarks are searched for.

    z = v / ||v||        v_i = ( 1/S sum_s z_si^p )^(1/p)

z_s is the unit descriptor of the image at scale s: what the recipe's `input` made of the picture, resized
bilinearly (no antialiasing) to floor(s H) pixels a side. p is the exponent of a generalized mean that is the
embedding as it stands; 1 where another pooling made it or a layer follows. Attributes are averaged. Source:
released code of Radenovic et al. 2018 (cnnimageretrieval-pytorch, networks/imageretrievalnet.py,
examples/test.py), with scales 1, 2^-1/2, 1/2. Deviations: pictures keep their shape there and are squares
here; a single scale, which it passes over, is taken at its word; powers and means are of float64, so that no
exponent underflows.

Training, validation and the members of MLRC ensembles look at one scale: they choose an iterate, and the
choice is not worth the time of several.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from pipeline.methods.artifact import LoadedModel
from pipeline.methods.embedding import EmbeddingMethod
from pipeline.methods.head import Linear
from pipeline.methods.method import Method, Outputs, unit
from pipeline.models.token_embedding import TokenEmbedding
from pipeline.pooling.gem import Gem
from pipeline.pooling.second_order import SecondOrder
from pipeline.runtime.errors import UserError

SINGLE_SCALE = (1.0,)


def describe(method: Method, images: Float[Tensor, "B 3 H H"], scales: tuple[float, ...]) -> Outputs:
    """Unit vectors, and attributes where the method has them, of normalised images. (1,): exactly what the
    method says of them."""
    found = [method.describe(_resized(images, side)) for side in sides(images.shape[-1], scales)]
    if len(found) == 1:
        return found[0]
    p = exponent(method)
    vectors = torch.stack([one.embedding for one in found]).double()
    attributes = [one.attributes.double() for one in found if one.attributes is not None]
    return Outputs(
        unit(vectors.pow(p).mean(0).pow(1 / p)).float(),
        attributes=torch.stack(attributes).mean(0).float() if attributes else None,
    )


def exponent(method: Method) -> float:
    """p: see above."""
    if not isinstance(method, EmbeddingMethod):
        return 1.0
    pooling, behind = method.head.pooling, method.head.projection
    pooling = pooling.gem if isinstance(pooling, SecondOrder) else pooling
    changed = isinstance(behind, Linear) and (behind.linear is not None or behind.layer_norm)
    return pooling.exponent.item() if isinstance(pooling, Gem) and not changed else 1.0


def sides(size: int, scales: tuple[float, ...]) -> list[int]:
    """Pixels of a side at each scale, of images of `size` pixels."""
    return [int(size * scale) for scale in scales]


@torch.inference_mode()
def check_scales(loaded: LoadedModel, scales: tuple[float, ...]) -> None:
    """Raises UserError where a model cannot be shown its images at these scales, by trying one of each.

    So it is where a network takes one size alone, where its pixels are no picture, where two scales make the
    same image, and where an image would be smaller than what one position of the last map stands for.
    """
    if scales == SINGLE_SCALE:
        return
    method, size, name = loaded.method, loaded.recipe.input.size, loaded.recipe.backbone.name
    said = f"export.scales: {name} cannot embed images of {size} x {size} at scale"
    remedy = "Leave export.scales out, or take others."
    if isinstance(method.backbone.network, TokenEmbedding):
        raise UserError(
            f"{said}s {_listed(scales)}: its pixels are numbers of tokens, not a picture.",
            "Leave export.scales out.",
        )
    taken: dict[int, float] = {}
    for side, scale in zip(sides(size, scales), scales, strict=True):
        if side in taken:
            raise UserError(
                f"export.scales: {taken[side]:g} and {scale:g} both make images of {side} x {side} of "
                f"{size} x {size}.",
                remedy,
            )
        taken[side] = scale
    if method.backbone.input_size is not None and set(taken) != {size}:
        raise UserError(
            f"{said}s {_listed(scales)}: it takes that size alone.",
            "Leave export.scales out. A vision transformer whose recipe has backbone.arguments: "
            "{dynamic_img_size: true} interpolates its positions.",
        )
    stride = size / method.backbone(torch.zeros(1, 3, size, size)).maps[-1].shape[-1]
    for side, scale in taken.items():
        if side < stride:
            raise UserError(
                f"{said} {scale:g}: they are {side} pixels wide, and a position of its last map stands for "
                f"{stride:.0f}.",
                remedy,
            )
        try:
            method.describe(torch.zeros(1, 3, side, side))
        except (AssertionError, RuntimeError, ValueError) as error:
            raise UserError(
                f"{said} {scale:g}, {side} x {side}: {str(error).splitlines()[0]}", remedy
            ) from error


def _resized(images: Float[Tensor, "B 3 H H"], side: int) -> Float[Tensor, "B 3 h h"]:
    return (
        images
        if side == images.shape[-1]
        else functional.interpolate(images, (side, side), mode="bilinear", align_corners=False)
    )


def _listed(scales: tuple[float, ...]) -> str:
    return ", ".join(f"{scale:g}" for scale in scales)
