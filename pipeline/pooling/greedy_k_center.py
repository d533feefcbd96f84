"""Greedy k-centre: the points that cover a set best, each next one being the farthest from those chosen (Gonzalez 1985)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


@torch.no_grad()
def greedy_k_center(points: Float[Tensor, "S L"], initial: Float[Tensor, "I L"], count: int) -> Int[Tensor, "M"]:
    """Positions of `count` of the points, in order of choice; distances are Euclidean and the initial set counts as already chosen.

    Raises ValueError where there are fewer points than asked for, or no initial set.
    """
    if not len(initial) or len(points) < count:
        raise ValueError(f"cannot choose {count} centres among {len(points)} points with {len(initial)} initial ones")
    distance = torch.cdist(points.double(), initial.double()).amin(1)
    chosen = torch.empty(count, dtype=torch.int64, device=points.device)
    for step in range(count):
        farthest = distance.argmax()
        chosen[step] = farthest
        beside = torch.linalg.vector_norm(points.double() - points[farthest].double(), dim=1)
        distance = torch.minimum(distance, beside)
        distance[farthest] = -1  # a point is chosen once, even where all others coincide with chosen ones
    return chosen
