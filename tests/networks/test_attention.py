"""Second-order attention equals its definition and starts as the identity."""

import numpy as np
import pytest
import torch

from tests.oracles import models as oracle
from unseen.networks.attention import GspSecondOrderAttention, SecondOrderAttention


def test_starts_as_the_identity() -> None:
    block = SecondOrderAttention(8, 2)
    x = torch.randn(3, 8, 4, 5)
    assert torch.equal(block(x), x)


@pytest.mark.parametrize("scale", [None, 1.0, 0.3])
def test_sums_all_positions_weighted_by_softmax(scale: float | None) -> None:
    torch.manual_seed(0)
    block = SecondOrderAttention(6, 2, scale).double().eval()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter)
    for norm in (block.f[1], block.g[1]):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    x = torch.randn(2, 6, 3, 2, dtype=torch.float64)
    output = block(x).detach().flatten(2).transpose(1, 2).numpy()
    with torch.no_grad():
        query, key, value = (
            branch(x).flatten(2).transpose(1, 2).numpy() for branch in (block.f, block.g, block.h)
        )
    assert (query >= 0).all()
    for image in range(2):
        expected = oracle.second_order_attention(
            x[image].flatten(1).T.numpy(),
            query[image],
            key[image],
            value[image],
            block.v.weight.detach().flatten(1).numpy(),
            block.v.bias.detach().numpy(),
            scale if scale is not None else 3**-0.5,
        )
        np.testing.assert_allclose(output[image], expected, rtol=1e-10)


def test_every_weight_has_a_gradient_once_the_output_is_not_zero() -> None:
    torch.manual_seed(0)
    block = SecondOrderAttention(8, 4)
    x = torch.randn(4, 8, 3, 3)
    block(x).square().sum().backward()
    assert float(block.v.weight.grad.abs().sum()) > 0
    torch.nn.init.normal_(block.v.weight)
    block.zero_grad()
    block(x).square().sum().backward()
    # a bias in front of a batch norm has no effect
    assert all(
        float(p.grad.abs().sum()) > 1e-3
        for name, p in block.named_parameters()
        if name not in ("f.0.bias", "g.0.bias")
    )


def test_gradients() -> None:
    torch.manual_seed(0)
    block = SecondOrderAttention(4, 2, 1.0).double().train()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter)
    assert torch.autograd.gradcheck(
        block, (torch.randn(3, 4, 2, 2, dtype=torch.float64, requires_grad=True),)
    )


def test_one_position_attends_to_itself() -> None:
    torch.manual_seed(0)
    block = SecondOrderAttention(4, 2).eval()
    torch.nn.init.normal_(block.v.weight)
    x = torch.randn(2, 4, 1, 1)
    torch.testing.assert_close(block(x), x + block.v(block.h(x)))


@pytest.mark.parametrize("scale", [None, 1.0])
def test_mixed_precision_stays_close(scale: float | None) -> None:
    torch.manual_seed(0)
    block = SecondOrderAttention(64, 4, scale).eval()
    torch.nn.init.normal_(block.v.weight, std=0.1)
    x = torch.randn(2, 64, 5, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = block(x)
    assert (
        float(torch.nn.functional.cosine_similarity(rounded.flatten(1), block(x).flatten(1)).detach().min())
        > 0.999
    )


def test_refuses_a_reduction_to_no_channel() -> None:
    with pytest.raises(ValueError, match="the reduction 4 exceeds the 3 channels"):
        SecondOrderAttention(3, 4)


def test_the_block_of_gsp_has_the_constants_of_keras() -> None:
    torch.manual_seed(0)
    block = GspSecondOrderAttention(64, 1)
    assert [(norm.eps, norm.momentum) for norm in (block.f[1], block.g[1])] == [(1e-3, 0.01)] * 2
    bound = (6 / 128) ** 0.5  # Glorot
    for convolution in (block.f[0], block.g[0], block.h, block.v):
        assert 0.95 * bound < float(convolution.weight.detach().abs().max()) <= bound
        assert not convolution.bias.detach().any()
    assert block.scale == 64**-0.5
