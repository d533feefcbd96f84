"""The last layers of a network, run from the input of the first of them.

    f(x) = tail(front(x))

The front is computed once for each image; then the tail alone is trained. This works for networks whose
layers are a chain: only the input of the tail depends on the image. Every network is checked on noise.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unseen.networks.backbone import layers_of

AGREEMENT = 1e-4  # largest |f(x) - tail(front(x))|, relative to the largest |f(x)|


class Tail(nn.Module):
    """The last `count` layers of a network in eval mode; more, if the first of them is not one module.

    It is a copy of the network, in which the modules before the tail return constants. Parameters outside the
    tail have no gradient.
    """

    shape: tuple[int, ...]  # of the input of one image

    def __init__(self, network: nn.Module, name: str, count: int, size: int) -> None:
        """name: of the network. size: pixels per side of the images.

        Raises ValueError for a network whose layers timm does not define, or are not a chain.
        """
        super().__init__()
        layers = layers_of(network, name)
        if not 0 < count < len(layers):
            raise ValueError(f"{name} has {len(layers)} layers: its tail has 1 to {len(layers) - 1}.")
        while count < len(layers) - 1 and not _module_of(layers[-count]):
            count += 1
        self.names, self.size, self.first = layers[-count:], size, _module_of(layers[-count])
        if not self.first:
            raise ValueError(f"{name} has no layer that is one module.")
        noise = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            shapes = _shapes_before(network, name, self.first, noise)
            inputs = front(network, self.first, noise)
            expected = network(noise)
        self.shape = tuple(inputs.shape[1:])
        self.network: Any = copy.deepcopy(network).eval().requires_grad_(False)
        for path, shape in shapes.items():
            self.network.get_submodule(path).forward = _Constant(shape)
        for parameter in (parameter for layer in self.layers() for parameter in layer):
            parameter.requires_grad_(True)
        self._inputs: list[Tensor] = []
        self.network.get_submodule(self.first).register_forward_pre_hook(self._replace)
        with torch.no_grad():
            difference = float((self(inputs) - expected).abs().max())
        if not difference <= AGREEMENT * float(expected.abs().max()):
            raise ValueError(
                f"the layers of {name} are not a chain: another layer than {self.first} also reads the image."
            )

    def forward(self, inputs: Float[Tensor, "B ..."]) -> Float[Tensor, "B D"]:
        """The output of the network for images whose `front` is `inputs`."""
        self._inputs.append(inputs)
        images = inputs.new_zeros(1).expand(len(inputs), 3, self.size, self.size)
        result: Tensor = self.network(images)
        return result

    def train(self, mode: bool = True) -> "Tail":
        """Batch norm keeps its running statistics, and dropout is off, also in training."""
        return super().train(False)

    def layers(self) -> list[list[nn.Parameter]]:
        """The parameters of the tail, from its first layer to its last."""
        parameters = dict(self.network.named_parameters())
        return [[parameters[name] for name in layer] for layer in self.names]

    def state(self) -> dict[str, Tensor]:
        """Copies of the parameters of the tail, by their names in the network."""
        parameters = dict(self.network.named_parameters())
        return {name: parameters[name].detach().clone() for layer in self.names for name in layer}

    @torch.no_grad()
    def load(self, state: dict[str, Tensor]) -> None:
        """Sets the parameters of the tail to those of `state`."""
        parameters = dict(self.network.named_parameters())
        for name, value in state.items():
            parameters[name].copy_(value)

    def _replace(self, _: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._inputs.pop(), *arguments[1:])


class _Constant:
    """Zeros of the shape of a module's output, as a replacement of its `forward`."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __call__(self, images: Tensor, *_: Any, **__: Any) -> Tensor:
        return images.new_zeros(1).expand(len(images), *self.shape)


class _Reached(Exception):
    """The input of the tail is computed."""


def front(network: nn.Module, first: str, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B ..."]:
    """The input of module `first` of a network. Nothing behind it is computed.

    Raises ValueError if the input is not one tensor.
    """
    reached: list[Tensor] = []

    def stop(_: nn.Module, arguments: tuple[Any, ...]) -> None:
        reached.extend(value for value in arguments[:1] if isinstance(value, Tensor))
        raise _Reached

    handle = network.get_submodule(first).register_forward_pre_hook(stop)
    try:
        network(images)
    except _Reached:
        pass
    finally:
        handle.remove()
    if not reached:
        raise ValueError(f"the input of {first} is not one tensor.")
    return reached[0]


def _module_of(parameters: list[str]) -> str:
    """The path of the smallest module that contains all parameters."""
    paths = [name.split(".")[:-1] for name in parameters]
    shared = next(
        (index for index, parts in enumerate(zip(*paths, strict=False)) if len(set(parts)) > 1),
        min(map(len, paths)),
    )
    return ".".join(paths[0][:shared])


def _shapes_before(
    network: nn.Module, name: str, first: str, images: Float[Tensor, "B 3 H W"]
) -> dict[str, tuple[int, ...]]:
    """The shape of one image's output of each module that runs before module `first`, without the modules
    inside of others."""
    shapes: dict[str, tuple[int, ...]] = {}
    within: list[str] = []
    calls = 0

    def begins(path: str) -> Any:
        def hook(_: nn.Module, __: tuple[Any, ...]) -> None:
            nonlocal calls
            within.append(path)
            calls += path == first

        return hook

    def ends(path: str) -> Any:
        def hook(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
            within.pop()
            if calls or _contains(path, first) or any(not _contains(outer, first) for outer in within):
                return
            if path in shapes or not isinstance(output, Tensor) or len(output) != len(images):
                raise ValueError(f"the layers of {name} are not a chain: {path} is not a layer of it.")
            shapes[path] = tuple(output.shape[1:])

        return hook

    with _hooks(network, begins, ends):
        network(images)
    if calls != 1:
        raise ValueError(f"the layers of {name} are not a chain: {first} runs {calls} times.")
    return shapes


def _contains(path: str, other: str) -> bool:
    return path == "" or other == path or other.startswith(f"{path}.")


@contextmanager
def _hooks(network: nn.Module, begins: Any, ends: Any) -> Iterator[None]:
    handles = []
    for path, module in network.named_modules():
        handles += [module.register_forward_pre_hook(begins(path)), module.register_forward_hook(ends(path))]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
