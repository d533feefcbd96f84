"""GoogLeNet (Szegedy et al., 2015) as in torchvision.

It has batch norm after every convolution and no auxiliary classifiers.

torchvision's weights were ported from TensorFlow and expect pixels (x - 0.5) / 0.5, which are the default
statistics. CBML, the framework of CRT, normalises pixels by ImageNet's mean and standard deviation instead:
`input.mean` and `input.std` of a recipe.
"""

from typing import Any

import torch

from unseen.networks.staged import Published, Staged
from unseen.networks.torchvision_guard import ensure_torchvision

ensure_torchvision()

import torchvision  # noqa: E402  after the guard

# torchvision.models.GoogLeNet_Weights.IMAGENET1K_V1
_URL = "https://download.pytorch.org/models/googlenet-1378be20.pth"


def _fetch() -> dict[str, Any]:
    return torch.hub.load_state_dict_from_url(_URL, map_location="cpu", check_hash=True, weights_only=True)


class GoogLeNet(Staged):
    """Maps of 64, 192, 480, 832 and 1024 channels at strides 2, 4, 8, 16 and 32.

    Each is the last map before a pooling.

    Parameters have torchvision's names. As in its published weights, convolutions are 3 x 3 where the paper
    has 5 x 5.
    """

    plan = (
        ("conv1",),
        ("maxpool1", "conv2", "conv3"),
        ("maxpool2", "inception3a", "inception3b"),
        ("maxpool3", "inception4a", "inception4b", "inception4c", "inception4d", "inception4e"),
        ("maxpool4", "inception5a", "inception5b"),
    )
    channels = (64, 192, 480, 832, 1024)
    default_cfg = {  # noqa: RUF012
        "classifier": ("fc", "aux1", "aux2"),
        "mean": (0.5,) * 3,
        "std": (0.5,) * 3,
    }
    published = Published("googlenet-1378be20.pth", _URL, _fetch)

    def __init__(self) -> None:
        super().__init__()
        network = torchvision.models.googlenet(weights=None, aux_logits=False, init_weights=True)
        for name in (name for stage in self.plan for name in stage):
            self.add_module(name, getattr(network, name))
