"""A network that gives feature maps: timm's by name, and those that timm does not have.

Parameters keep the names of the library or of the published file, so weights move freely between this project, timm and the hub.
"""

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn

from pipeline.models.batch_norm import fix, freeze, synchronise
from pipeline.models.checkpoint import fit, read_state
from pipeline.models.networks import OWN
from pipeline.models.staged import Staged
from pipeline.models.torchvision_guard import ensure_torchvision

ensure_torchvision()

import timm  # noqa: E402  after the guard
from timm.models import group_parameters  # noqa: E402
from timm.models.efficientnet import EfficientNet  # noqa: E402

_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
_RESERVED = {"pretrained", "num_classes", "features_only", "checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "scriptable", "in_chans"}


@dataclass
class Features:
    """What a backbone makes of a batch of images: the maps asked for, in the order asked for, and the class token where there is one."""

    maps: tuple[Tensor, ...]  # (B, L, H, W) each, L, H and W of its own
    cls: Float[Tensor, "B L"] | None


class Backbone(nn.Module):
    """Network `name`, of timm or of `OWN`, without its classifier.

    `stages` are indices into the network's feature maps, the coarsest last, negative ones from the end. A transformer's last map has passed its final
    norm. For a plain vision transformer each block is a stage; its map is made of the patch tokens after the final norm, and `cls` is token 0 after
    that norm (the class token; never the distillation token beside it). The last map of a network of the EfficientNet
    family has passed its closing 1 x 1 convolution, as published: 1280 channels for mobilenetv2_100. MobileNetV3 and V4
    apply theirs to the pooled vector; it is a part of their classifier. Layers that no requested map needs are removed.

    `pretrained` fetches the weights of the name's tag; `checkpoint` (a .safetensors or weights-only .pth file under timm's names or those of the
    published file, of any floating-point type, with or without a classifier) wins over it. `arguments` go to timm.create_model, or to a network of
    `OWN`. `batch_norm`: "frozen" keeps running statistics (see `freeze`), "fixed" scale and shift too (see `fix`), "batch" takes the statistics of
    the batch of all workers.

    Raises ValueError for a name, argument, stage or checkpoint content that does not fit, FileNotFoundError for weights that are not there.
    """

    channels: tuple[int, ...]  # of each map, in the order of `stages`
    cls_channels: int | None  # of the class token; None: the network has none
    input_size: tuple[int, int] | None  # height and width it insists on; None: it takes any size
    mean: tuple[float, ...]  # of RGB in [0, 1], and standard deviation, that its published weights were trained with
    std: tuple[float, ...]

    def __init__(
        self,
        name: str,
        pretrained: bool = False,
        checkpoint: str | Path | None = None,
        arguments: dict[str, Any] | None = None,
        stages: tuple[int, ...] = (-1,),
        batch_norm: Literal["frozen", "fixed", "batch"] = "batch",
    ) -> None:
        super().__init__()
        network: Any = _create(name, pretrained and checkpoint is None, arguments or {})
        if checkpoint is not None:
            path = Path(checkpoint)
            if not path.is_file():
                raise FileNotFoundError(f"The checkpoint {path} of {name} is not there.")
            fit(network, name, read_state(path), f"checkpoint {path}")
        count = len(network.feature_info)
        if not stages or any(not -count <= stage < count for stage in stages):
            raise ValueError(f"{name} has {count} feature maps, numbered 0 to {count - 1} or -{count} to -1; stages asked for: {list(stages)}.")
        self._stages = tuple(stage % count for stage in stages)
        self._kept = sorted(set(self._stages))
        self._closes = isinstance(network, EfficientNet) and self._kept[-1] == count - 1
        network.prune_intermediate_layers([self._kept[-1]], prune_norm=False, prune_head=not self._closes)
        widths = [info["num_chs"] for info in network.feature_info]
        if self._closes:
            widths[-1] = network.num_features
        self.channels = tuple(widths[stage] for stage in self._stages)
        has_token = getattr(network, "cls_token", None) is not None and getattr(network, "num_prefix_tokens", 0) > 0
        self.cls_channels = network.num_features if has_token else None
        embed = getattr(network, "patch_embed", None)
        fixed = getattr(embed, "strict_img_size", False) and not getattr(network, "dynamic_img_size", False)
        self.input_size = tuple(embed.img_size) if embed is not None and fixed else None
        self.mean, self.std = (tuple(map(float, network.default_cfg.get(name, ours))) for name, ours in _IMAGENET.items())
        self._name, self._frozen = name, batch_norm != "batch"
        self.network = network if self._frozen else synchronise(network)
        if batch_norm == "fixed":
            fix(self.network)
        self.train()

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Features:
        network: Any = self.network
        final, maps = network.forward_intermediates(images, indices=self._kept, norm=True)
        if self._closes:
            maps[-1] = final
        found = dict(zip(self._kept, maps, strict=True))
        return Features(tuple(found[stage] for stage in self._stages), None if self.cls_channels is None else final[:, 0])

    def train(self, mode: bool = True) -> "Backbone":
        super().train(mode)
        if self._frozen:
            freeze(self.network)
        return self

    def layers(self) -> list[list[nn.Parameter]]:
        """Every parameter once, from the stem to the last block, for learning rates by layer; what a layer is, timm says for its networks.

        Raises ValueError for a network of timm that does not say.
        """
        network: Any = self.network
        if not hasattr(network, "group_matcher"):
            raise ValueError(f"timm does not say what the layers of {self._name} are: train it with one learning rate.")
        groups = group_parameters(network, network.group_matcher(coarse=False))
        parameters = dict(network.named_parameters())
        return [[parameters[key] for key in groups[layer]] for layer in sorted(groups)]


def require_network(name: str) -> None:
    """Raises ValueError for a name that is none of timm's or ours."""
    if name not in OWN and not timm.is_model(name):
        close = difflib.get_close_matches(name, [*OWN, *timm.list_models()], n=3)
        raise ValueError(f"timm has no network {name!r}." + (f" Did you mean {', '.join(close)}?" if close else ""))


def require_published(network: nn.Module, name: str) -> None:
    """Raises FileNotFoundError for a network of ours whose pretrained weights no library fetches. Whether timm's can be fetched, fetching shows."""
    if isinstance(network, Staged) and (network.published is None or network.published.fetch is None):
        if network.published is None:
            raise FileNotFoundError(f"Nobody has published weights of {name}: train it from scratch with `pretrained: false`.")
        raise FileNotFoundError(
            f"No library fetches the pretrained weights of {name}: get {network.published.file} from {network.published.page} and name it as "
            "`checkpoint` of the backbone, or train from scratch with `pretrained: false`."
        )


def _create(name: str, pretrained: bool, arguments: dict[str, Any]) -> nn.Module:
    require_network(name)
    taken = _RESERVED & arguments.keys()
    if taken:
        raise ValueError(f"backbone arguments {sorted(taken)} are set by this project; what is left for `arguments` are options such as img_size.")
    try:
        network = OWN[name].build(arguments) if name in OWN else timm.create_model(name, pretrained=pretrained, num_classes=0, **arguments)
    except OSError as error:
        raise _not_fetched(name, _weights_file(name), error) from error
    except (TypeError, ValueError, RuntimeError, AssertionError, KeyError) as error:
        given = f" with {arguments}" if arguments else ""
        builder = "this project" if name in OWN else "timm"
        raise ValueError(f"{builder} cannot build {name}{given}: {type(error).__name__}: {error}") from error
    if name in OWN and pretrained:
        _load_published(network, name)
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
        "Fetch that file where there is a connection and name it as `checkpoint` of the backbone, or train from scratch with `pretrained: false`."
    )


def _weights_file(name: str) -> str:
    settings = timm.get_pretrained_cfg(name)
    if settings is not None and settings.hf_hub_id:
        return f"model.safetensors of {settings.hf_hub_id} on the Hugging Face hub"
    return str(settings.url) if settings is not None and settings.url else "timm names no file for it"
