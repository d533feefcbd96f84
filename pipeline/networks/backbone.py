"""Backbones by name: networks of timm, and the networks of networks.py.

Parameters have the names of the library or of the published file, so that weight files of timm and the hub
can be loaded.
"""

import difflib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unseen.networks.batch_norm import fix, freeze, set_momentum, synchronise
from unseen.networks.checkpoint import fit, read_state
from unseen.networks.hub_names import repository_of
from unseen.networks.local_weights import require_available, weights_of
from unseen.networks.networks import PROJECT_NETWORKS, ProjectNetwork
from unseen.networks.staged import Staged
from unseen.networks.torchvision_guard import ensure_torchvision
from unseen.networks.weights import require_published_bytes

ensure_torchvision()

import timm  # noqa: E402  after the guard
from timm.models import group_parameters  # noqa: E402
from timm.models.efficientnet import EfficientNet  # noqa: E402

_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
RESERVED = {
    "pretrained",
    "num_classes",
    "features_only",
    "checkpoint_path",
    "pretrained_cfg",
    "pretrained_cfg_overlay",
    "scriptable",
    "in_chans",
}


@dataclass
class Features:
    """The feature maps of the requested stages in their order, and the class token if the network has one."""

    maps: tuple[Tensor, ...]  # (B, L, H, W) each; L, H and W differ between stages
    cls: Float[Tensor, "B L"] | None


class Backbone(nn.Module):
    """Network `name`, of timm or of `PROJECT_NETWORKS`, or the class `module`, without its classifier.

    `stages` are indices of the feature maps of the network, the coarsest last; negative indices count from
    the end. Layers that no requested map needs are removed. The last map of a transformer is after its final
    norm. In a plain vision transformer each block is a stage; the map consists of the patch tokens after the
    final norm, and `cls` is token 0 after that norm (the class token, not a distillation token). The last map
    of a network of the EfficientNet family is after its closing 1 x 1 convolution, as published: 1280
    channels for mobilenetv2_100. MobileNetV3 and V4 apply that convolution to the pooled vector; there it
    belongs to the classifier.

    `pretrained` downloads the weights of the tag in the name. `checkpoint` overrides it: a .safetensors or
    weights-only .pth file with the names of timm or of the published file, of any floating-point type, with
    or without a classifier. `arguments` are passed to timm.create_model, or to the network of
    `PROJECT_NETWORKS`. `batch_norm`: "batch" uses the statistics of the batch of all workers, "frozen" the
    running statistics (see `freeze`), "fixed" also fixes scale and shift (see `fix`). `batch_norm_momentum`:
    the share of a new batch in the running statistics; None keeps that of the network.

    Raises ValueError for a name, argument, stage or checkpoint that does not fit, and FileNotFoundError for
    missing weights.
    """

    channels: tuple[int, ...]  # of each map, in the order of `stages`
    stages: tuple[int, ...]  # index of each map among all maps of the network
    cls_channels: int | None  # of the class token; None: the network has none
    input_size: tuple[int, int] | None  # required height and width; None: any
    mean: tuple[float, ...]  # of RGB in [0, 1], in the training of the published weights
    std: tuple[float, ...]  # standard deviation, likewise

    def __init__(
        self,
        name: str,
        pretrained: bool = False,
        checkpoint: str | Path | None = None,
        arguments: dict[str, Any] | None = None,
        stages: tuple[int, ...] = (-1,),
        batch_norm: Literal["frozen", "fixed", "batch"] = "batch",
        batch_norm_momentum: float | None = None,
        module: str | None = None,
    ) -> None:
        super().__init__()
        network: Any = _create(name, pretrained and checkpoint is None, arguments or {}, module)
        if checkpoint is not None:
            path = Path(checkpoint)
            if not path.is_file():
                raise FileNotFoundError(f"The checkpoint {path} of {name} is missing.")
            fit(network, name, read_state(path), f"checkpoint {path}")
        count = len(network.feature_info)
        if not stages or any(not -count <= stage < count for stage in stages):
            raise ValueError(
                f"{name} has {count} feature maps, 0 to {count - 1} or -{count} to -1; "
                f"got stages {list(stages)}."
            )
        self.stages = tuple(stage % count for stage in stages)
        self._indices = sorted(set(self.stages))
        self._closes = isinstance(network, EfficientNet) and self._indices[-1] == count - 1
        network.prune_intermediate_layers([self._indices[-1]], prune_norm=False, prune_head=not self._closes)
        widths = [info["num_chs"] for info in network.feature_info]
        if self._closes:
            widths[-1] = network.num_features
        self.channels = tuple(widths[stage] for stage in self.stages)
        has_token = getattr(network, "cls_token", None) is not None
        has_token = has_token and getattr(network, "num_prefix_tokens", 0) > 0
        self.cls_channels = network.num_features if has_token else None
        embed = getattr(network, "patch_embed", None)
        fixed = getattr(embed, "strict_img_size", False) and not getattr(network, "dynamic_img_size", False)
        self.input_size = tuple(embed.img_size) if embed is not None and fixed else None
        self.mean, self.std = (
            tuple(map(float, network.default_cfg.get(key, default))) for key, default in _IMAGENET.items()
        )
        self._name, self._frozen = name, batch_norm != "batch"
        if batch_norm_momentum is not None:
            set_momentum(network, batch_norm_momentum)
        network = network if self._frozen else synchronise(network)
        # Convolutions are faster with channels last. On a CPU, torch then sums batch statistics in float32:
        # with 5e4 values per channel their relative error is 4e-6 instead of 4e-8, with 1e6 values 7e-5.
        self.network = network.to(memory_format=torch.channels_last)
        if batch_norm == "fixed":
            fix(self.network)
        self.train()

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Features:
        network: Any = self.network
        images = images.contiguous(memory_format=torch.channels_last)
        final, maps = network.forward_intermediates(images, indices=self._indices, norm=True)
        if self._closes:
            maps[-1] = final
        by_stage = dict(zip(self._indices, maps, strict=True))
        token = None if self.cls_channels is None else final[:, 0]
        return Features(tuple(by_stage[stage] for stage in self.stages), token)

    def train(self, mode: bool = True) -> "Backbone":
        super().train(mode)
        if self._frozen:
            freeze(self.network)
        return self

    def layers(self) -> list[list[nn.Parameter]]:
        """Every parameter once, from the stem to the last block, for learning rates by layer.

        timm defines the layers of its networks. Raises ValueError for a network without this definition.
        """
        parameters = dict(self.network.named_parameters())
        return [[parameters[key] for key in layer] for layer in layers_of(self.network, self._name)]


