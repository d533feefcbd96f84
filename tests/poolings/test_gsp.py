"""The GSP layer: average pooling at its two limits, initialisation, state."""

import pytest
import torch
from torch.nn.functional import conv2d

from tests.oracles import poolings as oracle
from unseen.poolings.average import Average
from unseen.poolings.gsp import Gsp


def layer(
    ratio: float = 0.3,
    epsilon: float = 5.0,
    warmup: int = 0,
    memory: int = 12,
    ready: bool = True,
    channels: int = 5,
) -> Gsp:
    torch.manual_seed(0)
    gsp = Gsp(channels, 4, ratio, epsilon, warmup, memory)
    gsp.initialized.fill_(ready)
    return gsp


def maps(count: int = 3, channels: int = 5, height: int = 3, width: int = 4, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, channels, height, width, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_pooled_is_a_weighted_mean_of_the_unclipped_features(scale: float) -> None:
    gsp, features = layer().double(), scale * maps().double()
    pooled, attributes = gsp(features)
    for image in range(3):
        flat = features[image].flatten(1).T
        pi, rho = oracle.root(oracle.costs(flat, gsp.prototypes.detach()).numpy(), 0.3, 5.0)
        torch.testing.assert_close(
            pooled[image], torch.from_numpy((1 / 12 - rho) / 0.3) @ flat, rtol=1e-10, atol=1e-12
        )
        torch.testing.assert_close(
            attributes[image], torch.from_numpy(pi.sum(1) / 0.3), rtol=1e-10, atol=1e-12
        )


def test_ratio_of_one_equals_average_pooling() -> None:
    gsp, features = layer(ratio=1.0).double(), maps().double().requires_grad_()
    pooled, attributes = gsp(features)
    torch.testing.assert_close(pooled, Average(3)(features), rtol=1e-14, atol=1e-15)
    (gradient,) = torch.autograd.grad(pooled[:, 0].sum(), features, retain_graph=True)
    expected = torch.zeros_like(features)
    expected[:, 0] = 1 / 12
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-15)
    assert torch.autograd.grad(attributes.square().sum(), features)[0].abs().max() > 1e-4


