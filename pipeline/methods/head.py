"""From the features of a backbone to the vector of an image: any pooling with any backbone, and a linear
layer if the recipe has one."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from unseen.methods.modules import map_pooling
from unseen.methods.settings import Projection
from unseen.networks.backbone import Backbone, Features
from unseen.networks.batch_norm import synchronise
from unseen.poolings.settings import ClsPooling, PoolingSettings


class Pooled(NamedTuple):
    vector: Float[Tensor, "B D"]
    attributes: Float[Tensor, "B M"] | None = None  # of a pooling with prototypes
    average: Float[Tensor, "B L"] | None = None  # features from which such a pooling selects its prototypes


class PoolingHead(nn.Module):
    """Pools the last feature map, or reads the class token, then projects the result.

    With `dim` None there is no projection. A pooling whose definition contains the transform to D (GSP and
    its variants, NetVLAD, ...) replaces the projection. Raises ValueError for pooling `cls` with a network
    without class token, and for a pooling that contains the transform, except `gsp`, without `dim`.
    """

    def __init__(
        self,
        settings: PoolingSettings,
        source: Backbone,
        dim: int | None,
        projection: Projection,
        size: int,
    ) -> None:
        """size: side of the input image. Pooling GSoP depends on it."""
        super().__init__()
        channels = source.channels[-1]
        self.pooling: Any = None
        self.with_attributes = settings.attributes
        if isinstance(settings, ClsPooling):
            if source.cls_channels is None:
                raise ValueError(
                    "pooling `cls` reads the class token, and this network has none: choose a vision "
                    "transformer or another pooling."
                )
            channels = source.cls_channels
        else:
            self.pooling = synchronise(map_pooling(settings, source, dim, size))
            channels = self.pooling.out_channels
        self.dim = channels if dim is None else dim
        self.projection = nn.Identity() if settings.projects else Linear(channels, dim, projection)

    def forward(self, features: Features) -> Pooled:
        if self.pooling is None:
            assert features.cls is not None, "checked at construction"
            return Pooled(self.projection(features.cls))
        pooled = self.pooling(features.maps[-1])
        return Pooled(*pooled) if self.with_attributes else Pooled(self.projection(pooled))

    def has_prototypes(self) -> Bool[Tensor, ""]:
        """Whether the pooling has selected its prototypes. Before, its attributes have no meaning."""
        assert self.with_attributes
        assert self.pooling is not None
        return torch.as_tensor(self.pooling.has_prototypes)

    def selects_prototypes(self) -> bool:
        """Whether `observe` may still select the prototypes."""
        return self.with_attributes and not self.pooling.has_selected()

    def observe(self, average: Float[Tensor, "B L"]) -> None:
        """Passes the averages of the global batch to a pooling that selects its prototypes from them. Called
        once per training step."""
        if self.with_attributes:
            assert self.pooling is not None
            self.pooling.observe(average)


class Linear(nn.Module):
    """W v + b, with the initialisation of the recipe, after a layer norm if the recipe has one. With dim None
    only the layer norm, or the identity."""

    def __init__(self, channels: int, dim: int | None, settings: Projection) -> None:
        super().__init__()
        self.layer_norm = settings.layer_norm
        self.linear: nn.Linear | None = None
        if dim is None:
            return
        self.linear = nn.Linear(channels, dim, bias=settings.bias)
        weight, initialization = self.linear.weight, settings.initialization
        if initialization == "kaiming":
            nn.init.kaiming_normal_(weight, mode="fan_out")
        elif initialization == "xavier":
            nn.init.xavier_uniform_(weight)
        elif initialization == "orthogonal":
            nn.init.orthogonal_(weight)
        if self.linear.bias is not None and initialization != "default":
            nn.init.zeros_(self.linear.bias)

    def forward(self, vectors: Float[Tensor, "B L"]) -> Float[Tensor, "B D"]:
        if self.layer_norm:
            vectors = functional.layer_norm(vectors, vectors.shape[-1:])
        return vectors if self.linear is None else self.linear(vectors)
