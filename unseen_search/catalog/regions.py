"""Which regions of two pictures cause their similarity.

Contribution. The vector of a network that averages the positions p = 1..P of its last feature map f is

    z = u / ||u||,    u = W (1/P sum_p f_p) + b

where layer norms after the average count with their standard deviation as a constant. The similarity of two
pictures with vectors z and z' is then a sum over the positions of either picture:

    z . z' = sum_p c_p,    c_p = (W f_p + b) . z' / (P ||u||)

W f_p . z' / (P ||u||) is the contribution of pipeline/methods/explain/contribution.py. Whether the vector
has this form is measured on each picture: all positions have one gradient, whose direction stays if f is
doubled. Otherwise (a nonlinear layer after the average, GeM, attention pooling) there is no contribution.

Attention. For a network whose vector is the class token: the share of the attention of the class token in
the last block, averaged over the heads. It does not depend on the other picture, and is not a share of the
similarity.
"""

import copy
import math
import threading
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from unseen.data.centre import Region, region_for_testing
from unseen.data.decode import decode
from unseen.data.heif import readable
from unseen.data.loader import normalize
from unseen.data.transforms import crop_for_testing
from unseen.frozen.embedder import Embedder
from unseen.frozen.encoded import Picture, encoded, name_of
from unseen.frozen.network import PretrainedNetwork
from unseen.methods.embedding import EmbeddingMethod
from unseen.methods.explain.class_token import class_token_attention
from unseen.methods.explain.contribution import ConstantNorms
from unseen.methods.method import Method, unit
from unseen.networks.backbone import Features
from unseen.networks.published_network import timm
from unseen.runtime.errors import UserError

EXACT = 1e-4  # largest relative difference of gradients that count as equal
Kind = Literal["contribution", "attention"]


class Regions(NamedTuple):
    """A map over one picture. `box` is the part that the network reads; the map divides it into h x w equal
    cells."""

    map: Float32[np.ndarray, "h w"]
    box: Region


class Explanation(NamedTuple):
    """The regions of two pictures. Contributions of each map sum to `similarity`; the shares of attention of
    each map sum to 1. kind None: not available for this network, and the maps are None."""

    kind: Kind | None
    similarity: float
    first: Regions | None
    second: Regions | None


class Explainer:
    """Explains similarities for the model of an embedder. Calls from several threads wait for each other."""

    def __init__(self, embedder: Embedder) -> None:
        self._input, self._device = embedder.input, embedder.device
        # A copy with hooks of its own for `class_attention`, which shares all tensors with the model.
        shared: dict[int, Any] = {id(tensor): tensor for tensor in embedder.tensors()}
        self._method = copy.deepcopy(embedder.method, shared).to(self._device).eval()
        self._lock = threading.Lock()

    @torch.no_grad()
    def explain(self, first: Picture, second: Picture) -> Explanation:
        """The regions of two pictures. Raises UserError for a picture that cannot be read."""
        loaded = [self._load(picture) for picture in (first, second)]
        with self._lock:
            vectors = [self._method.embed(images)[0] for images, _ in loaded]
            maps = [
                self._contributions(images, other)
                for (images, _), other in zip(loaded, reversed(vectors), strict=True)
            ]
            kind: Kind = "contribution"
            if None in maps:
                kind, maps = "attention", [class_attention(self._method, images) for images, _ in loaded]
        similarity = float(vectors[0] @ vectors[1])
        sides = [None if values is None else math.isqrt(len(values)) for values in maps]
        if any(
            values is None or side is None or side**2 != len(values)
            for values, side in zip(maps, sides, strict=True)
        ):
            return Explanation(None, similarity, None, None)
        first_regions, second_regions = (
            Regions(values.float().reshape(side, side).cpu().numpy(), box)
            for values, side, (_, box) in zip(maps, sides, loaded, strict=True)
            if values is not None and side is not None
        )
        return Explanation(kind, similarity, first_regions, second_regions)

    def _load(self, picture: Picture) -> tuple[Float32[Tensor, "1 3 S S"], Region]:
        """The input of the network, and the part of the picture that it shows."""
        content = encoded(picture)
        try:
            pixels = decode(np.frombuffer(readable(content), np.uint8))
        except ValueError as error:
            raise UserError(
                f"{name_of(picture)} cannot be read as a picture: {error}.",
                "Convert it to JPEG or PNG, or leave it out.",
            ) from None
        planes = np.empty((1, 3, self._input.size, self._input.size), np.uint8)
        crop_for_testing(pixels, self._input, planes[0])
        statistics = self._method.statistics(self._input)
        images = normalize(torch.from_numpy(planes).to(self._device), *statistics)
        return images, region_for_testing(pixels.shape[1], pixels.shape[0], self._input)

    def _contributions(
        self, images: Float32[Tensor, "1 3 S S"], other: Float[Tensor, "D"]
    ) -> Float[Tensor, "P"] | None:
        """c_p of each position; None if the vector is no affine function of their average."""
        head = head_of(self._method)
        features = None if head is None else head.features(images)
        if head is None or features is None:
            return None
        values, slopes, similarity = _first_order(head, features, other)
        if slopes is None or not slopes.any():
            return None  # the vector does not depend on the positions
        _, doubled, _ = _first_order(head, 2 * features, other)
        assert doubled is not None
        slope, rows = slopes.mean(0), torch.cat([slopes, doubled])
        across = rows - torch.outer(rows @ slope, slope) / slope.square().sum()
        if (slopes - slope).norm() > EXACT * slopes.norm() or across.norm() > EXACT * rows.norm():
            return None
        terms = values @ slope
        return terms + (similarity - terms.sum()) / len(terms)  # of the biases, which no position causes