@pytest.mark.slow
def test_gradcheck_of_both_outputs() -> None:
    gsp = layer().double()

    def outputs(features: torch.Tensor, prototypes: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(gsp, {"prototypes": prototypes}, (features,))

    assert torch.autograd.gradcheck(
        outputs,
        (maps(2, height=2, width=3).double().requires_grad_(), gsp.prototypes.detach().requires_grad_()),
    )


def test_before_initialisation_it_is_average_pooling_without_attribute_gradients() -> None:
    gsp, features = layer(ready=False), maps().requires_grad_()
    pooled, attributes = gsp(features)
    torch.testing.assert_close(pooled, Average(3)(features))
    torch.testing.assert_close(attributes.sum(1), torch.ones(3))
    torch.testing.assert_close(attributes, layer()(features)[1])
    attributes.square().sum().backward()
    assert features.grad is not None
    assert not features.grad.any()
    assert gsp.prototypes.grad is not None
    assert not gsp.prototypes.grad.any()


def test_observe_collects_and_chooses_prototypes_by_greedy_k_center() -> None:
    gsp = layer(warmup=2, ready=False)
    parameter = gsp.prototypes
    steps = [3 * torch.randn(5, 5, generator=torch.Generator().manual_seed(seed)) for seed in range(5)]
    filled = []
    for step in steps:
        gsp.observe(step)
        filled.append((int(gsp.filled), bool(gsp.initialized)))
    assert filled == [(0, False), (0, False), (5, False), (10, False), (12, True)]
    collected = torch.cat(steps[2:])[:12]
    collected = collected / collected.norm(dim=1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(gsp.memory, collected)
    chosen = oracle.greedy_k_center(collected[4:].double().tolist(), collected[:4].double().tolist(), 4)
    torch.testing.assert_close(gsp.prototypes.detach(), collected[4:][chosen])
    assert gsp.prototypes is parameter
    state_before = {name: value.clone() for name, value in gsp.state_dict().items()}
    gsp.observe(steps[0])
    assert all(torch.equal(value, state_before[name]) for name, value in gsp.state_dict().items())


def test_accepts_initialisation_between_forward_and_backward() -> None:
    gsp, features = layer(ready=False), maps(12).requires_grad_()
    pooled, attributes = gsp(features)
    gsp.observe(pooled.detach())
    assert gsp.initialized
    (pooled.square().sum() + attributes.square().sum()).backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()
    assert gsp(features)[0].sub(pooled).abs().max() > 1e-6


def test_a_restored_layer_continues() -> None:
    steps = [torch.randn(5, 5, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
    uninterrupted = layer(warmup=1, ready=False)
    for step in steps[:2]:
        uninterrupted.observe(step)
    restored = layer(warmup=1, ready=False)
    restored.load_state_dict({name: value.clone() for name, value in uninterrupted.state_dict().items()})
    assert set(uninterrupted.state_dict()) == {"prototypes", "memory", "filled", "observed", "initialized"}
    for step in steps[2:]:
        uninterrupted.observe(step)
        restored.observe(step)
    assert uninterrupted.initialized
    assert restored.initialized
    assert torch.equal(uninterrupted.prototypes, restored.prototypes)


def test_an_earlier_optimizer_updates_the_initialised_prototypes() -> None:
    gsp = layer(ready=False)
    optimizer = torch.optim.SGD(gsp.parameters(), lr=0.1)
    gsp.observe(maps(12).mean((2, 3)))
    prototypes_before = gsp.prototypes.detach().clone()
    gsp(maps())[0].square().sum().backward()
    optimizer.step()
    assert not torch.equal(prototypes_before, gsp.prototypes)


def test_does_not_depend_on_the_memory_layout_of_the_map() -> None:
    gsp, features = layer(), maps()
    for contiguous, channels_last in zip(
        gsp(features), gsp(features.contiguous(memory_format=torch.channels_last)), strict=True
    ):
        torch.testing.assert_close(contiguous, channels_last)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast_compute_in_single(dtype: torch.dtype) -> None:
    gsp, features = layer(), maps().to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pooled, attributes = gsp(features)
    (pooled.sum() + attributes.square().sum()).backward()
    assert pooled.dtype == attributes.dtype == torch.float32
    expected = gsp(features.detach().float())
    torch.testing.assert_close(pooled, expected[0])
    torch.testing.assert_close(attributes, expected[1])
    assert features.grad is not None
    assert features.grad.dtype == dtype


def test_selects_positions_near_prototypes() -> None:
    """A blank picture with one marked corner: sharp transport of a quarter of the positions returns the
    corner."""
    gsp = layer(ratio=0.25, epsilon=50.0, channels=3)
    with torch.no_grad():
        gsp.prototypes.copy_(torch.eye(4)[:, :3])
    pixels = torch.zeros(1, 3, 4, 4)
    pixels[0] = 0.4
    pixels[0, :, :2, :2] = torch.tensor([0.0, 1, 0])[:, None, None]
    pooled, attributes = gsp(conv2d(pixels, torch.eye(3)[:, :, None, None]))
    torch.testing.assert_close(pooled, torch.tensor([[0.0, 1, 0]]), rtol=0, atol=1e-5)
    torch.testing.assert_close(attributes, torch.tensor([[0.0, 1, 0, 0]]), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ratio": 0.0}, "transport_ratio"),
        ({"ratio": 1.5}, "transport_ratio"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"memory": 7}, "must be at least 8"),
    ],
)
def test_refuses_invalid_settings(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layer(**change)


@pytest.mark.parametrize("gradient", ["closed_form", "autograd"])
def test_the_backward_pass_of_the_iteration_has_the_prototypes_of_its_forward_pass(gradient: str) -> None:
    """`observe` selects new prototypes between both passes of the training step."""
    gradients = []
    for selects in (False, True):
        torch.manual_seed(0)
        gsp = Gsp(5, 4, initialization_memory=8, solver="iteration", iterations=9, gradient=gradient)
        features = torch.randn(8, 5, 3, 3, requires_grad=True)
        pooled, attributes = gsp(features)
        if selects:
            gsp.observe(features.detach().mean((2, 3)))
            assert gsp.initialized
        (pooled.square().sum() + attributes.square().sum()).backward()
        gradients.append(features.grad)
    assert torch.equal(*gradients)
