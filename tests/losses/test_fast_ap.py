"""FastAP equals its definition and pytorch-metric-learning, in value and gradient."""

import pytest
import torch
from pytorch_metric_learning.losses import FastAPLoss
from torch import Tensor
from torch.nn.functional import normalize

from unseen.losses.fast_ap import FastAp


def batch(labels: list[int]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(len(labels), 4, dtype=torch.float64, generator=generator)
    return normalize(rows, dim=1), torch.tensor(labels)


def definition(z: Tensor, labels: list[int], bins: int) -> float:
    """The histograms are lists; an anchor without positives does not count."""
    losses = []
    for i, label in enumerate(labels):
        of_positives, of_all = [0.0] * (bins + 1), [0.0] * (bins + 1)
        others = [j for j in range(len(labels)) if j != i]
        for j in others:
            for edge in range(bins + 1):
                share = max(0.0, 1 - abs(float((z[i] - z[j]).square().sum()) * bins / 4 - edge))
                of_all[edge] += share
                of_positives[edge] += share * (labels[j] == label)
        positives = sum(labels[j] == label for j in others)
        if positives:
            terms = (
                of_positives[edge] * sum(of_positives[: edge + 1]) / sum(of_all[: edge + 1])
                for edge in range(bins + 1)
                if of_positives[edge]
            )
            losses.append(1 - sum(terms) / positives)
    return sum(losses) / len(losses)


@pytest.mark.parametrize("bins", [1, 10, 40])
@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 1, 2], [0, 0, 0, 0]])
def test_value(labels: list[int], bins: int) -> None:
    z, classes = batch(labels)
    assert float(FastAp(bins)(z, classes)) == pytest.approx(definition(z, labels, bins), rel=1e-10)


def test_pytorch_metric_learning_agrees() -> None:
    z, labels = batch([c for c in range(6) for _ in range(4)] + [7])
    own, other = z.clone().requires_grad_(), z.clone().requires_grad_()
    values = FastAp(10)(own, labels), FastAPLoss(10)(other, labels)
    for value in values:
        value.backward()
    torch.testing.assert_close(*values)
    # PML's gradient is that of vectors of any length: compare along the sphere.
    flat = own.grad - (own.grad * z).sum(1, keepdim=True) * z
    torch.testing.assert_close(flat, other.grad)


def test_a_perfect_order_costs_nothing() -> None:
    z = torch.tensor([[1.0, 0], [1, 0], [-1, 0], [-1, 0]])
    assert FastAp(10)(z, torch.tensor([0, 0, 1, 1])) == 0
    assert FastAp(10)(z, torch.tensor([0, 1, 0, 1])) == pytest.approx(1 - 1 / 3)
