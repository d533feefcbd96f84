"""Average and average-plus-maximum pooling."""

import pytest
import torch

from unseen.poolings.average import Average
from unseen.poolings.average_max import AverageMax


def test_values_by_hand() -> None:
    features = torch.tensor([[[[1.0, 2], [3, 6]], [[-4, -1], [-2, -1]]]])
    assert Average(3)(features).tolist() == [[3, -2]]
    assert AverageMax(3)(features).tolist() == [[9, -3]]


@pytest.mark.parametrize("pooling", [Average(3), AverageMax(3)])
def test_gradcheck(pooling: torch.nn.Module) -> None:
    features = torch.randn(2, 3, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(pooling, features.requires_grad_())


def test_the_first_of_equal_maxima_has_the_gradient() -> None:
    features = torch.zeros(1, 1, 2, 2, requires_grad=True)
    AverageMax(3)(features).backward(torch.ones(1, 1))
    assert features.grad is not None
    assert features.grad.flatten().tolist() == [1.25, 0.25, 0.25, 0.25]


@pytest.mark.parametrize("pooling", [Average(3), AverageMax(3)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_single(pooling: torch.nn.Module, dtype: torch.dtype) -> None:
    features = torch.full((1, 1, 64, 64), 1.0, dtype=dtype) + torch.linspace(0, 1, 4096).view(
        1, 1, 64, 64
    ).to(dtype)
    value = pooling(features)
    assert value.dtype == torch.float32
    assert torch.equal(value, pooling(features.float()))
