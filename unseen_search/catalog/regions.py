"""Which regions of two pictures cause their similarity.

Contribution. The vector of a network that averages the positions p = 1..P of its last feature map is

    z = u / ||u||,    u = 1/P sum_p v_p,    v_p = h(f_p)

with h affine: a linear layer, or a layer norm whose standard deviation is that of the averaged features. The
similarity of two pictures with vectors z and z' is then a sum over the positions of either picture:

    z . z' = sum_p c_p,    c_p = v_p . z' / (P ||u||)

Whether h is affine is measured on each picture: the mean of h(f_p) must be u. Otherwise (a nonlinear layer
after the average, GeM, attention pooling) there is no contribution.

Attention. For a network whose vector is the class token: the share of the attention of the class token in
the last block, averaged over the heads. It does not depend on the other picture, and is not a share of the
similarity.
"""

import contextlib
import copy
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from unseen.data.decode import decode
from unseen.data.heif import readable
from unseen.data.loader import normalize
from unseen.data.transforms import Region, crop_for_testing, region_for_testing
from unseen.frozen.embedder import Embedder, Picture, encoded, name_of
from unseen.frozen.network import PretrainedNetwork
from unseen.methods.embedding import EmbeddingMethod
from unseen.methods.explain.class_token import class_token_attention
from unseen.methods.method import Method
from unseen.networks.backbone import Features
from unseen.networks.published_network import timm
from unseen.runtime.errors import UserError

EXACT = 1e-4  # largest relative error of the sum over positions
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


class _Head(NamedTuple):
    """The last features of a picture, and the rest of the network."""

    features: Tensor
    at_positions: Float[Tensor, "P ..."]  # each position as the features of a picture of one position
    rest: Callable[[Tensor], Float[Tensor, "b D"]]


class Explainer:
    """Explains similarities for the model of an embedder. Calls from several threads wait for each other."""

    def __init__(self, embedder: Embedder) -> None:
        self._input, self._device = embedder.input, embedder.device
        # A copy with hooks of its own, which shares all tensors with the model.
        shared: dict[int, Any] = {id(tensor): tensor for tensor in embedder.tensors()}
        self._method = copy.deepcopy(embedder.method, shared).to(self._device).eval()
        self._norms = _Norms(self._method)
        self._lock = threading.Lock()

    @torch.inference_mode()
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
        """c_p of each position; None if their sum is not the similarity."""
        head = head_of(self._method, images)
        if head is None:
            return None
        with self._norms.recorded():
            pooled = head.rest(head.features)[0]
        with self._norms.frozen():
            vectors = head.rest(head.at_positions)
        if float((vectors.mean(0) - pooled).norm()) > EXACT * float(pooled.norm()):
            return None
        if len(vectors) > 1 and float((vectors - vectors[:1]).norm()) <= EXACT * float(vectors.norm()):
            return None  # the vector does not depend on the positions
        return vectors @ other / (len(vectors) * pooled.norm())


class _Norms:
    """Layer norms of a module, whose standard deviations can be recorded in one pass and used in another."""

    def __init__(self, module: nn.Module) -> None:
        self._mode = ""
        self._deviation: dict[nn.Module, Tensor] = {}
        for part in module.modules():
            if isinstance(part, nn.LayerNorm) and len(part.normalized_shape) == 1:
                part.register_forward_hook(self._hook)

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        self._deviation.clear()
        with self._in_mode("record"):
            yield

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        with self._in_mode("freeze"):
            yield

    @contextlib.contextmanager
    def _in_mode(self, mode: str) -> Iterator[None]:
        self._mode = mode
        try:
            yield
        finally:
            self._mode = ""

    def _hook(self, norm: Any, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        """Records the deviation of a single vector, or replaces the output by that with this deviation."""
        if not self._mode:
            return None
        (values,) = arguments
        axis = 1 if isinstance(norm, timm.layers.LayerNorm2d) else -1
        if self._mode == "record":
            deviation = (values.var(axis, unbiased=False, keepdim=True) + norm.eps).sqrt()
            if deviation.numel() == 1:  # of averaged features, not of positions
                self._deviation[norm] = deviation.reshape(())
            return None
        if norm not in self._deviation:
            return None
        shape = [1] * values.ndim
        shape[axis] = -1
        normalised = (values - values.mean(axis, keepdim=True)) / self._deviation[norm]
        weight = 1.0 if norm.weight is None else norm.weight.reshape(shape)
        bias = 0.0 if norm.bias is None else norm.bias.reshape(shape)
        return normalised * weight + bias


def head_of(method: Method, images: Float32[Tensor, "1 3 S S"]) -> _Head | None:
    """The features of a picture and the rest of the network up to u; None for a method or a network of
    another form."""
    if isinstance(method, EmbeddingMethod):
        features = method.backbone(images).maps[-1]
        return _Head(
            features,
            features.flatten(2)[0].T[:, :, None, None],
            lambda positions: method.head(Features((positions,), None)).vector,
        )
    if not isinstance(method, PretrainedNetwork):
        return None
    network: Any = method.network
    if not (hasattr(network, "forward_features") and hasattr(network, "forward_head")):
        return None
    features = network.forward_features(images)
    if not isinstance(features, Tensor):
        return None

    def rest(positions: Tensor) -> Tensor:
        vectors: Tensor = network.forward_head(positions)
        return vectors if method.linear is None else vectors @ method.linear.T

    if features.ndim == 4 and features.shape[1] != network.num_features == features.shape[3]:
        return _Head(features, features.flatten(0, 2)[:, None, None, :], rest)
    if features.ndim == 4:
        return _Head(features, features.flatten(2)[0].T[:, :, None, None], rest)
    if features.ndim == 3 and hasattr(network, "num_prefix_tokens"):
        prefix = features[:, : network.num_prefix_tokens]
        tokens = features[0, network.num_prefix_tokens :, None]
        return _Head(features, torch.cat([prefix.expand(len(tokens), -1, -1), tokens], 1), rest)
    return None


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
