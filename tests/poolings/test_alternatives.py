"""Poolings of one map to one vector: values equal the definitions, gradients, and extreme maps."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from tests.device import pretended
from tests.oracles import pooling_alternatives as oracle
from unseen.poolings.average import Average
from unseen.poolings.average_max import AverageMax
from unseen.poolings.cbam import Cbam
from unseen.poolings.crow import Crow
from unseen.poolings.delf import Delf
from unseen.poolings.gem import Gem, generalized_mean
from unseen.poolings.generalized_max import GeneralizedMax
from unseen.poolings.gsop import Gsop
from unseen.poolings.max import Max
from unseen.poolings.netvlad import Netvlad
from unseen.poolings.optimal_transport import OptimalTransport, sinkhorn
from unseen.poolings.rmac import Rmac, regions
from unseen.poolings.second_order import SecondOrder
from unseen.poolings.smoothing import Smoothing
from unseen.poolings.weldon import Weldon

CHANNELS, DIM = 6, 8


class DoubleLayer(nn.Module):
    """Replaces an attention block."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features + features.mean(1, keepdim=True)


POOLINGS: dict[str, Callable[[], nn.Module]] = {
    "average": lambda: Average(CHANNELS),
    "max": lambda: Max(CHANNELS),
    "average_max": lambda: AverageMax(CHANNELS),
    "gem": lambda: Gem(CHANNELS),
    "gem, fixed": lambda: Gem(CHANNELS, 2.5, learnable=False),
    "rmac": lambda: Rmac(CHANNELS),
    "generalized_max": lambda: GeneralizedMax(CHANNELS),
    "cbam": lambda: Cbam(CHANNELS, 2),
    "crow": lambda: Crow(CHANNELS),
    "delf": lambda: Delf(CHANNELS, 5),
    "gsop": lambda: Gsop(CHANNELS, DIM, 12, 3),
    "smoothing": lambda: Smoothing(CHANNELS, DIM),
    "second_order": lambda: SecondOrder(CHANNELS, DoubleLayer()),
    "netvlad": lambda: Netvlad(CHANNELS, DIM, 4),
    "optimal_transport": lambda: OptimalTransport(CHANNELS, DIM, 4),
    "weldon": lambda: Weldon(CHANNELS, DIM, 4, 2),
}
IN_SPACE = {"rmac", "cbam", "smoothing", "gsop"}  # poolings that depend on neighbours or positions
everyone = pytest.mark.parametrize("name", POOLINGS)


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    pooling = POOLINGS[name]().double()
    with torch.no_grad():
        for parameter in pooling.parameters():
            if parameter.dim() == 1:  # zero biases would hide errors
                parameter.normal_(std=0.3)
    return pooling.eval()


