"""The iteration of the paper and its closed-form gradient: the iterates, their limit, and the error after 100
steps."""

import math

import numpy as np
import pytest
import torch

from tests.oracles import poolings as oracle
from unseen.poolings.gsp import Gsp
from unseen.poolings.transport_iteration import ClosedForm, iterate


def costs(positions: int = 9, prototypes: int = 4, seed: int = 0) -> torch.Tensor:
    """The costs of two images."""
    return 2 * torch.rand(
        2, prototypes, positions, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def layers(ratio: float = 0.3, epsilon: float = 5.0, iterations: int = 100) -> tuple[Gsp, Gsp, Gsp]:
    """The same layer with each solver and gradient."""
    results = []
    for solver, gradient in (
        ("newton", "closed_form"),
        ("iteration", "closed_form"),
        ("iteration", "autograd"),
    ):
        torch.manual_seed(0)
        layer = Gsp(5, 4, ratio, epsilon, 0, 12, solver, iterations, gradient).double()
        layer.initialized.fill_(True)
        results.append(layer)
    return tuple(results)


def maps(scale: float = 0.5) -> torch.Tensor:
    return scale * torch.randn(3, 5, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("steps", [1, 2, 7, 100])
@pytest.mark.parametrize(("ratio", "epsilon"), [(0.1, 0.5), (0.3, 5.0), (0.9, 20.0)])
def test_iterates_equal_proposition_4_2(steps: int, ratio: float, epsilon: float) -> None:
    pi, rho = iterate(costs(), ratio, epsilon, steps)
    for image in range(2):
        expected = oracle.iteration(costs()[image], ratio, epsilon, steps)
        torch.testing.assert_close(pi[image], expected[0], rtol=1e-10, atol=1e-14)
        torch.testing.assert_close(rho[image], expected[1], rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(pi.sum((1, 2)), torch.full((2,), ratio, dtype=torch.float64))


@pytest.mark.parametrize(("ratio", "epsilon"), [(0.1, 0.5), (0.3, 5.0), (0.5, 5.0)])
def test_closed_form_equals_proposition_4_3(ratio: float, epsilon: float) -> None:
    cost, generator = costs().requires_grad_(), torch.Generator().manual_seed(2)
    pi, rho = ClosedForm.apply(cost, ratio, epsilon, 500)
    by_pi, by_rho = (torch.randn(t.shape, dtype=torch.float64, generator=generator) for t in (pi, rho))
    (by_cost,) = torch.autograd.grad([pi, rho], cost, [by_pi, by_rho])
    for image in range(2):
        expected = oracle.iteration_gradient(
            pi[image].detach(), rho[image].detach(), ratio, epsilon, by_pi[image], by_rho[image]
        )
        torch.testing.assert_close(by_cost[image], expected, rtol=1e-9, atol=1e-13)


def test_gradcheck_of_closed_form_at_the_fixed_point_and_of_autograd_anywhere() -> None:
    assert torch.autograd.gradcheck(
        lambda c: ClosedForm.apply(c, 0.3, 5.0, 500), (costs().requires_grad_(),), fast_mode=True
    )
    assert torch.autograd.gradcheck(
        lambda c: iterate(c, 0.3, 5.0, 3), (costs().requires_grad_(),), fast_mode=True
    )
    for layer in layers(iterations=60)[1:]:
        assert torch.autograd.gradcheck(
            lambda f, layer=layer: layer(f), (maps().requires_grad_(),), fast_mode=True
        )


@pytest.mark.parametrize("scale", [0.1, 2.0])  # inside the unit ball, and mostly clipped
@pytest.mark.parametrize("epsilon", [0.5, 5.0])
def test_all_solvers_agree_where_the_iteration_converges(epsilon: float, scale: float) -> None:
    results = []
    for layer in layers(0.3, epsilon, 200):
        features = maps(scale).requires_grad_()
        pooled, attributes = layer(features)
        (pooled.square().sum() + attributes.square().sum()).backward()
        results.append((pooled, attributes, features.grad, layer.prototypes.grad))
    for result in results[1:]:
        for output, other_output in zip(results[0], result, strict=True):
            torch.testing.assert_close(other_output, output, rtol=1e-8, atol=1e-11)


def test_after_100_steps_a_hard_selection_is_far_from_its_plan() -> None:
    """Nearly mu of the features are at prototypes, epsilon 20: the intended use of the layer."""
    generator = torch.Generator().manual_seed(0)
    prototypes = torch.randn(8, 32, dtype=torch.float64, generator=generator)
    prototypes /= prototypes.norm(dim=1, keepdim=True)
    background = torch.randn(49, 32, dtype=torch.float64, generator=generator)
    features = background / background.norm(dim=1, keepdim=True)
    features[:14] = prototypes[torch.arange(14) % 8] + 0.01 * background[:14]
    cost = oracle.costs(features, prototypes)
    exact = oracle.root(cost.numpy(), 0.3, 20.0)[1]
    errors = []
    for steps in (10, 100, 1000):
        rho = iterate(cost[None], 0.3, 20.0, steps)[1][0].numpy()
        errors.append(49 * np.abs(rho - exact).max())
    assert errors[0] > errors[1] > errors[2]
    assert errors[1] > 0.01
    layer = Gsp(32, 8, 0.3, 20.0, 0, 16).double()
    layer.initialized.fill_(True)
    with torch.no_grad():
        layer.prototypes.copy_(prototypes)
    weights = layer.transport(features.T.reshape(1, 32, 7, 7))[2][0].detach().numpy()
    np.testing.assert_allclose(weights, (1 / 49 - exact) / 0.3, rtol=0, atol=1e-12)


def test_single_precision_is_finite_for_large_epsilon() -> None:
    for epsilon in (20.0, 100.0, 1000.0):
        single, double = (
            iterate(costs().float(), 0.3, epsilon, 100),
            iterate(costs().float().double(), 0.3, epsilon, 100),
        )
        for single_output, double_output in zip(single, double, strict=True):
            assert single_output.isfinite().all()
            assert float((single_output.double() - double_output).abs().max()) < 1e-6 * epsilon
        cost = costs().float().requires_grad_()
        pi, rho = ClosedForm.apply(cost, 0.3, epsilon, 100)
        (pi.square().sum() + rho.square().sum()).backward()
        assert cost.grad is not None
        assert cost.grad.isfinite().all()


def test_ratio_of_one_equals_the_average_with_every_solver() -> None:
    for layer in layers(ratio=1.0):
        features = maps().requires_grad_()
        pooled, attributes = layer(features)
        torch.testing.assert_close(pooled, features.mean((2, 3)), rtol=1e-14, atol=1e-15)
        torch.testing.assert_close(attributes, layers(ratio=1.0)[0](features)[1])
        (by_features,) = torch.autograd.grad(pooled.sum(), features)
        torch.testing.assert_close(by_features, torch.full_like(by_features, 1 / 12), rtol=1e-12, atol=1e-15)


def test_a_prototype_on_a_feature_has_a_finite_gradient() -> None:
    for layer in layers():
        features = maps().requires_grad_()
        with torch.no_grad():
            layer.prototypes[1] = features[0, :, 1, 1]
        pooled, attributes = layer(features)
        (pooled.square().sum() + attributes.square().sum()).backward()
        assert features.grad is not None
        assert features.grad.isfinite().all()
        assert layer.prototypes.grad is not None
        assert layer.prototypes.grad.isfinite().all()
        assert float(layer.prototypes.grad.abs().max()) < 10


def test_before_initialisation_the_iteration_is_the_average() -> None:
    for layer in layers():
        layer.initialized.fill_(False)
        features = maps().requires_grad_()
        pooled, attributes = layer(features)
        torch.testing.assert_close(pooled, features.mean((2, 3)))
        attributes.square().sum().backward()
        assert not features.grad.any()
        assert math.isclose(attributes.sum().item(), 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"solver": "sinkhorn"}, "newton or iteration"),
        ({"gradient": "none"}, "closed_form or autograd"),
        ({"iterations": 0}, "positive"),
    ],
)
def test_refuses_invalid_settings(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Gsp(5, 4, initialization_memory=8, **arguments)
