"""Generalized sum pooling with its transform, in combination with maximum and generalized mean, and
attributes without transport."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from tests.oracles import pooling_alternatives, poolings
from unseen.poolings.attribute_average import AttributeAverage
from unseen.poolings.gem_gsp import GemGsp
from unseen.poolings.max_gsp import MaxGsp
from unseen.poolings.projected_gsp import ProjectedGsp

CHANNELS, DIM, PROTOTYPES, RATIO, EPSILON = 6, 5, 4, 0.3, 5.0
TRANSPORTS: dict[str, type[ProjectedGsp]] = {"gsp": ProjectedGsp, "max_gsp": MaxGsp, "gem_gsp": GemGsp}
FAMILY = {**TRANSPORTS, "attribute_average": AttributeAverage}
everyone = pytest.mark.parametrize("name", FAMILY)
transports = pytest.mark.parametrize("name", TRANSPORTS)


def build(
    name: str,
    ready: bool = True,
    ratio: float = RATIO,
    epsilon: float = EPSILON,
    prototypes: int = PROTOTYPES,
) -> nn.Module:
    torch.manual_seed(0)
    if name == "attribute_average":
        return AttributeAverage(CHANNELS, DIM, prototypes).double()
    pooling = TRANSPORTS[name](CHANNELS, DIM, prototypes, ratio, epsilon, 0, 12).double()
    pooling.gsp.initialized.fill_(ready)
    return pooling


def maps(count: int = 2, height: int = 3, width: int = 4) -> torch.Tensor:
    return torch.randn(
        count, CHANNELS, height, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


def definition(name: str, pooling: nn.Module, image: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Pooled vector and attributes of one image."""
    transform = pooling.transform.weight.detach()[:, :, 0, 0].numpy()
    features = np.array(pooling_alternatives.cells(image.numpy()))
    x = features @ transform.T
    if name == "attribute_average":
        as_map = x.T.reshape(DIM, *image.shape[1:])
        return x.mean(0), pooling_alternatives.attribute_average(
            as_map, pooling.prototypes.detach().numpy(), 10.0
        )
    cost = poolings.costs(torch.from_numpy(x), pooling.gsp.prototypes.detach()).numpy()
    pi, rho = poolings.root(cost, RATIO, EPSILON)
    weights = (1 / len(x) - rho) / RATIO
    if name == "gem_gsp":
        weighted = (len(x) * weights[:, None] * features).T[:, None, :]
        pooled = transform @ pooling_alternatives.generalized_mean(weighted, 3.0)
    else:
        pooled = weights @ x + (transform @ features.max(0) if name == "max_gsp" else 0)
    return pooled, pi.sum(1) / RATIO


