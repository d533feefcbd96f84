"""The tail of a network on the input of its first layer equals the network, and is all that is trained."""

import pytest
import torch
from torch import nn

from unseen.networks.backbone import layers_of
from unseen.networks.published_network import timm
from unseen.networks.tail import Tail, front


def built(name: str) -> nn.Module:
    torch.manual_seed(0)
    network: nn.Module = timm.create_model(name, num_classes=0).eval().requires_grad_(False)
    return network


@pytest.mark.parametrize(
    ("name", "size"), [("test_resnet", 32), ("test_efficientnet", 32), ("test_vit", 160)]
)
@pytest.mark.parametrize("count", [2, 3])
def test_tail_of_the_front_is_the_network(name: str, size: int, count: int) -> None:
    network = built(name)
    tail = Tail(network, name, count, size)
    images = torch.rand(3, 3, size, size)
    inputs = front(network, tail.first, images)
    assert tuple(inputs.shape[1:]) == tail.shape
    expected = network.requires_grad_(True)(images)
    result = tail(inputs)
    assert torch.equal(result, expected)
    parameters = dict(network.named_parameters())
    names = [name for layer in layers_of(network, name)[-count:] for name in layer]
    gradients = torch.autograd.grad(expected.square().sum(), [parameters[key] for key in names])
    result.square().sum().backward()
    assert len(tail.names) == count
    own = dict(tail.network.named_parameters())
    assert [key for key, value in own.items() if value.requires_grad] == [key for key in own if key in names]
    for key, gradient in zip(names, gradients, strict=True):
        assert torch.allclose(own[key].grad, gradient, rtol=1e-4, atol=1e-7), key
    assert sorted(tail.state()) == sorted(names)


def test_begins_with_a_layer_that_is_one_module() -> None:
    tail = Tail(built("test_efficientnet"), "test_efficientnet", 1, 32)
    assert tail.first == "blocks.3.0", "the last layer has two modules: conv_head and bn2"
    assert len(tail.names) == 2


def test_state_can_be_restored_and_does_not_touch_the_network() -> None:
    network = built("test_resnet")
    tail = Tail(network, "test_resnet", 1, 32)
    inputs = torch.rand(2, *tail.shape)
    published, before = tail.state(), tail(inputs).detach()
    with torch.no_grad():
        for parameter in tail.layers()[0]:
            parameter.add_(0.1)
    assert not torch.equal(tail(inputs), before)
    tail.load(published)
    assert torch.equal(tail(inputs), before)
    own = network.state_dict()
    assert all(torch.equal(own[name], value) for name, value in published.items())


def test_training_mode_changes_no_statistics_of_batch_norm() -> None:
    tail = Tail(built("test_resnet"), "test_resnet", 1, 32).train()
    buffers = {name: value.clone() for name, value in tail.named_buffers()}
    tail(torch.rand(2, *tail.shape))
    assert buffers
    assert all(torch.equal(value, buffers[name]) for name, value in tail.named_buffers())


class Skips(nn.Module):
    """A network whose last layer reads the image too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

    def group_matcher(self, coarse: bool = False) -> dict[str, str]:
        return {"stem": "^first", "blocks": "^second"}

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return (self.second(self.first(images)) + images).mean((2, 3))


class Repeats(Skips):
    """A network that runs its last layer twice."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.second(self.second(self.first(images))).mean((2, 3))


class Shares(Skips):
    """A network that runs a layer before the last one twice."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(self.first(images))).mean((2, 3))


class Bare(nn.Module):
    """A network whose parameters are in no module."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

    group_matcher = Skips.group_matcher


class OfList(nn.Conv2d):
    """A layer that reads a list of tensors."""

    def forward(self, images: list[torch.Tensor]) -> torch.Tensor:  # type: ignore[override]
        return super().forward(images[0])


class Lists(Skips):
    """A network whose last layer reads a list, as those of DenseNet."""

    def __init__(self) -> None:
        super().__init__()
        self.second = OfList(3, 3, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.second([self.first(images)]).mean((2, 3))


def test_refuses_a_network_that_is_no_chain() -> None:
    with pytest.raises(ValueError, match="another layer than second also reads the image"):
        Tail(Skips().eval(), "skips", 1, 8)
    with pytest.raises(ValueError, match="second runs 2 times"):
        Tail(Repeats().eval(), "repeats", 1, 8)
    with pytest.raises(ValueError, match="not a chain: first is not a layer of it"):
        Tail(Shares().eval(), "shares", 1, 8)
    with pytest.raises(ValueError, match="bare has no layer that is one module"):
        Tail(Bare(), "bare", 1, 8)
    with pytest.raises(ValueError, match="input of second is not one tensor"):
        Tail(Lists().eval(), "lists", 1, 8)
    with pytest.raises(ValueError, match="its tail has 1 to 4"):
        Tail(built("test_resnet"), "test_resnet", 5, 32)
    with pytest.raises(ValueError, match="timm does not define the layers"):
        Tail(nn.Identity(), "identity", 1, 32)
