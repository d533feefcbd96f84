"""The coded residual transform equals its definition, also for large values and half precision."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.oracles import models as oracle
from unseen.networks.coded_residual import CodedResidualBranches, CodedResidualTransform, coded_residuals


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale


@pytest.mark.parametrize("prototypes", [1, 5])
def test_residuals_equal_the_weighted_differences(prototypes: int) -> None:
    features, centres = draw(3, 4, 6), draw(prototypes, 4, seed=1)
    expected = oracle.coded_residuals(features.transpose(1, 2).numpy(), centres.numpy())
    np.testing.assert_allclose(coded_residuals(features, centres).numpy(), expected, rtol=1e-12)


def test_gradients_of_the_residuals() -> None:
    features, centres = draw(2, 3, 5).requires_grad_(), draw(4, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(coded_residuals, (features, centres))
    assert torch.autograd.gradcheck(lambda f: coded_residuals(f, centres.detach()), (features,))
    assert torch.autograd.gradcheck(lambda c: coded_residuals(features.detach(), c), (centres,))


def test_gradient_of_features_without_contiguous_memory() -> None:
    tokens = draw(2, 5, 3).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda t: coded_residuals(t.transpose(1, 2), draw(4, 3, seed=1)), (tokens,)
    )


def test_far_correlations_keep_value_and_gradient() -> None:
    """Softplus is linear at +800 and 0 at -800, where its exponential overflows."""
    # (1, L = 2, P = 2)
    features = torch.tensor([[[40.0, -40.0], [0.0, 0.0]]], dtype=torch.float64, requires_grad=True)
    centres = torch.tensor([[20.0, 0.0]], dtype=torch.float64, requires_grad=True)
    residuals = coded_residuals(features, centres)
    torch.testing.assert_close(residuals, torch.tensor([[[800.0 * 20, 0]]], dtype=torch.float64))
    residuals[0, 0, 0].backward()
    # d/dx [x.c (x - c)] = c (x - c) + x.c on the first axis at the near position, 0 at the far one
    torch.testing.assert_close(
        features.grad, torch.tensor([[[20.0 * 20 + 800, 0], [0.0, 0.0]]], dtype=torch.float64)
    )
    torch.testing.assert_close(centres.grad, torch.tensor([[40.0 * 20 - 800, 0.0]], dtype=torch.float64))


def parts(head: CodedResidualTransform) -> list[np.ndarray]:
    """Its weights in the form of the oracle; a shared network occurs once per prototype."""
    count, networks = len(head.prototypes), len(head.first_weight)
    first, bias, second = head.first_weight, head.first_bias.view(networks, -1), head.second_weight
    tensors = [
        head.prototypes,
        *(t.expand(count, *t.shape[1:]) for t in (first, bias, second)),
        head.second_bias,
    ]
    return [tensor.detach().numpy() for tensor in tensors]


@pytest.mark.parametrize("shared_network", [False, True])
@pytest.mark.parametrize("prototypes", [1, 3])
def test_transform_equals_the_mean_of_the_networks(prototypes: int, shared_network: bool) -> None:
    head = CodedResidualTransform(
        channels=4, prototypes=prototypes, dim=6, hidden=5, shared_network=shared_network
    ).double()
    assert len(head.first_weight) == (1 if shared_network else prototypes)
    features = draw(2, 4, 3, 2)
    expected = oracle.coded_residual_transform(features.flatten(2).transpose(1, 2).numpy(), *parts(head))
    np.testing.assert_allclose(head(features).detach().numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(head(features, 2).detach().numpy(), expected[:, :2], rtol=1e-12)


@pytest.mark.parametrize("shared_network", [False, True])
@pytest.mark.parametrize("prototypes", [1, 2])
def test_gradients_of_the_transform(prototypes: int, shared_network: bool) -> None:
    head = CodedResidualTransform(
        channels=3, prototypes=prototypes, dim=2, hidden=3, shared_network=shared_network
    ).double()
    assert torch.autograd.gradcheck(call(head), (draw(2, 3, 2, 2).requires_grad_(), *head.parameters()))


def call(head: nn.Module) -> Callable[..., object]:
    """The head as a function of features and parameters."""
    names = [name for name, _ in head.named_parameters()]

    def run(features: Tensor, *values: Tensor) -> object:
        return torch.func.functional_call(head, dict(zip(names, values, strict=True)), (features,))

    return run


@pytest.mark.slow
@pytest.mark.parametrize("shared_network", [False, True])
def test_separate_branches_are_independent_transforms(shared_network: bool) -> None:
    head = CodedResidualBranches(4, (3, 2), (5, 7), (6, 2), shared_network=shared_network).double()
    features = draw(2, 4, 3, 2)
    positions = features.flatten(2).transpose(1, 2).numpy()
    for output, transform, dim in zip(head(features), head.transforms, (5, 7), strict=True):
        assert output.shape == (2, dim)
        np.testing.assert_allclose(
            output.detach().numpy(), oracle.coded_residual_transform(positions, *parts(transform)), rtol=1e-12
        )
    assert [tuple(prototypes.shape) for prototypes in head.prototypes] == [(3, 4), (2, 4)]
    assert len({id(prototypes) for prototypes in head.prototypes}) == 2
    assert torch.autograd.gradcheck(call(head), (features.requires_grad_(), *head.parameters()))


@pytest.mark.slow
@pytest.mark.parametrize("prototypes", [1, 3])
@pytest.mark.parametrize("shared_network", [False, True])
def test_shared_branches_share_all_but_the_last_layer(prototypes: int, shared_network: bool) -> None:
    head = CodedResidualBranches(
        4, (prototypes,) * 2, (2, 5), (3, 3), shared=True, shared_network=shared_network
    ).double()
    features = draw(2, 4, 3, 2)
    positions = features.flatten(2).transpose(1, 2).numpy()
    centres, first, first_bias, second, second_bias = parts(head.transforms[0])
    for output, columns in zip(head(features), (slice(0, 2), slice(2, 7)), strict=True):
        expected = oracle.coded_residual_transform(
            positions, centres, first, first_bias, second[..., columns], second_bias[columns]
        )
        np.testing.assert_allclose(output.detach().numpy(), expected, rtol=1e-12)
    assert len(head.prototypes) == 2
    assert head.prototypes[0] is head.prototypes[1]
    assert torch.autograd.gradcheck(call(head), (features.requires_grad_(), *head.parameters()))


@pytest.mark.parametrize("shared", [False, True])
def test_the_first_branch_does_not_depend_on_the_second(shared: bool) -> None:
    head = CodedResidualBranches(4, (3, 3), (2, 5), (6, 6), shared).double()
    features = draw(2, 4, 3, 2)
    (first_only,) = head(features, 1)
    torch.testing.assert_close(first_only, head(features)[0])


def test_parameters_of_the_heads_of_the_paper() -> None:
    """64 prototypes of 512 channels, hidden width 512: 21 million parameters for D = 128 and 50 million for D
    = 1024. Shared branches have 17 million less than the sum."""

    def count(dims: tuple[int, ...], **sharing: bool) -> int:
        with torch.device("meta"):
            head = CodedResidualBranches(512, (64,) * len(dims), dims, (512,) * len(dims), **sharing)
        return sum(parameter.numel() for parameter in head.parameters())

    network = 512 * 512 + 512
    assert (count((128,)), count((1024,))) == (
        64 * (512 + network + 512 * 128) + 128,
        64 * (512 + network + 512 * 1024) + 1024,
    )
    assert (round(count((128,)) / 1e6), round(count((1024,)) / 1e6)) == (21, 50)
    assert count((128, 1024)) == count((128,)) + count((1024,))
    assert count((128, 1024), shared=True) == count((128,)) + count((1024,)) - 64 * (512 + network)
    assert count((128,), shared_network=True) == 64 * 512 + network + 512 * 128 + 128


@pytest.mark.parametrize(
    ("prototypes", "dims", "hidden", "message"),
    [
        ((49, 64), (128, 1024), (128, 128), "need equal prototypes"),
        ((64, 64), (128, 1024), (128, 256), "need equal prototypes and hidden widths"),
        ((64,), (128, 1024), (128, 128), "differ in length"),
        ((), (), (), "differ in length"),
    ],
)
def test_refuses_invalid_branches(prototypes: tuple, dims: tuple, hidden: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CodedResidualBranches(8, prototypes, dims, hidden, shared=True)


class Largest(TorchDispatchMode):
    """Counts the elements of the largest tensor that any operation creates."""

    elements = 0

    def __torch_dispatch__(
        self, func: Callable, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


@pytest.mark.parametrize(
    "sharing", [{}, {"shared": True}, {"shared_network": True}, {"shared": True, "shared_network": True}]
)
def test_never_stores_the_differences_of_features_and_prototypes(sharing: dict[str, bool]) -> None:
    batch, channels, positions, prototypes = 4, 24, 36, 12
    head = CodedResidualBranches(channels, (prototypes,) * 2, (8, 16), (8, 8), **sharing)
    features = draw(batch, channels, 6, 6).float().requires_grad_()
    with Largest() as largest:
        torch.autograd.backward(head(features), [torch.ones(batch, 8), torch.ones(batch, 16)])
    saved_tensors = [
        batch * prototypes * channels,
        batch * prototypes * positions,
        features.numel(),
        *(parameter.numel() for parameter in head.parameters()),
    ]
    assert 0 < largest.elements <= max(saved_tensors) < batch * prototypes * positions * channels / 9


def test_each_network_starts_like_a_linear_layer_of_its_own_fan_in() -> None:
    torch.manual_seed(0)
    head = CodedResidualTransform(channels=64, prototypes=8, dim=32, hidden=16)
    for weight, fan_in in (
        (head.prototypes, 64),
        (head.first_weight, 64),
        (head.first_bias, 64),
        (head.second_weight, 16),
    ):
        bound = fan_in**-0.5
        assert 0.9 * bound < float(weight.detach().abs().max()) <= bound
    assert float(head.second_bias.detach().abs().max()) <= 16**-0.5


def test_biases_have_one_dimension_to_be_excluded_from_weight_decay() -> None:
    head = CodedResidualTransform(channels=4, prototypes=3, dim=2, hidden=2)
    assert {name for name, parameter in head.named_parameters() if parameter.ndim == 1} == {
        "first_bias",
        "second_bias",
    }


@pytest.mark.parametrize("sharing", [{}, {"shared": True}, {"shared_network": True}])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mixed_precision_stays_close(dtype: torch.dtype, sharing: dict[str, bool]) -> None:
    torch.manual_seed(0)
    head = CodedResidualBranches(32, (4, 4), (8, 24), (16, 16), **sharing)
    features = torch.randn(4, 32, 4, 4)
    with torch.autocast("cpu", dtype=dtype):
        rounded = head(features.to(dtype))
    for exact, output in zip(head(features), rounded, strict=True):
        cosine = torch.nn.functional.cosine_similarity(exact, output.float())
        assert float(cosine.detach().min()) > 0.999