def layers_of(network: nn.Module, name: str) -> list[list[str]]:
    """The names of the parameters of each layer of a network, from the stem to the last block.

    Raises ValueError for a network `name` whose layers timm does not define.
    """
    defined: Any = network
    if not hasattr(network, "group_matcher"):
        raise ValueError(f"timm does not define the layers of {name}: train it with one learning rate.")
    groups = group_parameters(defined, defined.group_matcher(coarse=False))
    return [groups[layer] for layer in sorted(groups)]


def require_network(name: str) -> None:
    """Raises ValueError for a name that neither timm nor `PROJECT_NETWORKS` has."""
    if name not in PROJECT_NETWORKS and not timm.is_model(name):
        close = difflib.get_close_matches(name, [*PROJECT_NETWORKS, *timm.list_models()], n=3)
        suggestion = f" Did you mean {', '.join(close)}?" if close else ""
        if repository_of(name) is not None:
            suggestion = " Only --network reads other repositories of the Hugging Face hub."
        raise ValueError(f"timm has no network {name!r}.{suggestion}")


def require_published(network: nn.Module, name: str) -> None:
    """Raises FileNotFoundError for a network of `PROJECT_NETWORKS` with weights that no library downloads."""
    if isinstance(network, Staged) and (network.published is None or network.published.fetch is None):
        if network.published is None:
            raise FileNotFoundError(
                f"{name} has no published weights: train it from scratch with `pretrained: false`."
            )
        raise FileNotFoundError(
            f"No library downloads the pretrained weights of {name}: download {network.published.file} from "
            f"{network.published.page} and set it as `checkpoint` of the backbone, or train from scratch "
            "with `pretrained: false`."
        )


def _create(name: str, pretrained: bool, arguments: dict[str, Any], module: str | None) -> nn.Module:
    if module is None:
        require_network(name)
    own = PROJECT_NETWORKS.get(name) if module is None else ProjectNetwork(*module.split(":"))
    reserved = RESERVED & arguments.keys()
    if reserved:
        raise ValueError(
            f"backbone.arguments must not contain {sorted(reserved)}, which this project sets; "
            "other options of the network, such as img_size, are accepted."
        )
    try:
        build = partial(_create_by_timm, name, pretrained) if own is None else own.build
        network: Any = build(arguments)
    except OSError as error:
        raise _not_fetched(name, _weights_file(name), error) from error
    except (TypeError, ValueError, RuntimeError, AssertionError, KeyError) as error:
        options = f" with {arguments}" if arguments else ""
        builder = "timm" if own is None else "this project"
        raise ValueError(
            f"{builder} cannot build {name}{options}: {type(error).__name__}: {error}"
        ) from error
    if own is not None and pretrained:
        _load_published(network, name)
    return network


def _create_by_timm(name: str, pretrained: bool, arguments: dict[str, Any]) -> nn.Module:
    if pretrained:
        require_available(name)
    network: nn.Module = timm.create_model(name, pretrained=pretrained, num_classes=0, **arguments)
    if pretrained and (path := weights_of(name).path) is not None:
        require_published_bytes(path)
    return network


def _load_published(network: Staged, name: str) -> None:
    require_published(network, name)
    published = network.published
    assert published is not None
    assert published.fetch is not None
    try:
        state = published.fetch()
    except OSError as error:
        raise _not_fetched(name, f"{published.file} of {published.page}", error) from error
    fit(network, name, state, f"file {published.file} of {published.page}")


def _not_fetched(name: str, file: str, error: OSError) -> FileNotFoundError:
    return FileNotFoundError(
        f"The pretrained weights of {name} could not be fetched ({type(error).__name__}): {file}. "
        "Download this file on a machine with a connection and set it as `checkpoint` of the backbone, "
        "or train from scratch with `pretrained: false`."
    )


def _weights_file(name: str) -> str:
    settings = timm.get_pretrained_cfg(name)
    if settings is not None and settings.hf_hub_id:
        return f"model.safetensors of {settings.hf_hub_id} on the Hugging Face hub"
    return str(settings.url) if settings is not None and settings.url else "timm does not name its file"
