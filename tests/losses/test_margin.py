"""The margin loss equals its definition, and the mean of pytorch-metric-learning over many draws."""

import math

import pytest
import torch
from pytorch_metric_learning.losses import MarginLoss
from pytorch_metric_learning.miners import DistanceWeightedMiner
from torch import Tensor
from torch.nn.functional import normalize

from unseen.losses.margin import Margin

LABELS = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]


def vectors(spread: float = 0.7) -> Tensor:
    """Near enough that every anchor has a negative within the boundary and the margin."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(len(LABELS), 6, dtype=torch.float64, generator=generator)
    return normalize(1 + spread * rows, dim=1)


def definition(z: Tensor, margin: float, boundary: float, cutoff: float) -> Tensor:
    """Pair by pair; autograd gives its gradient, with the weights as constants."""
    total, terms, dim = z.sum() * 0, 0, z.shape[1]
    for i, label in enumerate(LABELS):
        others = [j for j in range(len(LABELS)) if j != i]
        distance = {j: (z[i] - z[j]).norm() for j in others}
        positives = [j for j in others if LABELS[j] == label]
        near = [j for j in others if LABELS[j] != label and distance[j] < boundary + margin]
        for p in positives:
            cost = distance[p] - boundary + margin
            total, terms = (total + cost, terms + 1) if cost > 0 else (total, terms)
        rarity = {}
        for n in near:
            d = max(float(distance[n]), cutoff)
            rarity[n] = d ** (2 - dim) * (1 - d * d / 4) ** ((3 - dim) / 2)
        for n in near:
            share = len(positives) * rarity[n] / sum(rarity.values())
            total = total + share * (boundary - distance[n] + margin)
        terms += len(positives) if near else 0
    return total / max(terms, 1)


@pytest.mark.parametrize("spread", [0.7, 3.0])
@pytest.mark.parametrize("settings", [(0.2, 1.2, 0.5), (0.1, 0.6, 0.2)])
def test_value_and_gradient(settings: tuple[float, float, float], spread: float) -> None:
    own, other = (vectors(spread).requires_grad_() for _ in range(2))
    value, expected = Margin(*settings)(own, torch.tensor(LABELS)), definition(other, *settings)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(own.grad, other.grad)


def test_it_is_the_mean_over_the_draws_of_pytorch_metric_learning() -> None:
    z, labels = vectors(), torch.tensor(LABELS)
    torch.manual_seed(0)
    miner, peer = DistanceWeightedMiner(0.5, 1.4), MarginLoss(margin=0.2, beta=1.2)
    draws = torch.stack([peer(z, labels, miner(z, labels)) for _ in range(400)])
    error = float(draws.std()) / math.sqrt(len(draws))
    assert float(draws.mean()) == pytest.approx(float(Margin(0.2, 1.2, 0.5)(z, labels)), abs=4 * error)
    assert error < 0.01


def test_refuses_a_boundary_beyond_the_largest_distance() -> None:
    with pytest.raises(ValueError, match=r"margin \+ boundary < 2"):
        Margin(0.2, 1.8, 0.5)
