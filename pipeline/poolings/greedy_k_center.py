"""Greedy k-centre: each next point is the farthest from the chosen points (Gonzalez 1985)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


@torch.no_grad()
def greedy_k_center(
    points: Float[Tensor, "S L"], initial: Float[Tensor, "I L"], count: int
) -> Int[Tensor, "M"]:
    """Positions of `count` of the points in the order of choice, by Euclidean distance.

    The points of `initial` are chosen before the first. Raises ValueError for fewer points than `count`, and
    for an empty initial set.
    """
    if not len(initial) or len(points) < count:
        raise ValueError(f"cannot choose {count} of {len(points)} points with {len(initial)} initial points")
    distance = torch.cdist(points.double(), initial.double()).amin(1)
    chosen = torch.empty(count, dtype=torch.int64, device=points.device)
    for step in range(count):
        farthest = distance.argmax()
        chosen[step] = farthest
        to_chosen = torch.linalg.vector_norm(points.double() - points[farthest].double(), dim=1)
        distance = torch.minimum(distance, to_chosen)
        distance[farthest] = -1  # a point is chosen once, even if all others equal chosen points
    return chosen
