"""KoLeo, diversity of prototypes, consistency of similarities: definitions, gradients, and batches without a
pair."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from tests.oracles import losses as oracle
from unseen.losses.consistency import similarity_consistency
from unseen.losses.diversity import prototype_diversity
from unseen.losses.koleo import koleo


def unit(count: int, dim: int, seed: int = 0) -> torch.Tensor:
    return normalize(
        torch.randn(count, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)), dim=1
    )


def test_koleo_equals_its_definition() -> None:
    points, oracle_points = unit(9, 5).requires_grad_(), unit(9, 5).requires_grad_()
    value, expected = koleo(points), oracle.koleo(oracle_points, 1e-6)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(points.grad, oracle_points.grad)
    assert torch.autograd.gradcheck(koleo, unit(7, 4, 1).requires_grad_())


def test_koleo_of_antipodes() -> None:
    pair = torch.tensor([[1.0, 0], [-1, 0]], dtype=torch.float64)
    assert float(koleo(pair)) == pytest.approx(-torch.tensor(2.0, dtype=torch.float64).log().item(), abs=1e-5)


def test_koleo_of_duplicates_is_finite() -> None:
    twins = unit(1, 384).float().repeat(2, 1).requires_grad_()
    value = koleo(twins)
    value.backward()
    assert value.item() == pytest.approx(10.84, abs=0.01)
    assert value.item() == pytest.approx(oracle.duplicate_koleo(384, 1e-6), rel=1e-4)
    assert twins.grad is not None
    assert twins.grad.isfinite().all()


def test_koleo_of_one_image_is_zero() -> None:
    point = unit(1, 4).requires_grad_()
    value = koleo(point)
    value.backward()
    assert value == 0
    assert point.grad is not None
    assert not point.grad.any()


def test_koleo_does_not_depend_on_order_or_rotation() -> None:
    points = unit(12, 6)
    rotation = torch.linalg.qr(
        torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    ).Q
    torch.testing.assert_close(koleo(points.flip(0)), koleo(points))
    # epsilon is added along the axes
    torch.testing.assert_close(koleo(points @ rotation), koleo(points), rtol=1e-5, atol=0)


def test_diversity_equals_its_definition() -> None:
    prototypes = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    points, oracle_points = prototypes.clone().requires_grad_(), prototypes.clone().requires_grad_()
    value, expected = prototype_diversity(points), oracle.prototype_diversity(oracle_points)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(points.grad, oracle_points.grad)
    assert torch.autograd.gradcheck(prototype_diversity, prototypes.requires_grad_())


def test_diversity_at_its_limits() -> None:
    prototype = torch.randn(1, 5).requires_grad_()
    value = prototype_diversity(prototype)
    value.backward()
    assert value == 0
    assert prototype.grad is not None
    assert not prototype.grad.any()
    assert prototype_diversity(torch.eye(4)) == 0
    # collinear in both directions
    assert float(prototype_diversity(torch.tensor([[1.0, 2], [-2, -4], [3, 6]]))) == pytest.approx(
        1, abs=1e-6
    )


def test_consistency_equals_its_definition() -> None:
    """A term i = j is rounding noise along the vector, which the normalisation before the loss removes."""
    pair = unit(7, 4, 4).requires_grad_(), unit(7, 9, 5).requires_grad_()
    value, expected = similarity_consistency(*pair), oracle.similarity_consistency(*pair)
    torch.testing.assert_close(value, expected)
    gradients, definitions = torch.autograd.grad(value, pair), torch.autograd.grad(expected, pair)
    for points, gradient, definition in zip(pair, gradients, definitions, strict=True):
        tangents = [each - (each * points).sum(1, keepdim=True) * points for each in (gradient, definition)]
        torch.testing.assert_close(*tangents, rtol=1e-7, atol=1e-15)


def test_consistency_of_the_same_geometry_is_zero() -> None:
    points = unit(8, 5, 6)
    rotation = torch.linalg.qr(
        torch.randn(9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    ).Q
    wider = torch.cat([points, torch.zeros(8, 4, dtype=torch.float64)], 1) @ rotation
    assert float(similarity_consistency(points, wider)) < 1e-15


def test_consistency_gradcheck() -> None:
    first, second = unit(5, 3, 8), unit(5, 4, 9)
    # Self similarities are 1 on both sides up to rounding, where |.| has a kink: normalise in the function.
    off_diagonal = similarity_consistency
    assert torch.autograd.gradcheck(
        lambda a, b: off_diagonal(normalize(a, dim=1), normalize(b, dim=1)),
        (first.requires_grad_(), second.requires_grad_()),
    )


@pytest.mark.parametrize(
    "function", [koleo, prototype_diversity, lambda x: similarity_consistency(x, x.flip(1) * 0.5)]
)
def test_half_precision_and_autocast_compute_in_single(function: Callable[..., Tensor]) -> None:
    half_precision = unit(6, 8, 10).bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = function(half_precision)
    value.backward()
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, function(half_precision.detach().float()))
    assert half_precision.grad is not None
    assert half_precision.grad.dtype == torch.bfloat16
