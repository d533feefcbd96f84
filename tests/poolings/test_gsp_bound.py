"""Prototypes within a bound, and transport of unprojected features: the settings of the token study."""

import pytest
import torch

from unseen.poolings.gsp import Gsp
from unseen.poolings.projected_gsp import ProjectedGsp

BOUND = 0.3


def features(count: int = 3) -> torch.Tensor:
    return 0.3 * torch.randn(count, 2, 1, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def ready(bound: float | None, solver: str = "newton", gradient: str = "closed_form") -> Gsp:
    pooling = Gsp(2, 3, 0.3, 5.0, 0, 6, solver=solver, gradient=gradient, bound=bound).double()
    pooling.initialized.fill_(True)
    with torch.no_grad():
        pooling.prototypes.copy_(torch.tensor([[0.5, -0.1], [-0.31, 0.3], [0.2, -7.0]], dtype=torch.float64))
    return pooling


def test_elements_are_clamped_separately() -> None:
    pooling = ready(BOUND)
    pooling(features())
    assert torch.equal(
        pooling.prototypes, torch.tensor([[0.3, -0.1], [-0.3, 0.3], [0.2, -0.3]], dtype=torch.float64)
    )


def test_off_by_default() -> None:
    pooling = ready(None)
    prototypes_before = pooling.prototypes.detach().clone()
    pooling(features())
    assert Gsp(2, 3, initialization_memory=6).bound is None
    assert torch.equal(pooling.prototypes, prototypes_before)


@pytest.mark.parametrize(
    ("solver", "gradient"),
    [("newton", "closed_form"), ("iteration", "closed_form"), ("iteration", "autograd")],
)
def test_a_prototype_at_the_bound_has_a_gradient(solver: str, gradient: str) -> None:
    """The gradient is that of the clamped prototypes, without a mask. Two forward passes may precede the
    backward pass."""
    pooling, unbounded = ready(BOUND, solver, gradient), ready(None, solver, gradient)
    with torch.no_grad():
        unbounded.prototypes.clamp_(-BOUND, BOUND)
    gradients = []
    for layer in (pooling, unbounded):
        total = sum(
            (
                layer(batch)[0].square().sum() + layer(batch)[1][:, 0].sum()
                for batch in (features(), features(2))
            ),
            torch.zeros(()),
        )
        total.backward()
        assert layer.prototypes.grad is not None
        gradients.append(layer.prototypes.grad)
    assert torch.equal(*gradients)
    assert (gradients[0].abs() > 1e-6).all()


def test_refuses_a_bound_that_is_not_positive() -> None:
    with pytest.raises(ValueError, match="bound must be positive, got 0"):
        Gsp(2, 3, initialization_memory=6, bound=0.0)


def test_without_dim_the_features_are_not_projected() -> None:
    pooling, unprojected = (
        ProjectedGsp(2, None, 3, 0.3, 5.0, 0, 6).double(),
        Gsp(2, 3, 0.3, 5.0, 0, 6).double(),
    )
    unprojected.load_state_dict(pooling.gsp.state_dict())
    for layer in (pooling.gsp, unprojected):
        layer.initialized.fill_(True)
    pooled, attributes, average = pooling(features())
    expected = unprojected(features())
    assert torch.equal(pooled, expected[0])
    assert torch.equal(attributes, expected[1])
    torch.testing.assert_close(average, features().mean((2, 3)))
    assert pooling.out_channels == 2
    assert [name for name, _ in pooling.named_parameters()] == ["gsp.prototypes"]


@pytest.mark.parametrize(("gradient", "is_exact"), [("autograd", True), ("closed_form", False)])
def test_after_few_iterations_the_gradient_is_exact_only_through_them(gradient: str, is_exact: bool) -> None:
    pooling = ready(None, "iteration", gradient)
    pooling.iterations = 2
    features = torch.rand(2, 2, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def pooled(features: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = pooling(features)[0]
        return result

    checked = torch.autograd.gradcheck(pooled, features.requires_grad_(), raise_exception=False)
    assert checked is is_exact
