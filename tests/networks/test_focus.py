"""The focus layer equals its definition."""

import numpy as np
import pytest
import torch

from tests.oracles import models as oracle
from unseen.networks.focus import Focus


def test_each_square_of_four_becomes_four_channels() -> None:
    fine, coarse = torch.randn(2, 3, 4, 6, dtype=torch.float64), torch.randn(2, 5, 2, 3, dtype=torch.float64)
    layer = Focus(3, 5)
    output = layer(fine, coarse)
    assert output.shape[1] == layer.out_channels == 17
    for image in range(2):
        np.testing.assert_array_equal(
            output[image].numpy(), oracle.focus(fine[image].numpy(), coarse[image].numpy())
        )


def test_shape_of_the_paper() -> None:
    layer = Focus(1024, 2048)
    assert layer(torch.zeros(1, 1024, 14, 14), torch.zeros(1, 2048, 7, 7)).shape == (1, 6144, 7, 7)
    assert layer.out_channels == 6144


def test_gradients() -> None:
    fine, coarse = (
        torch.randn(2, 2, 4, 2, dtype=torch.float64, requires_grad=True),
        torch.randn(2, 1, 2, 1, dtype=torch.float64, requires_grad=True),
    )
    assert torch.autograd.gradcheck(Focus(2, 1), (fine, coarse))


def test_keeps_half_precision() -> None:
    fine, coarse = torch.randn(1, 2, 2, 2).bfloat16(), torch.randn(1, 1, 1, 1).bfloat16()
    assert torch.equal(Focus(2, 1)(fine, coarse).flatten(), torch.cat([fine.flatten(), coarse.flatten()]))


def test_refuses_maps_of_other_sizes() -> None:
    with pytest.raises(ValueError, match="a fine map of 16 x 16 for a coarse map of 8 x 8, got 15 x 15"):
        Focus(4, 8)(torch.zeros(1, 4, 15, 15), torch.zeros(1, 8, 8, 8))