def maps(
    count: int = 2, height: int = 3, width: int = 4, seed: int = 1, channels: int = CHANNELS
) -> torch.Tensor:
    return torch.randn(
        count, channels, height, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def arrays(module: nn.Module) -> list[np.ndarray]:
    return [parameter.detach().squeeze().numpy() for parameter in module.parameters()]


def transformed(pooling: nn.Module, image: torch.Tensor) -> np.ndarray:
    """x = W f of one image, position by position."""
    return np.einsum("dl,lhw->dhw", pooling.transform.weight.detach()[:, :, 0, 0].numpy(), image.numpy())


def definition(name: str, pooling: nn.Module, image: torch.Tensor) -> np.ndarray:
    f = image.numpy()
    match name:
        case "average":
            return np.mean(oracle.cells(f), axis=0)
        case "max":
            return np.max(oracle.cells(f), axis=0)
        case "average_max":
            return np.mean(oracle.cells(f), axis=0) + np.max(oracle.cells(f), axis=0)
        case "gem":
            return oracle.generalized_mean(f, 3.0)
        case "gem, fixed":
            return oracle.generalized_mean(f, 2.5)
        case "rmac":
            return oracle.rmac(f, 3)
        case "generalized_max":
            return oracle.generalized_max(f, 1.0)
        case "cbam":
            return oracle.cbam(f, *arrays(pooling))
        case "crow":
            return oracle.crow(f)
        case "delf":
            weight, bias, score, offset = arrays(pooling)
            return oracle.delf(f, weight, bias, score, float(offset))
        case "smoothing":
            return oracle.smoothing(f, *arrays(pooling))
        case "second_order":
            return oracle.generalized_mean(f + f.mean(0, keepdims=True), 3.0)
        case "weldon":
            return oracle.weldon(transformed(pooling, image), 4, 2)
        case "netvlad":
            weight, bias = arrays(pooling.assignment)
            return oracle.netvlad(transformed(pooling, image), weight, bias, pooling.centers.detach().numpy())
        case "optimal_transport":
            x = transformed(pooling, image)
            plan = oracle.sinkhorn(oracle.balanced_costs(x, pooling.prototypes.detach().numpy()), 2.0, 10)
            return math.sqrt(4) * np.concatenate(
                [sum(p * v for p, v in zip(row, oracle.cells(x), strict=True)) for row in plan]
            )
        case "gsop":
            branches = []
            for features, attention in (
                (pooling.channel_features, pooling.channel_attention),
                (pooling.spatial_features, pooling.spatial_attention),
            ):
                rows, out = attention[0], attention[-2]
                size = len(rows.norm.weight)
                # the oracle has batch norms with new statistics and neutral weights
                branches.append(
                    {
                        "features": features[1].weight.detach()[:, :, 0, 0].numpy(),
                        "features_bias": features[1].bias.detach().numpy(),
                        "forms": rows.forms.weight.detach().view(size, 4, size).numpy(),
                        "forms_bias": rows.forms.bias.detach().view(size, 4).numpy(),
                        "out": out.weight.detach()[:, :, 0, 0].numpy(),
                        "out_bias": out.bias.detach().numpy(),
                    }
                )
            return oracle.gsop(transformed(pooling, image), *branches)
    raise AssertionError(name)


def neutral(pooling: nn.Module) -> nn.Module:
    for module in pooling.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
    return pooling


@everyone
@pytest.mark.parametrize("scale", [0.2, 3.0])
def test_value_equals_the_definition(name: str, scale: float) -> None:
    pooling, features = neutral(build(name)), scale * maps()
    value = pooling(features)
    assert value.shape == (2, pooling.out_channels)
    assert pooling.out_channels == (DIM if pooling.projects else CHANNELS)
    for image in range(2):
        np.testing.assert_allclose(
            value[image].detach(), definition(name, pooling, features[image]), rtol=1e-9, atol=1e-11
        )


@everyone
@pytest.mark.parametrize("training", [False, True])
def test_gradcheck(name: str, training: bool) -> None:
    pooling = build(name).train(training)
    names = [key for key, _ in pooling.named_parameters()]

    def pooled(features: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(pooling, dict(zip(names, parameters, strict=True)), (features,))

    # away from the clamp
    features = maps().abs() + 0.1 if name in ("gem", "gem, fixed", "second_order") else maps()
    inputs = (features.requires_grad_(), *(p.detach().clone().requires_grad_() for p in pooling.parameters()))
    if name == "smoothing":  # the norm passes no gradient, unlike finite differences; the next test covers it
        features, inputs = features.detach(), inputs[1:]
        assert torch.autograd.gradcheck(
            lambda *parameters: pooled(features, *parameters), inputs, fast_mode=True
        )
    else:
        assert torch.autograd.gradcheck(pooled, inputs, fast_mode=True)


def test_the_norms_of_smoothing_pass_no_gradient() -> None:
    pooling, features, oracle_features = build("smoothing"), maps().requires_grad_(), maps().requires_grad_()
    pooling(features).sum().backward()
    norm = torch.linalg.vector_norm(maps(), dim=1, keepdim=True)
    around = torch.nn.functional.avg_pool2d(oracle_features, 3, 1, 1, count_include_pad=False)
    (pooling.transform(around) * norm).mean((2, 3)).sum().backward()
    torch.testing.assert_close(features.grad, oracle_features.grad)


@everyone
def test_one_position(name: str) -> None:
    pooling = Gsop(CHANNELS, DIM, 1, 3).double().eval() if name == "gsop" else build(name)
    pooling, features = neutral(pooling), maps(height=1, width=1).requires_grad_()
    value = pooling(features)
    expected = definition(name, pooling, features[0].detach())
    np.testing.assert_allclose(value[0].detach(), expected, rtol=1e-9, atol=1e-11)
    value.square().sum().backward()
    assert features.grad.isfinite().all()


@everyone
@pytest.mark.parametrize("constant", [0.0, 0.7, -0.7])
def test_constant_map_gives_finite_values_and_gradients(name: str, constant: float) -> None:
    pooling, features = (
        build(name),
        torch.full((2, CHANNELS, 3, 4), constant, dtype=torch.float64, requires_grad=True),
    )
    value = pooling(features)
    value.square().sum().backward()
    assert value.isfinite().all()
    assert features.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in pooling.parameters())
    if name in ("average", "max", "average_max") or (constant > 0 and name.startswith("gem")):
        torch.testing.assert_close(value, torch.full_like(value, constant * (1 + (name == "average_max"))))


@pytest.mark.parametrize("name", [name for name in POOLINGS if name not in IN_SPACE])
def test_does_not_depend_on_the_order_of_positions(name: str) -> None:
    pooling, features = build(name), maps()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(3))
    moved = features.flatten(2)[:, :, order].view_as(features)
    torch.testing.assert_close(pooling(moved), pooling(features))
    torch.testing.assert_close(pooling(features.transpose(2, 3)), pooling(features))


