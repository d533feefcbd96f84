"""BN-Inception (Ioffe and Szegedy, 2015): the Caffe model of the published weights.

Its file is bn_inception-52deb4733.pth.

Its input has channels in the order blue, green, red with values from 0 to 255, minus 104, 117, 128. A recipe
provides RGB with mean (128, 117, 104) / 255 and std 1 / 255, which are the default statistics; the order of
the channels is reversed here.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from unseen.networks.staged import Published, Staged

# Input, 1 x 1, 3 x 3 (reduced, out), double 3 x 3 (reduced, out), pooling and its projection. Blocks without
# projection halve the map.
_INCEPTION: dict[str, tuple[int, int, tuple[int, int], tuple[int, int], str, int]] = {
    "3a": (192, 64, (64, 64), (64, 96), "average", 32),
    "3b": (256, 64, (64, 96), (64, 96), "average", 64),
    "3c": (320, 0, (128, 160), (64, 96), "max", 0),
    "4a": (576, 224, (64, 96), (96, 128), "average", 128),
    "4b": (576, 192, (96, 128), (96, 128), "average", 128),
    "4c": (576, 160, (128, 160), (128, 160), "average", 128),
    "4d": (608, 96, (128, 192), (160, 192), "average", 128),
    "4e": (608, 0, (128, 192), (192, 256), "max", 0),
    "5a": (1056, 352, (192, 320), (160, 224), "average", 128),
    "5b": (1024, 352, (192, 320), (192, 224), "max", 128),
}


class BnInception(Staged):
    """Maps of 64, 192, 320, 608 and 1024 channels at strides 2, 4, 8, 16 and 32.

    The last is 7 x 7 at 224 and at 227 px.

    Parameter names are the published ones: every convolution (with a bias) and its batch norm (name + `_bn`)
    are direct children. Raises ValueError for an input whose maps cannot be halved, because the branches of a
    block would then differ in size.
    """

    plan = (
        ("conv1_7x7_s2",),
        ("pool1", "conv2_3x3_reduce", "conv2_3x3"),
        ("pool2", "inception_3a", "inception_3b"),
        ("inception_3c", "inception_4a", "inception_4b", "inception_4c", "inception_4d"),
        ("inception_4e", "inception_5a", "inception_5b"),
    )
    channels = (64, 192, 320, 608, 1024)
    default_cfg = {  # noqa: RUF012
        "classifier": "last_linear",
        "mean": (128 / 255, 117 / 255, 104 / 255),
        "std": (1 / 255, 1 / 255, 1 / 255),
    }
    published = Published(
        "bn_inception-52deb4733.pth", "http://data.lip6.fr/cadene/pretrainedmodels/bn_inception-52deb4733.pth"
    )

    def __init__(self) -> None:
        super().__init__()
        self._add("conv1_7x7_s2", 3, 64, 7, 2)
        self._add("conv2_3x3_reduce", 64, 64, 1)
        self._add("conv2_3x3", 64, 192, 3)
        for block, (
            width,
            single,
            (reduced, out),
            (double_reduced, double),
            _,
            projection,
        ) in _INCEPTION.items():
            name, stride = f"inception_{block}", 1 if projection else 2
            if single:
                self._add(f"{name}_1x1", width, single, 1)
            self._add(f"{name}_3x3_reduce", width, reduced, 1)
            self._add(f"{name}_3x3", reduced, out, 3, stride)
            self._add(f"{name}_double_3x3_reduce", width, double_reduced, 1)
            self._add(f"{name}_double_3x3_1", double_reduced, double, 3)
            self._add(f"{name}_double_3x3_2", double, double, 3, stride)
            if projection:
                self._add(f"{name}_pool_proj", width, projection, 1)

    def prepare(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B 3 H W"]:
        return images.flip(1)

    def block(self, name: str, x: Float[Tensor, "B L H W"]) -> Float[Tensor, "B M h w"]:
        if name.startswith("pool"):
            return _halved(x)
        return self._inception(name, x) if name.startswith("inception") else self._convolve(name, x)

    def _inception(self, name: str, x: Tensor) -> Tensor:
        *_, pooling, projection = _INCEPTION[name.removeprefix("inception_")]
        triple = self._convolve(f"{name}_3x3", self._convolve(f"{name}_3x3_reduce", x))
        double = self._convolve(f"{name}_double_3x3_1", self._convolve(f"{name}_double_3x3_reduce", x))
        double = self._convolve(f"{name}_double_3x3_2", double)
        if not projection:
            if x.shape[2] % 2 or x.shape[3] % 2:
                height, width = x.shape[2:]
                raise ValueError(
                    f"bn_inception cannot halve its {height} x {width} map: use images of 224, 227 or 256 px."
                )
            return torch.cat([triple, double, _halved(x)], 1)
        pooled = (
            functional.avg_pool2d(x, 3, 1, 1) if pooling == "average" else functional.max_pool2d(x, 3, 1, 1)
        )
        single, projected = self._convolve(f"{name}_1x1", x), self._convolve(f"{name}_pool_proj", pooled)
        return torch.cat([single, triple, double, projected], 1)

    def _add(self, name: str, width: int, out: int, size: int, stride: int = 1) -> None:
        self.add_module(name, nn.Conv2d(width, out, size, stride, size // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(out))

    def _convolve(self, name: str, x: Tensor) -> Tensor:
        convolution, norm = self.get_submodule(name), self.get_submodule(f"{name}_bn")
        return functional.relu(norm(convolution(x)), inplace=True)


def _halved(x: Tensor) -> Tensor:
    return functional.max_pool2d(x, 3, 2, ceil_mode=True)


def checkpoint_filter_fn(state: dict[str, Tensor], network: BnInception) -> dict[str, Any]:
    """Converts the published file, in which all values of a batch norm are rows (1, L)."""
    return {key: value[0] if "_bn." in key and value.ndim == 2 else value for key, value in state.items()}