class _Head(NamedTuple):
    """A network in two parts."""

    features: Callable[[Tensor], Tensor | None]  # images -> last features; None: they have another form
    embed: Callable[[Tensor], Float[Tensor, "B D"]]  # last features -> z
    positions: Callable[[Tensor], Float[Tensor, "P L"]]  # of the last features of one picture


def _first_order(
    head: _Head, features: Tensor, other: Float[Tensor, "D"]
) -> tuple[Float[Tensor, "P L"], Float[Tensor, "P L"] | None, Float[Tensor, ""]]:
    """f, d(z . z') / df with constant norms, and z . z'."""
    with torch.enable_grad(), ConstantNorms() as norms:
        (leaf,) = norms.start([features])
        vectors = head.embed(leaf)
    (gradient,) = norms.gradients(vectors, other[None])
    slopes = None if gradient is None else head.positions(gradient)
    return head.positions(features), slopes, vectors.detach()[0] @ other


def _positions_of_map(features: Float[Tensor, "1 L H W"]) -> Float[Tensor, "P L"]:
    return features.flatten(2)[0].T


def head_of(method: Method) -> _Head | None:
    """The parts of a method; None for a method or a network of another form."""
    if isinstance(method, EmbeddingMethod):
        return _Head(
            lambda images: method.backbone(images).maps[-1],
            lambda features: unit(method.head(Features((features,), None)).vector),
            _positions_of_map,
        )
    network: Any = method.network if isinstance(method, PretrainedNetwork) else None
    if not (hasattr(network, "forward_features") and hasattr(network, "forward_head")):
        return None
    has_tokens = hasattr(network, "num_prefix_tokens")

    def features_of(images: Tensor) -> Tensor | None:
        features = network.forward_features(images)
        is_known = isinstance(features, Tensor) and (
            features.ndim == 4 or (features.ndim == 3 and has_tokens)
        )
        return features if is_known else None

    def embed(features: Tensor) -> Tensor:
        vectors = network.forward_head(features)
        return unit(vectors if method.linear is None else vectors @ method.linear.T)

    def positions(features: Tensor) -> Tensor:
        if features.ndim == 3:
            return features[0, network.num_prefix_tokens :]
        if features.shape[1] != network.num_features == features.shape[3]:
            return features.flatten(0, 2)
        return _positions_of_map(features)

    return _Head(features_of, embed, positions)


def class_attention(method: Method, images: Float32[Tensor, "1 3 S S"]) -> Float[Tensor, "P"] | None:
    """The share of each position in the attention of the class token: softmax(q k / sqrt(d)) of the last
    block, averaged over the heads. None for other networks than plain vision transformers with a class
    token."""
    network: Any = method.network if isinstance(method, PretrainedNetwork) else None
    if not isinstance(network, timm.models.VisionTransformer) or network.global_pool != "token":
        return None
    attention: Any = network.blocks[-1].attn
    if type(attention) is not timm.layers.Attention:
        return None
    inputs: list[Tensor] = []
    handle = attention.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
    try:
        network.forward_features(images)
    finally:
        handle.remove()
    return class_token_attention(attention, inputs[-1], network.num_prefix_tokens)[0]