@pytest.mark.parametrize("name", sorted(IN_SPACE - {"gsop"}))
def test_poolings_of_neighbours_depend_on_the_order_of_positions(name: str) -> None:
    pooling, features = build(name), maps()
    moved = features.flatten(2)[:, :, torch.randperm(12, generator=torch.Generator().manual_seed(3))].view_as(
        features
    )
    assert not torch.allclose(pooling(moved), pooling(features))


@pytest.mark.parametrize(
    "name",
    [name for name in POOLINGS if name not in {"weldon", "rmac", "generalized_max", "netvlad", *IN_SPACE}],
)
def test_a_repeated_map_gives_the_same_vector(name: str) -> None:
    """Duplicate positions. CroW is divided by the norm of all activities, which adds a factor of
    sqrt(sqrt(2))."""
    pooling, features = build(name), maps()
    factor = 2**-0.25 if name == "crow" else 1.0
    torch.testing.assert_close(pooling(torch.cat([features, features], dim=3)), factor * pooling(features))


def test_duplicates_have_no_more_weight_in_generalized_max() -> None:
    features = maps(height=1, width=2)
    single, repeated = (
        GeneralizedMax(CHANNELS, 1e-9),
        torch.cat([features[..., :1]] * 5 + [features[..., 1:]], dim=3),
    )
    torch.testing.assert_close(single(repeated), single(features), rtol=1e-6, atol=1e-6)


def _singular_features_on_a_gpu() -> None:
    pooling = GeneralizedMax(CHANNELS).to(pretended.GPU)
    features = maps(height=2, width=2).float()
    features[0] = 1e10
    features = features.to(pretended.GPU)
    with pretended.recorded() as record:
        pooled = pooling(features)
    assert record.waits == []
    assert pooled[0].isnan().all()
    torch.testing.assert_close(pooled[1:].cpu(), pooling(features[1:]).cpu())
    assert pooled[1:].isfinite().all()


def test_generalized_max_of_singular_features_is_nan_without_a_wait() -> None:
    """The ridge vanishes beside equal features of this size. Another image of the batch is not affected."""
    pretended.run(_singular_features_on_a_gpu)


@everyone
def test_half_precision_map_under_autocast_pools_in_single(name: str) -> None:
    pooling, features = build(name).float(), maps().abs().to(torch.bfloat16).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = pooling(features)
    assert value.dtype == torch.float32
    value.square().sum().backward()
    assert features.grad.dtype == torch.bfloat16
    assert features.grad.isfinite().all()
    torch.testing.assert_close(
        value, pooling.double()(features.detach().double()).float(), rtol=0.05, atol=0.05
    )


@everyone
def test_does_not_depend_on_the_memory_layout(name: str) -> None:
    pooling, features = build(name), maps()
    torch.testing.assert_close(
        pooling(features.contiguous(memory_format=torch.channels_last)), pooling(features)
    )


@pytest.mark.parametrize("exponent", [0.5, 1.0, 3.0, 20.0, 100.0])
def test_generalized_mean_does_not_overflow_or_underflow(exponent: float) -> None:
    values = torch.tensor([[[1e-3, 20.0, 3.0, 40.0]]])
    expected = generalized_mean(values.double(), exponent).float()
    torch.testing.assert_close(generalized_mean(values, exponent), expected)
    assert 9 < float(expected) <= 40


