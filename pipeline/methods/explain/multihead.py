"""Multi-Head: the second-order attention of positions and points (sec. 3.2, eq. 1, fig. 6).

A = softmax(zeta f(x)^T g(x)), rows sum to 1        A_ij: attention of position i to position j
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from unseen.methods.explain.weights import PositionWeights
from unseen.methods.multihead import Multihead
from unseen.networks.attention import SecondOrderAttention


def attention(block: SecondOrderAttention, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B P P"]:
    """A, with the attending position first."""
    f, g = (branch(features).flatten(2) for branch in (block.f, block.g))
    return torch.softmax(block.scale * (f.transpose(1, 2) @ g), dim=-1)


def of_point(
    maps: Float[Tensor, "B P P"], height: int, width: int, point: Float[Tensor, "B 2"]
) -> Float[Tensor, "B P"]:
    """The attention of the position that contains `point`, x and y as shares of width and height."""
    column = (point[:, 0] * width).long().clamp(0, width - 1)
    row = (point[:, 1] * height).long().clamp(0, height - 1)
    return maps[torch.arange(len(maps), device=maps.device), row * width + column]


@torch.no_grad()
def position_weights(method: Multihead, images: Float[Tensor, "B 3 H W"]) -> list[PositionWeights]:
    """For each map, the attention that a position receives, 1/P sum_i A_ij; then the attention of four points
    in each map.

    The points are positions of the last map, ordered by the attention that they receive: the first, the last,
    and those at one and two thirds. Fig. 6 of the paper shows four points that the authors chose. Empty
    without attention.
    """
    maps = method.backbone(images).maps
    if method.focus is not None:
        maps = (method.focus(*maps),)
    attended = [
        _Attention(name, attention(head[0], features), *features.shape[2:])  # type: ignore[index]
        for (name, head), features in zip(method.heads.items(), maps, strict=True)
        if isinstance(head[0], SecondOrderAttention)  # type: ignore[index]
    ]
    if not attended:
        return []
    received = [
        PositionWeights(f"attention, {each.head} map", each.weights.mean(1), each.height, each.width)
        for each in attended
    ]
    last = received[-1]
    order, count = last.weights.argsort(dim=1, descending=True, stable=True), last.weights.shape[1]
    ranks = (0, count - 1, count // 3, 2 * count // 3)
    points = [_center(order[:, rank], last.height, last.width) for rank in ranks]
    of_points = [
        PositionWeights(
            f"attention of point {number}, {each.head} map",
            of_point(each.weights, each.height, each.width, point),
            each.height,
            each.width,
            detail=True,
            point=point,
        )
        for number, point in enumerate(points, 1)
        for each in attended
    ]
    return received[::-1] + of_points


class _Attention(NamedTuple):
    head: str
    weights: Float[Tensor, "B P P"]
    height: int
    width: int


def _center(position: Tensor, height: int, width: int) -> Float[Tensor, "B 2"]:
    """The centre of positions of a map, x and y as shares of width and height."""
    return torch.stack([(position % width + 0.5) / width, (position // width + 0.5) / height], 1).float()
