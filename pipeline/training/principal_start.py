"""A start of heads that loses little of what the network knows: the last linear layer of each head at the
principal directions of what it reads (setting training.start, and the heads of `unseen ladder`).

    W = s V,    b = -s V m        for every layer y = W h + b; m = 0 without a bias, or if not centred

with the inputs H (N, L) of the layer for N training images without augmentation, their mean m, and V (D, L)
the right singular vectors of H - m with the D largest singular values; rows beyond their number are 0. If a
layer computes the outputs of several branches, each output has such directions. s is 1 for one layer. With
several layers it gives their outputs one mean norm, so that no part of a concatenated embedding outweighs
another.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unseen.data.loader import EvalLoader
from unseen.data.seeding import named_generator
from unseen.data.shards import Shards
from unseen.methods.head import Linear
from unseen.methods.method import Method
from unseen.methods.settings import Recipe
from unseen.networks.coded_residual import CodedResidualBranches, CodedResidualTransform
from unseen.poolings.attribute_average import AttributeAverage
from unseen.poolings.map_pooling import Transform
from unseen.poolings.projected_gsp import ProjectedGsp
from unseen.runtime.errors import UserError
from unseen.training.step import to_pixels

IMAGES = 640
BATCH = 64  # images at once
_WITH_TRANSFORM = (ProjectedGsp, AttributeAverage)


class _Layer(NamedTuple):
    """A last layer: views of its parameters, and what it reads."""

    weight: Float[Tensor, "D L"]
    bias: Float[Tensor, "D"] | None
    inputs: Float[Tensor, "N L"]
    parts: tuple[int, ...]  # dimensions of the outputs that it computes, D in all


def start_at_principal_directions(
    method: Method, recipe: Recipe, shards: Shards, rows: Int[np.ndarray, "n"]
) -> None:
    """Changes the last linear layer of each head of `method`. rows: of training images, of which at most
    IMAGES are read, the same ones for every seed. A method without such a layer does not change.

    Raises UserError for a pooling that contains a transform, except GSP and its variants.
    """
    known = [module.transform for module in method.modules() if isinstance(module, _WITH_TRANSFORM)]
    if any(isinstance(module, Transform) and module not in known for module in method.modules()):
        raise UserError(
            "training.start is principal, which the transform of this pooling lacks.",
            "Set training.start to random, or choose another pooling.",
        )
    read = np.sort(named_generator(0, "principal start").permutation(rows)[:IMAGES])
    loader = EvalLoader(shards, read, recipe.input, BATCH, 1)
    set_principal_directions(method, (to_pixels(images, method, recipe) for images, _ in loader))


@torch.no_grad()
def set_principal_directions(method: Method, batches: Iterable[Tensor], centred: bool = True) -> None:
    """Changes the last linear layer of each head of `method`, except unknown transforms. batches: of training
    images, as the method reads them."""
    layers = _layers(method, batches)
    starts = [_start(layer, centred) for layer in layers]
    norms = [
        float((layer.inputs @ weight.T + bias).norm(dim=1).mean())
        for layer, (weight, bias) in zip(layers, starts, strict=True)
    ]
    for layer, (weight, bias), norm in zip(layers, starts, norms, strict=True):
        scale = 1.0 if len(layers) == 1 else float(np.mean(norms)) / norm
        layer.weight.copy_(scale * weight)
        if layer.bias is not None:
            layer.bias.copy_(scale * bias)


def _start(layer: _Layer, centred: bool) -> tuple[Float[Tensor, "D L"], Float[Tensor, "D"]]:
    """V and -V m of a layer."""
    has_mean = centred and layer.bias is not None
    mean = layer.inputs.mean(0) if has_mean else torch.zeros_like(layer.inputs[0])
    directions = torch.linalg.svd(layer.inputs - mean, full_matrices=False).Vh
    weight = torch.zeros_like(layer.weight)
    for part in weight.split(layer.parts):
        known = min(len(part), len(directions))
        part[:known] = directions[:known]
    return weight, -(weight @ mean)


def _layers(method: Method, batches: Iterable[Tensor]) -> list[_Layer]:
    inputs: dict[nn.Module, list[Tensor]] = {}
    parts: dict[nn.Module, tuple[int, ...]] = {}
    for module in method.modules():
        if isinstance(module, CodedResidualTransform):
            inputs[module] = []
        elif isinstance(module, _WITH_TRANSFORM) and isinstance(module.transform, Transform):
            inputs[module.transform] = []
        elif isinstance(module, Linear) and module.linear is not None:
            inputs[module.linear] = []
        elif isinstance(module, CodedResidualBranches) and module.shared:
            parts[module.transforms[0]] = module.dims

    def keep(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        inputs[module].append(_inputs(module, arguments[0]))

    hooks = [module.register_forward_pre_hook(keep) for module in inputs]
    method.eval()
    method.training = True  # of the method alone: all branches run, and batch norm has its running statistics
    for images in batches:
        method(images)
    for hook in hooks:
        hook.remove()
    method.train()
    layers = []
    for module, batches in inputs.items():
        weight, bias = _parameters(module)
        layers.append(_Layer(weight, bias, torch.cat(batches), parts.get(module, (len(weight),))))
    return layers


def _inputs(module: nn.Module, features: Float[Tensor, "B L ..."]) -> Float[Tensor, "B _"]:
    """What the last layer reads. The mean of a map, of which a linear map is the mean of its outputs."""
    if isinstance(module, CodedResidualTransform):
        return module.hidden(features)
    return features.flatten(2).mean(2) if isinstance(module, Transform) else features


def _parameters(module: nn.Module) -> tuple[Float[Tensor, "D L"], Float[Tensor, "D"] | None]:
    """Views of weight and bias."""
    if isinstance(module, CodedResidualTransform):
        return module.second_weight.flatten(0, 1).T, module.second_bias
    assert isinstance(module, Transform | nn.Linear)
    return module.weight.flatten(1), module.bias
