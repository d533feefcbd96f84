"""SoftTriple equals its definition and, without its second term, pytorch-metric-learning."""

import math

import pytest
import torch
from pytorch_metric_learning.losses import SoftTripleLoss
from torch import Tensor
from torch.nn.functional import normalize

from unseen.losses.soft_triple import SoftTriple

LABELS = [0, 2, 2, 1, 0, 3]


def vectors() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return normalize(torch.randn(len(LABELS), 5, dtype=torch.float64, generator=generator), dim=1)


def definition(loss: SoftTriple, z: Tensor, classes: int) -> float:
    centers = normalize(loss.proxies.detach(), dim=1).reshape(classes, loss.centers, -1)
    total = spread = 0.0
    for row, label in zip(z, LABELS, strict=True):
        scores = []
        for c in range(classes):
            cosines = [float(row @ w) for w in centers[c]]
            shares = [math.exp(s / loss.temperature) for s in cosines]
            scores.append(sum(e * s for e, s in zip(shares, cosines, strict=True)) / sum(shares))
        powers = [math.exp(loss.scale * (s - loss.margin * (c == label))) for c, s in enumerate(scores)]
        total -= math.log(powers[label] / sum(powers)) / len(LABELS)
    for w in centers:
        spread += sum(
            math.sqrt(2 + 1e-5 - 2 * float(w[t] @ w[s])) for t in range(len(w)) for s in range(t + 1, len(w))
        )
    return total + loss.center_weight * spread / max(classes * loss.centers * (loss.centers - 1), 1)


@pytest.mark.parametrize("centers", [1, 2, 4])
def test_value(centers: int) -> None:
    torch.manual_seed(1)
    loss = SoftTriple(4, 5, 20.0, 0.1, 0.01, centers, 0.2).double()
    value = loss(vectors(), torch.tensor(LABELS)).item()
    assert value == pytest.approx(definition(loss, vectors(), 4), rel=1e-12)


def test_pytorch_metric_learning_agrees_without_the_term_of_the_centers() -> None:
    loss = SoftTriple(4, 5, 20.0, 0.1, 0.01, 3, 0.0).double()
    peer = SoftTripleLoss(4, 5, centers_per_class=3, la=20, gamma=0.1, margin=0.01).double()
    peer.fc.data = loss.proxies.detach().T.clone()
    own, other = (vectors().requires_grad_() for _ in range(2))
    values = loss(own, torch.tensor(LABELS)), peer(other, torch.tensor(LABELS))
    for value in values:
        value.backward()
    torch.testing.assert_close(*values)
    # PML's gradient is that of vectors of any length: compare along the sphere.
    flat = own.grad - (own.grad * own).sum(1, keepdim=True) * own
    torch.testing.assert_close(flat.detach(), other.grad)
    torch.testing.assert_close(loss.proxies.grad.T, peer.fc.grad)


def test_refuses_a_temperature_of_zero() -> None:
    with pytest.raises(ValueError, match="positive scale and temperature"):
        SoftTriple(4, 5, 20.0, 0.0, 0.01, 3, 0.2)
