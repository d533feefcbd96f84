"""Published networks as a whole: the number of dimensions of their vectors."""

import pytest
import torch
from torch import Tensor, nn

from unseen.networks.published_network import width


class Tokens(nn.Module):
    def forward(self, images: Tensor) -> dict[str, Tensor]:
        return {"tokens": images}


def test_the_width_is_that_of_one_vector_per_picture() -> None:
    assert width(nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5)), "net", 8) == 5


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nn.Conv2d(3, 4, 1), r"net gives no vector per picture: its output is \(1, 4, 8, 8\)\."),
        (Tokens(), r"net gives no vector per picture: its output is dict\."),
        (nn.Linear(7, 5), r"net does not accept pictures of 8 x 8: mat1 and mat2"),
    ],
)
def test_another_output_is_an_error_with_its_shape(network: nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=message), torch.inference_mode():
        width(network, "net", 8)