def test_generalized_mean_pools_the_positive_values_of_tokens() -> None:
    """ViT tokens: a channel without a positive value is clamped and has no gradient."""
    tokens = torch.tensor([[[-1.0, -2, -3], [-1, 0, 2]]], dtype=torch.float64)[..., None].requires_grad_()
    value = Gem(2).double()(tokens)
    torch.testing.assert_close(value, torch.tensor([[1e-6, 2 / 3 ** (1 / 3)]], dtype=torch.float64))
    value.sum().backward()
    assert tokens.grad[0, 0].tolist() == [[0], [0], [0]]
    assert tokens.grad[0, 1, 2] > 0


def test_the_exponent_is_learned_or_constant() -> None:
    assert [p.shape for p in Gem(3).parameters()] == [()]
    assert not list(Gem(3, learnable=False).parameters())
    assert set(Gem(3, learnable=False).state_dict()) == {"exponent"}


@pytest.mark.parametrize(
    ("height", "width", "count"),
    [
        (7, 7, 1 + 4 + 9),
        (14, 14, 14),
        (1, 1, 1),
        (2, 2, 14),
        (7, 10, 2 + 6 + 12),
        (10, 7, 20),
        (4, 30, 7 + 16 + 27),
        (10, 17, 2 + 6 + 12),  # 1 or 2 more along the longer side: the overlap is nearer to 0.4 than to 0.5
        (19, 10, 3 + 8 + 15),  # and than to 0.3
    ],
)
def test_rmac_regions_are_inside_the_map_and_reach_its_borders(height: int, width: int, count: int) -> None:
    boxes = regions(height, width, 3)
    assert len(boxes) == count
    assert max(top + side for top, _, side in boxes) == height
    assert max(left + side for _, left, side in boxes) == width
    assert min(min(top, left) for top, left, _ in boxes) == 0
    features = maps(1, height, width)
    np.testing.assert_allclose(Rmac(CHANNELS)(features)[0], oracle.rmac(features[0].numpy(), 3), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 2.0, 20.0])
def test_sinkhorn_equals_entropic_transport(epsilon: float) -> None:
    ot = pytest.importorskip("ot")
    cost = torch.rand(2, 4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2
    plan = sinkhorn(cost, epsilon, 500)
    for image in range(2):
        expected = ot.sinkhorn(
            np.full(4, 1 / 4),
            np.full(9, 1 / 9),
            cost[image].numpy(),
            1 / epsilon,
            stopThr=1e-14,
            numItermax=10000,
        )
        np.testing.assert_allclose(plan[image], expected, rtol=0, atol=1e-9)


def test_sinkhorn_in_single_precision_at_large_epsilon() -> None:
    cost = torch.rand(2, 4, 9, generator=torch.Generator().manual_seed(0)) * 2
    single, double = sinkhorn(cost, 500.0, 10), sinkhorn(cost.double(), 500.0, 10)
    assert float((single - double).abs().max()) < 1e-4
    torch.testing.assert_close(single.sum(1), torch.full((2, 9), 1 / 9))


def test_a_prototype_on_a_feature_has_a_finite_gradient() -> None:
    pooling = build("optimal_transport")
    features = maps().requires_grad_()
    with torch.no_grad():
        pooling.prototypes[1] = pooling.transform(features)[0, :, 1, 1]
    pooling(features).square().sum().backward()
    assert features.grad.isfinite().all()
    assert pooling.prototypes.grad.isfinite().all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gem(3, 0.0), "exponent"),
        (lambda: Rmac(3, 0), "level"),
        (lambda: GeneralizedMax(3, 0.0), "regularization"),
        (lambda: Cbam(8, 16), "larger than the number of channels, 8"),
        (lambda: Weldon(3, 4, 0, 0), "top and bottom"),
        (lambda: Smoothing(3, 4, 2), "odd"),
        (lambda: Netvlad(3, 130, 16), "multiple of its 16"),
        (lambda: OptimalTransport(3, 100, 64), "multiple of the 64"),
        (lambda: OptimalTransport(3, 128, 64, 0.0), "positive"),
        (lambda: Gsop(3, 4, 9)(torch.zeros(1, 3, 2, 2)), "9 positions, got 2 x 2"),
    ],
)
def test_refuses_invalid_settings(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
