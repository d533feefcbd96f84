"""Networks of timm as published: with their own pooling and head, and the preprocessing of their training.

The embedding is what timm returns for `num_classes=0`: the pooled features before the classifier (class
token, average, or the attention pooling of SigLIP). The image tower of a CLIP model (CLIP, EVA-02-CLIP,
PE-Core, MobileCLIP, ViTamin) ends with a projection into the space that images and texts share. timm stores
this projection in place of a classifier, and its output is the published embedding; it is kept.
"""

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unseen.networks.backbone import require_network
from unseen.networks.checkpoint import fit
from unseen.networks.torchvision_guard import ensure_torchvision

ensure_torchvision()

import timm  # noqa: E402  after the guard
from timm.data import infer_imagenet_subset  # noqa: E402
from timm.models import vision_transformer  # noqa: E402

# timm states no kind of head. Every published classifier has at least 1,000 classes: those of an ImageNet
# subset that timm recognises, or more than any projection has dimensions.
LARGEST_PROJECTION = 4096
Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Published:
    """What timm states about published weights."""

    name: str  # with the tag of the weights
    size: int  # pixels per side of the input
    fixed: bool  # whether only that size is accepted, unless the network can be resized
    crop_share: float  # side of the centre crop / side of the resized picture
    squash: bool  # whether both sides are resized, otherwise the shorter one
    interpolation: str
    mean: Triple  # of RGB in [0, 1]
    std: Triple
    projection: bool  # whether the head is a projection, not a classifier
    licence: str  # as timm states it, of the weights
    file: str  # where the weights are

    @property
    def resize(self) -> int:
        """The side of the resized picture, from which the centre is cropped."""
        return self.resize_for(self.size)

    def resize_for(self, size: int) -> int:
        return math.floor(size / self.crop_share)


def published(name: str) -> Published:
    """The statement of timm for a network with or without a tag; without one, for its default weights.

    Raises ValueError for an unknown name, a network without published weights, and a preprocessing that is
    not supported (a picture that is padded or not square).
    """
    require_network(name)
    try:
        about = timm.get_pretrained_cfg(name) if timm.is_model(name) else None
    except RuntimeError:  # an unknown tag
        about = None
    if about is None or not about.has_weights:
        tags = timm.list_pretrained(f"{name.partition('.')[0]}.*")
        raise ValueError(
            f"timm has no published weights {name}; of this network it has {', '.join(tags) or 'none'}."
        )
    return Published(
        f"{about.architecture}.{about.tag}" if about.tag else str(about.architecture),
        fixed=bool(about.fixed_input_size),
        projection=0 < about.num_classes <= LARGEST_PROJECTION and infer_imagenet_subset(about) is None,
        **preprocessing(name, about),
    )


def preprocessing(name: str, about: Any) -> dict[str, Any]:
    """The fields of `Published` by timm's settings of weights. Raises ValueError for a preprocessing that is
    not supported."""
    _, height, width = about.input_size
    if height != width:
        raise ValueError(f"{name} embeds pictures of {width} x {height} pixels; only squares are supported.")
    if about.crop_mode not in ("center", "squash") or about.interpolation not in ("bilinear", "bicubic"):
        raise ValueError(
            f"{name} needs pictures with crop mode {about.crop_mode} and {about.interpolation} "
            "interpolation, "
            "which are not supported."
        )
    hub = f"https://huggingface.co/{about.hf_hub_id}" if about.hf_hub_id else ""
    return {
        "size": width,
        "crop_share": float(about.crop_pct),
        "squash": about.crop_mode == "squash",
        "interpolation": str(about.interpolation),
        "mean": _triple(about.mean),
        "std": _triple(about.std),
        "licence": str(about.license or "unknown"),
        "file": hub or str(about.url or "unknown"),
    }


def weights_of_architecture(name: str) -> list[Published]:
    """The statements for all published weights of the architecture of `name`, the default first."""
    architecture = name.partition(".")[0]
    tags = timm.list_pretrained(f"{architecture}.*")
    return [published(architecture), *(published(tag) for tag in tags if tag != published(architecture).name)]


def build(
    name: str, arguments: dict[str, Any] | None = None, size: int | None = None, download: bool = False
) -> nn.Module:
    """The network in eval mode, with random weights or, with `download`, with the published ones.

    `arguments` are passed to timm.create_model. `size`: pixels per side of the input, by default the
    published size; position embeddings are interpolated as timm does.

    Raises ValueError for arguments and sizes that the network does not accept, and OSError or another error
    of the connection if the weights cannot be downloaded.
    """
    about = published(name)
    options = dict(arguments or {})
    if not about.projection:
        options["num_classes"] = 0
    try:
        network: Any = timm.create_model(name, pretrained=download, **options)
    except (TypeError, ValueError, AssertionError, KeyError) as error:
        raise ValueError(f"timm cannot build {name} with {options}: {error}") from error
    if size is not None and size != about.size:
        _resize(network, about, size)
    network = network.eval().requires_grad_(False)
    return network.to(memory_format=torch.channels_last)


def width(network: nn.Module, name: str, size: int) -> int:
    """D, the dimensions of the embedding. It embeds one grey picture.

    Raises ValueError if the network does not accept the size, or does not give one vector per picture.
    """
    try:
        with torch.inference_mode():
            output = network(torch.zeros(1, 3, size, size))
    except (AssertionError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"{name} does not accept pictures of {size} x {size}: {str(error).splitlines()[0]}"
        ) from error
    if not isinstance(output, Tensor) or output.ndim != 2:
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(f"{name} gives no vector per picture: its output is {shape}.")
    return int(output.shape[1])


def load(network: nn.Module, name: str, state: dict[str, Tensor], source: str) -> None:
    """Loads weights with the names of timm or of the published file; a classifier is ignored.

    Raises ValueError for missing and unexpected weights.
    """
    if "radio" in name and isinstance(network, vision_transformer.VisionTransformer):
        # timm binds this conversion to the name of the network (_create_vision_transformer).
        convert = partial(
            vision_transformer.checkpoint_filter_fn,
            interpolation="bilinear",
            antialias=False,
            align_corners=any(part in name for part in vision_transformer._RADIO_ALIGN_CORNERS),
        )
        state = convert(state, network)
    fit(network, name, state, source)


def accepts_padding(name: str) -> bool:
    """Whether the network has the argument `pad_type`: "" pads as PyTorch, "same" as TensorFlow."""
    return Path(str(timm.model_entrypoint(name.partition(".")[0]).__code__.co_filename)).stem in (
        "efficientnet",
        "mobilenetv3",
    )


def _resize(network: Any, about: Published, size: int) -> None:
    if hasattr(network, "set_input_size"):
        try:
            network.set_input_size(img_size=(size, size))
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"{about.name} cannot be resized to {size} x {size}: {error}") from error
    elif about.fixed:
        raise ValueError(f"{about.name} accepts only pictures of {about.size} x {about.size}.")


def _triple(values: Any) -> Triple:
    red, green, blue = (float(value) for value in values)
    return red, green, blue
