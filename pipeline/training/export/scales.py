"""One descriptor of an image from several scales, as in landmark retrieval.

    z = v / ||v||        v_i = ( 1/S sum_s z_si^p )^(1/p)

z_s is the unit descriptor at scale s: the image after the recipe's `input` transform is resized bilinearly
(no antialiasing) to floor(s H) pixels per side. p is the exponent of the pooling if it is a generalized mean
and no layer follows, else 1. Attributes are averaged. Source: released code of Radenovic et al. 2018
(cnnimageretrieval-pytorch, networks/imageretrievalnet.py, examples/test.py), with scales 1, 2^-1/2, 1/2.
Deviations: there images keep their aspect ratio, here they are squares; there a single scale is ignored, here
it is applied; here powers and means use float64, so that powers do not underflow.

Training, validation and the members of MLRC ensembles use one scale: they only select an iterate, and several
scales would take much more time.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from unseen.methods.artifact import LoadedModel
from unseen.methods.embedding import EmbeddingMethod
from unseen.methods.head import Linear
from unseen.methods.method import Method, Outputs, unit
from unseen.networks.token_embedding import TokenEmbedding
from unseen.poolings.gem import Gem
from unseen.poolings.second_order import SecondOrder
from unseen.runtime.errors import UserError

SINGLE_SCALE = (1.0,)


def describe(method: Method, images: Float[Tensor, "B 3 H H"], scales: tuple[float, ...]) -> Outputs:
    """Unit vectors, and attributes if the method has them, of normalised images. With a single scale the
    result is that of `method.describe`."""
    outputs = [method.describe(_resized(images, side)) for side in sides(images.shape[-1], scales)]
    if len(outputs) == 1:
        return outputs[0]
    p = exponent(method)
    vectors = torch.stack([scale.embedding for scale in outputs]).double()
    attributes = [scale.attributes.double() for scale in outputs if scale.attributes is not None]
    mean_attributes = torch.stack(attributes).mean(0).float() if attributes else None
    return Outputs(unit(vectors.pow(p).mean(0).pow(1 / p)).float(), attributes=mean_attributes)


def exponent(method: Method) -> float:
    """The exponent p of the mean over scales (formula above)."""
    if not isinstance(method, EmbeddingMethod):
        return 1.0
    pooling, projection = method.head.pooling, method.head.projection
    pooling = pooling.gem if isinstance(pooling, SecondOrder) else pooling
    projected = isinstance(projection, Linear) and (projection.linear is not None or projection.layer_norm)
    return pooling.exponent.item() if isinstance(pooling, Gem) and not projected else 1.0


def sides(size: int, scales: tuple[float, ...]) -> list[int]:
    """The side in pixels at each scale, for images of `size` pixels."""
    return [int(size * scale) for scale in scales]


@torch.inference_mode()
def check_scales(loaded: LoadedModel, scales: tuple[float, ...]) -> None:
    """Raises UserError if a model cannot embed its images at these scales. It tries one image per scale.

    This is the case if the network accepts only one size, if its pixels are not colours, if two scales give
    the same image size, or if an image would be smaller than the area of one position of the last map.
    """
    if scales == SINGLE_SCALE:
        return
    method, size, name = loaded.method, loaded.recipe.input.size, loaded.recipe.backbone.name
    problem = f"export.scales: {name} cannot embed images of {size} x {size} at scale"
    remedy = "Remove export.scales, or change its values."
    if isinstance(method.backbone.network, TokenEmbedding):
        raise UserError(
            f"{problem}s {_listed(scales)}: its pixels are indices of tokens, which cannot be interpolated.",
            "Remove export.scales.",
        )
    scale_of: dict[int, float] = {}  # side -> scale
    for side, scale in zip(sides(size, scales), scales, strict=True):
        if side in scale_of:
            raise UserError(
                f"export.scales: {scale_of[side]:g} and {scale:g} both resize images of {size} x {size} to "
                f"{side} x {side}.",
                remedy,
            )
        scale_of[side] = scale
    if method.backbone.input_size is not None and set(scale_of) != {size}:
        raise UserError(
            f"{problem}s {_listed(scales)}: it accepts only that size.",
            "Remove export.scales. A vision transformer whose recipe has backbone.arguments: "
            "{dynamic_img_size: true} interpolates its positions.",
        )
    stride = size / method.backbone(torch.zeros(1, 3, size, size)).maps[-1].shape[-1]
    for side, scale in scale_of.items():
        if side < stride:
            raise UserError(
                f"{problem} {scale:g}: they are {side} pixels wide, and a position of its last map covers "
                f"{stride:.0f}.",
                remedy,
            )
        try:
            method.describe(torch.zeros(1, 3, side, side))
        except (AssertionError, RuntimeError, ValueError) as error:
            message = str(error).splitlines()[0]
            raise UserError(f"{problem} {scale:g}, {side} x {side}: {message}", remedy) from error


def _resized(images: Float[Tensor, "B 3 H H"], side: int) -> Float[Tensor, "B 3 h h"]:
    if side == images.shape[-1]:
        return images
    return functional.interpolate(images, (side, side), mode="bilinear", align_corners=False)


def _listed(scales: tuple[float, ...]) -> str:
    return ", ".join(f"{scale:g}" for scale in scales)
