"""The transport plan equals the convex problem, its limit, its root and the iteration of the paper; its
gradient equals proposition 4.3."""

import math

import numpy as np
import pytest
import torch

from tests.oracles import poolings as oracle
from unseen.poolings.transport import TransportPooling, multiplier

RATIOS = [0.1, 0.3, 0.9]


def problem(
    positions: int = 9, prototypes: int = 4, channels: int = 5, scale: float = 0.5, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = scale * torch.randn(2, positions, channels, dtype=torch.float64, generator=generator)
    return features, scale * torch.randn(prototypes, channels, dtype=torch.float64, generator=generator)


def transport(
    features: torch.Tensor, prototypes: torch.Tensor, ratio: float, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and attributes of features (B, P, L)."""
    _, attributes, weights = TransportPooling.apply(
        features.transpose(1, 2), prototypes, torch.tensor(True), ratio, epsilon
    )
    return weights, attributes


def plan_sums(pi: np.ndarray, rho: np.ndarray, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """The output of the layer for a plan: (1/P - rho) / mu and sum_j pi_ij / mu."""
    return (1 / len(rho) - rho) / ratio, pi.sum(1) / ratio


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("epsilon", [0.5, 5.0, 20.0, 100.0])
@pytest.mark.parametrize("scale", [0.2, 2.0])  # inside the unit ball, and mostly clipped
def test_plan_equals_the_root(ratio: float, epsilon: float, scale: float) -> None:
    features, prototypes = problem(scale=scale)
    weights, attributes = transport(features, prototypes, ratio, epsilon)
    for image in range(2):
        cost = oracle.costs(features[image], prototypes).numpy()
        expected = plan_sums(*oracle.root(cost, ratio, epsilon), ratio)
        np.testing.assert_allclose(weights[image], expected[0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(attributes[image], expected[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("ratio", "epsilon"), [(0.1, 0.5), (0.3, 0.5), (0.3, 5.0), (0.5, 5.0)])
def test_plan_equals_the_converged_iteration_of_the_paper(ratio: float, epsilon: float) -> None:
    features, prototypes = problem(positions=49, prototypes=8, channels=16, scale=0.1)
    weights, attributes = transport(features, prototypes, ratio, epsilon)
    for image in range(2):
        pi, rho = oracle.iteration(oracle.costs(features[image], prototypes), ratio, epsilon, steps=100)
        expected = plan_sums(pi.numpy(), rho.numpy(), ratio)
        np.testing.assert_allclose(weights[image], expected[0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(attributes[image], expected[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("ratio", "epsilon"), [(0.3, 0.5), (0.3, 5.0), (0.7, 5.0), (0.5, 20.0)])
def test_plan_solves_the_convex_program(ratio: float, epsilon: float) -> None:
    features, prototypes = problem(positions=6, prototypes=3)
    weights, attributes = transport(features, prototypes, ratio, epsilon)
    pi, rho = oracle.convex_program(oracle.costs(features[0], prototypes).numpy(), ratio, epsilon)
    expected = plan_sums(pi, rho, ratio)
    np.testing.assert_allclose(weights[0], expected[0], rtol=0, atol=2e-6)
    np.testing.assert_allclose(attributes[0], expected[1], rtol=0, atol=2e-6)


@pytest.mark.parametrize(("ratio", "epsilon"), [(0.1, 0.5), (0.3, 5.0), (0.9, 20.0)])
def test_plan_equals_balanced_transport_to_two_targets(ratio: float, epsilon: float) -> None:
    """Summed over prototypes, selecting a position costs -l_j / epsilon and leaving it costs nothing: two
    targets of mass mu and 1 - mu, a problem of POT."""
    ot = pytest.importorskip("ot")
    features, prototypes = problem()
    weights, _ = transport(features, prototypes, ratio, epsilon)
    for image in range(2):
        soft = torch.logsumexp(-epsilon * oracle.costs(features[image], prototypes), 0) / -epsilon
        cost = torch.stack([soft, torch.zeros_like(soft)]).numpy()
        marginals = np.array([ratio, 1 - ratio]), np.full(9, 1 / 9)
        plan = ot.bregman.sinkhorn_log(*marginals, cost, 1 / epsilon, stopThr=1e-13, numItermax=20000)
        np.testing.assert_allclose(weights[image], plan[0] / ratio, rtol=0, atol=1e-9)


@pytest.mark.parametrize("ratio", [0.5, 1 / 3])
def test_large_epsilon_equals_the_linear_program(ratio: float) -> None:
    features, prototypes = problem(positions=6, prototypes=3)
    # two of these costs differ by 0.03: entropy mixes them even at 500
    weights, attributes = transport(features, prototypes, ratio, 2000.0)
    pi, rho = oracle.linear_program(oracle.costs(features[0], prototypes).numpy(), ratio)
    expected = plan_sums(pi, rho, ratio)
    np.testing.assert_allclose(weights[0], expected[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(attributes[0], expected[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("ratio", [0.01, 0.3, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("positions", [1, 9, 49, 100])
def test_multiplier_is_exact_for_hard_selections(ratio: float, positions: int) -> None:
    generator = torch.Generator().manual_seed(0)

    def uniform() -> torch.Tensor:
        return torch.rand(16, positions, dtype=torch.float64, generator=generator)

    # a share that a hard selection meets exactly, where the mean is flat
    selected = torch.arange(positions) < round(ratio * positions)
    for epsilon in (0.1, 5.0, 20.0, 100.0, 1000.0):
        for mass in (
            -2 * epsilon * uniform(),
            -epsilon * (1 + 0.02 * uniform()),
            torch.where(
                uniform() < uniform()[:, :1], -0.05 * epsilon * uniform(), -1.2 * epsilon - uniform()
            ),
            torch.where(selected, 0.0, -1.5 * epsilon - 0.01 * uniform()),
            torch.zeros(16, positions, dtype=torch.float64),
        ):
            weights = torch.sigmoid(mass + multiplier(mass, ratio, epsilon))
            assert float((weights.mean(1) - ratio).abs().max()) < 1e-11


@pytest.mark.parametrize("ratio", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("epsilon", [0.5, 5.0, 20.0, 100.0])
def test_multiplier_stops_when_the_square_of_its_step_is_small(ratio: float, epsilon: float) -> None:
    """A tolerance of half of the digits of single precision gives all of them."""
    generator = torch.Generator().manual_seed(0)
    spread = torch.rand(64, 49, dtype=torch.float64, generator=generator)
    selected = torch.arange(49) < round(ratio * 49)
    for mass in (
        -2 * epsilon * spread,
        -2 * epsilon * spread**6,
        torch.where(selected, 0.0, -1.5 * epsilon - 0.01 * spread),
    ):
        exact, tolerant = (multiplier(mass, ratio, epsilon, tolerance) for tolerance in (1e-12, 3e-4))
        assert float((torch.sigmoid(mass + tolerant) - torch.sigmoid(mass + exact)).abs().max()) < 9e-8


@pytest.mark.parametrize("ratio", [*RATIOS, 1.0])
@pytest.mark.parametrize("epsilon", [1e-6, 5.0, 1e6])
def test_weights_and_attributes_sum_to_one_at_any_epsilon(ratio: float, epsilon: float) -> None:
    features, prototypes = problem(positions=20)
    features, prototypes = features.requires_grad_(), prototypes.requires_grad_()
    weights, attributes = transport(features, prototypes, ratio, epsilon)
    ones = torch.ones(2, dtype=torch.float64)
    torch.testing.assert_close(weights.sum(1), ones, rtol=1e-12, atol=0)
    torch.testing.assert_close(attributes.sum(1), ones, rtol=1e-12, atol=0)
    assert (weights >= 0).all()
    assert weights.max().item() <= 1 / (20 * ratio) + 1e-9
    (weights.square().sum() + attributes.square().sum()).backward()
    for tensor in (features, prototypes):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


def test_equal_costs_give_equal_weights() -> None:
    features = torch.ones(1, 7, 3, dtype=torch.float64)
    for ratio in RATIOS:
        weights, _ = transport(features, -features[0, :2], ratio, 20.0)
        torch.testing.assert_close(
            weights, torch.full((1, 7), 1 / 7, dtype=torch.float64), rtol=1e-12, atol=0
        )


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [*RATIOS, 1.0])
@pytest.mark.parametrize("epsilon", [0.5, 5.0, 20.0])
@pytest.mark.parametrize("scale", [0.2, 2.0])
def test_gradcheck(ratio: float, epsilon: float, scale: float) -> None:
    features, prototypes = problem(positions=5, scale=scale)
    assert torch.autograd.gradcheck(
        lambda f, w: transport(f, w, ratio, epsilon), (features.requires_grad_(), prototypes.requires_grad_())
    )


@pytest.mark.slow
def test_gradcheck_of_all_outputs_together_and_separately() -> None:
    features, prototypes = problem(positions=5, scale=0.7)
    inputs = features.transpose(1, 2).requires_grad_(), prototypes.requires_grad_()

    def outputs(f: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return TransportPooling.apply(f, w, torch.tensor(True), 0.3, 5.0)

    assert torch.autograd.gradcheck(outputs, inputs)
    for index in range(3):
        assert torch.autograd.gradcheck(
            lambda f, w, index=index: outputs(f, w)[index], inputs, fast_mode=True
        )


def test_gradient_equals_proposition_4_3() -> None:
    """Both outputs contribute. Autograd differentiates distances and clipping; the proposition is in
    between."""
    ratio, epsilon = 0.3, 5.0
    features, prototypes = problem(positions=12, prototypes=5)
    generator = torch.Generator().manual_seed(7)
    by_weights = torch.randn(12, dtype=torch.float64, generator=generator)
    by_attributes = torch.randn(5, dtype=torch.float64, generator=generator)
    oracle_inputs = [features[0].clone().requires_grad_(), prototypes.clone().requires_grad_()]
    cost = oracle.costs(*oracle_inputs)
    pi, rho = oracle.iteration(cost.detach(), ratio, epsilon, steps=500)
    by_cost = oracle.iteration_gradient(
        pi, rho, ratio, epsilon, by_attributes[:, None].expand_as(pi) / ratio, -by_weights / ratio
    )
    cost.backward(by_cost)
    inputs = [features[:1].clone().requires_grad_(), prototypes.clone().requires_grad_()]
    weights, attributes = transport(inputs[0], inputs[1], ratio, epsilon)
    ((weights[0] * by_weights).sum() + (attributes[0] * by_attributes).sum()).backward()
    torch.testing.assert_close(inputs[0].grad[0], oracle_inputs[0].grad, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(inputs[1].grad, oracle_inputs[1].grad, rtol=1e-10, atol=1e-12)


def test_gradient_equals_autograd_through_the_iteration() -> None:
    ratio, epsilon = 0.3, 5.0
    features, prototypes = problem(positions=8, prototypes=3, seed=3)
    oracle_inputs = [features[0].clone().requires_grad_(), prototypes.clone().requires_grad_()]
    pi, rho = oracle.iteration(oracle.costs(*oracle_inputs), ratio, epsilon, steps=300)
    (((1 / 8 - rho) / ratio).pow(2).sum() + (pi.sum(1) / ratio).pow(2).sum()).backward()
    inputs = [features[:1].clone().requires_grad_(), prototypes.clone().requires_grad_()]
    weights, attributes = transport(inputs[0], inputs[1], ratio, epsilon)
    (weights.pow(2).sum() + attributes.pow(2).sum()).backward()
    torch.testing.assert_close(inputs[0].grad[0], oracle_inputs[0].grad, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(inputs[1].grad, oracle_inputs[1].grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_feature_on_a_prototype_has_no_gradient_along_their_distance(dtype: torch.dtype) -> None:
    features, prototypes = problem(positions=6)
    features, prototypes = features.to(dtype), prototypes.to(dtype)
    features[0, 2] = prototypes[1]
    features, prototypes = features.requires_grad_(), prototypes.requires_grad_()
    weights, attributes = transport(features, prototypes, 0.3, 5.0)
    (weights[0, 2] + attributes[0, 1]).backward()
    assert features.grad is not None
    assert prototypes.grad is not None
    assert features.grad.isfinite().all()
    assert prototypes.grad.isfinite().all()
    # the gradient comes from the other distances, without a term of size 1 / c
    assert float(features.grad.abs().max()) < 10
    assert float(prototypes.grad.abs().max()) < 10


def test_clipping_projects_long_vectors_only() -> None:
    features, prototypes = problem(positions=4, scale=0.1)
    features[0, 1] *= 50
    features = features.requires_grad_()
    weights, _ = transport(features, prototypes, 0.3, 5.0)
    weights[0].pow(2).sum().backward()
    assert features.grad is not None
    along = (features.grad * features.detach()).sum(2)[0]
    assert abs(along[1].item()) < 1e-14  # only the direction of a long vector matters
    assert abs(along[0].item()) > 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ratio", [0.3, 1.0])
def test_does_not_change_its_inputs(dtype: torch.dtype, ratio: float) -> None:
    features, prototypes = (tensor.to(dtype).requires_grad_() for tensor in problem(scale=0.7))
    inputs_before = features.detach().clone(), prototypes.detach().clone()
    weights, attributes = transport(features, prototypes, ratio, 5.0)
    loss = weights.square().sum() + attributes.square().sum()
    first = torch.autograd.grad(loss, (features, prototypes), retain_graph=True)
    copies = [gradient.clone() for gradient in first]
    for changed, copy_gradient in zip(torch.autograd.grad(loss, (features, prototypes)), copies, strict=True):
        assert torch.equal(changed, copy_gradient)
    assert torch.equal(features, inputs_before[0])
    assert torch.equal(prototypes, inputs_before[1])


def test_one_prototype_has_all_mass() -> None:
    features, prototypes = problem(prototypes=1)
    _, attributes = transport(features, prototypes, 0.3, 5.0)
    torch.testing.assert_close(attributes, torch.ones(2, 1, dtype=torch.float64))


@pytest.mark.parametrize("ratio", RATIOS)
def test_order_of_positions_prototypes_and_images_and_rotation(ratio: float) -> None:
    features, prototypes = problem()
    weights, attributes = transport(features, prototypes, ratio, 5.0)
    generator = torch.Generator().manual_seed(1)
    places, names = torch.randperm(9, generator=generator), torch.randperm(4, generator=generator)
    rotation = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64, generator=generator)).Q
    moved_weights, moved_attributes = transport(
        (features @ rotation)[:, places].flip(0), (prototypes @ rotation)[names], ratio, 5.0
    )
    torch.testing.assert_close(moved_weights.flip(0), weights[:, places])
    torch.testing.assert_close(moved_attributes.flip(0), attributes[:, names])


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("epsilon", [0.5, 5.0, 20.0, 100.0])
def test_single_precision_is_within_1e_5_of_double(ratio: float, epsilon: float) -> None:
    """Half of the features are close to prototypes, where distances are small and the selection is sharp."""
    generator = torch.Generator().manual_seed(2)
    prototypes = torch.randn(64, 128, generator=generator) / math.sqrt(128)
    features = torch.randn(4, 49, 128, generator=generator) / math.sqrt(128)
    is_near = torch.rand(4, 49, generator=generator) < 0.5
    features[is_near] = (
        prototypes[torch.randint(0, 64, (int(is_near.sum()),), generator=generator)]
        + 1e-3 * features[is_near]
    )
    results = []
    for dtype in (torch.float32, torch.float64):
        inputs = [tensor.detach().clone().to(dtype).requires_grad_() for tensor in (features, prototypes)]
        weights, attributes = transport(inputs[0], inputs[1], ratio, epsilon)
        pooled = torch.bmm(weights.unsqueeze(1), inputs[0]).squeeze(1)
        (pooled.square().sum() + attributes.square().sum()).backward()
        results.append(
            [t.detach().double() for t in (weights * 49, attributes, pooled, inputs[0].grad, inputs[1].grad)]
        )
    for single, double in zip(results[0][:3], results[1][:3], strict=True):
        assert float((single - double).abs().max()) < 1e-5
    for single, double in zip(results[0][3:], results[1][3:], strict=True):
        # directions between points at distance 1e-3, with seven digits
        assert float((single - double).norm() / double.norm()) < 1e-3