@everyone
def test_value_equals_the_definition(name: str) -> None:
    pooling, features = build(name), maps()
    pooled, attributes, average = pooling(features)
    assert pooling.projects
    assert pooling.out_channels == DIM
    for image in range(2):
        expected = definition(name, pooling, features[image])
        np.testing.assert_allclose(pooled[image].detach(), expected[0], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(attributes[image].detach(), expected[1], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(average, pooling.transform(features).mean((2, 3)).detach())
    assert not average.requires_grad


@everyone
def test_gradcheck(name: str) -> None:
    pooling = build(name)
    names = [key for key, _ in pooling.named_parameters()]

    def outputs(features: torch.Tensor, *parameters: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.func.functional_call(pooling, dict(zip(names, parameters, strict=True)), (features,))[:2]

    features = maps().abs() + 0.1 if name == "gem_gsp" else maps()  # away from the clamp
    inputs = (features.requires_grad_(), *(p.detach().clone().requires_grad_() for p in pooling.parameters()))
    assert torch.autograd.gradcheck(outputs, inputs, fast_mode=True)


@pytest.mark.parametrize("name", ["gsp", "max_gsp"])
def test_ratio_of_one_equals_the_average(name: str) -> None:
    pooling, features = build(name, ratio=1.0), maps()
    expected = pooling.transform(features).mean((2, 3))
    if name == "max_gsp":
        expected = expected + pooling.transform.vectors(features.amax((2, 3)))
    torch.testing.assert_close(pooling(features)[0], expected, rtol=1e-13, atol=1e-14)


@transports
def test_before_initialisation_transport_is_the_average(name: str) -> None:
    pooling, features = build(name, ready=False), maps().requires_grad_()
    pooled, attributes, average = pooling(features)
    added_maximum = pooling.transform.vectors(features.amax((2, 3))) if name == "max_gsp" else 0
    torch.testing.assert_close(pooled, average + added_maximum)
    attributes.square().sum().backward()
    assert not features.grad.any()


@transports
def test_prototypes_are_chosen_from_the_output_of_forward(name: str) -> None:
    pooling = build(name, ready=False)
    parameter, optimizer = pooling.gsp.prototypes, torch.optim.SGD(pooling.parameters(), lr=0.1)
    averages = []
    for _ in range(3):
        pooled, attributes, average = pooling(maps(5))
        pooling.observe(average)  # between forward and backward, as in a training
        (pooled.square().sum() + attributes.square().sum()).backward()
        averages.append(bool(pooling.gsp.initialized))
    assert averages == [False, False, True]
    assert pooling.gsp.prototypes is parameter
    prototypes_before = parameter.detach().clone()
    pooling(maps())[1].square().sum().backward()
    optimizer.step()
    assert not torch.equal(prototypes_before, parameter)


@everyone
def test_one_prototype_has_all_attributes(name: str) -> None:
    pooling = build(name, prototypes=1)
    torch.testing.assert_close(pooling(maps())[1], torch.ones(2, 1, dtype=torch.float64))


@everyone
def test_one_position_gives_its_feature(name: str) -> None:
    pooling, features = build(name), maps(height=1, width=1).abs().requires_grad_()
    pooled, attributes, _ = pooling(features)
    expected = (2 if name == "max_gsp" else 1) * pooling.transform(features)[:, :, 0, 0]
    torch.testing.assert_close(pooled, expected)
    torch.testing.assert_close(attributes.sum(1), torch.ones(2, dtype=torch.float64))
    (pooled.square().sum() + attributes.square().sum()).backward()
    assert features.grad.isfinite().all()


@everyone
@pytest.mark.parametrize("constant", [0.0, 0.8])
def test_constant_map_and_duplicate_positions_have_equal_weights(name: str, constant: float) -> None:
    pooling, features = (
        build(name),
        torch.full((2, CHANNELS, 3, 4), constant, dtype=torch.float64, requires_grad=True),
    )
    pooled, attributes, _ = pooling(features)
    single = pooling(features.detach()[:, :, :1, :1])
    torch.testing.assert_close(pooled, single[0])
    torch.testing.assert_close(attributes, single[1])
    (pooled.square().sum() + attributes.square().sum()).backward()
    assert features.grad.isfinite().all()


@everyone
def test_does_not_depend_on_duplicates_and_order_of_positions(name: str) -> None:
    pooling, features = build(name), maps()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(3))
    moved = features.flatten(2)[:, :, order].view_as(features)
    for variant in (
        moved,
        torch.cat([features, features], dim=2),
        features.contiguous(memory_format=torch.channels_last),
    ):
        for output, variant_output in zip(pooling(features), pooling(variant), strict=True):
            torch.testing.assert_close(output, variant_output)


@transports
@pytest.mark.parametrize("epsilon", [1e-6, 0.5, 5.0, 20.0, 100.0])
def test_single_precision_is_within_1e_5_of_double(name: str, epsilon: float) -> None:
    pooling, features = build(name, epsilon=epsilon), maps(4)
    with torch.no_grad():  # a prototype that equals a feature, and one near a feature
        transformed = pooling.transform(features)
        pooling.gsp.prototypes[0] = transformed[0, :, 0, 0]
        pooling.gsp.prototypes[1] = transformed[0, :, 1, 1] + 1e-3
    double = pooling(features.float().double())
    single = pooling.float()(features.float())
    for single_output, double_output in zip(single[:2], double[:2], strict=True):
        assert single_output.dtype == torch.float32
        assert (single_output.double() - double_output).abs().max().item() < 1e-5


@everyone
def test_half_precision_map_under_autocast_pools_in_single(name: str) -> None:
    pooling, features = build(name).float(), maps().to(torch.bfloat16).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pooled, attributes, average = pooling(features)
    assert pooled.dtype == attributes.dtype == average.dtype == torch.float32
    (pooled.square().sum() + attributes.square().sum()).backward()
    assert features.grad.dtype == torch.bfloat16
    expected = pooling(features.detach().float())
    torch.testing.assert_close(pooled, expected[0], rtol=0.05, atol=0.05)
    torch.testing.assert_close(attributes, expected[1], rtol=0.1, atol=0.05)


@everyone
def test_the_state_dict_has_the_state_of_a_resumed_training(name: str) -> None:
    expected = {"transform.weight"}
    if name == "attribute_average":
        expected |= {"prototypes"}
    else:
        expected |= {f"gsp.{key}" for key in ("prototypes", "memory", "filled", "observed", "initialized")}
    if name == "gem_gsp":
        expected |= {"gem.exponent"}
    assert set(build(name).state_dict()) == expected


def test_defaults_equal_the_published_ones() -> None:
    makers: list[Callable[[], nn.Module]] = [
        lambda kind=kind: kind(CHANNELS, 128) for kind in TRANSPORTS.values()
    ]
    for make in makers:
        gsp = make().gsp
        assert (gsp.prototypes.shape, gsp.transport_ratio, gsp.epsilon, len(gsp.memory)) == (
            (64, 128),
            0.3,
            5.0,
            1024,
        )
    assert AttributeAverage(CHANNELS, 128).scale == 10
    assert AttributeAverage(CHANNELS, 128).has_prototypes, "from the first step; its loss is never left out"
