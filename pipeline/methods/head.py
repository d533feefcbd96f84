"""From a backbone's features to the vector of an image: any pooling with any backbone, and a linear layer
behind it where the recipe has one."""

from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from pipeline.config.methods import Projection
from pipeline.config.poolings import AnyAttributePooling, AttributePooling, ClsPooling, Pooling
from pipeline.methods.modules import attribute_pooling, map_pooling
from pipeline.models.backbone import Backbone, Features
from pipeline.models.batch_norm import synchronise


class Pooled(NamedTuple):
    vector: Float[Tensor, "B D"]
    attributes: Float[Tensor, "B M"] | None = None  # of a pooling with prototypes
    average: Float[Tensor, "B L"] | None = None  # what such a pooling chooses its prototypes from


class PoolingHead(nn.Module):
    """The last feature map pooled, or the class token taken, then projected.

    `dim` None leaves the projection out. A pooling whose definition contains the transform to D (GSP and its
    kin, NetVLAD, ...) takes the place of the projection. Raises ValueError for the class token of a network
    that has none, and for such a pooling, `gsp` apart, without `dim`.
    """

    def __init__(
        self,
        settings: Pooling | AttributePooling,
        source: Backbone,
        dim: int | None,
        projection: Projection,
        size: int,
    ) -> None:
        """size: side of the input image, which one pooling (GSoP) is built for."""
        super().__init__()
        channels, projects = source.channels[-1], False
        self.pooling: Any = None
        self.with_attributes = isinstance(settings, AnyAttributePooling)
        if isinstance(settings, ClsPooling):
            if source.cls_channels is None:
                raise ValueError(
                    "pooling `cls` takes the class token, and this network has none: choose a vision "
                    "transformer or another pooling."
                )
            channels = source.cls_channels
        elif isinstance(settings, AnyAttributePooling):
            self.pooling = attribute_pooling(settings, channels, dim)
            projects = True
        else:
            self.pooling = synchronise(map_pooling(settings, source, dim, size))
            channels, projects = self.pooling.out_channels, self.pooling.projects
        self.dim = channels if dim is None else dim
        self.projection = nn.Identity() if projects else Linear(channels, dim, projection)

    def forward(self, features: Features) -> Pooled:
        if self.pooling is None:
            assert features.cls is not None, "checked at construction"
            return Pooled(self.projection(features.cls))
        pooled = self.pooling(features.maps[-1])
        return Pooled(*pooled) if self.with_attributes else Pooled(self.projection(pooled))

    def observe(self, average: Float[Tensor, "B L"]) -> None:
        """One training step of a pooling that chooses its prototypes: the averages of the global batch."""
        if self.with_attributes:
            assert self.pooling is not None
            self.pooling.observe(average)


class Linear(nn.Module):
    """W v + b, with the layer norm in front and the initialisation that a recipe asks for. dim None: the
    layer norm alone, or nothing."""

    def __init__(self, channels: int, dim: int | None, settings: Projection) -> None:
        super().__init__()
        self.layer_norm = settings.layer_norm
        self.linear: nn.Linear | None = None
        if dim is None:
            return
        self.linear = nn.Linear(channels, dim, bias=settings.bias)
        weight, start = self.linear.weight, settings.initialization
        if start == "kaiming":
            nn.init.kaiming_normal_(weight, mode="fan_out")
        elif start == "xavier":
            nn.init.xavier_uniform_(weight)
        elif start == "orthogonal":
            nn.init.orthogonal_(weight)
        if self.linear.bias is not None and start != "default":
            nn.init.zeros_(self.linear.bias)

    def forward(self, vectors: Float[Tensor, "B L"]) -> Float[Tensor, "B D"]:
        entering = functional.layer_norm(vectors, vectors.shape[-1:]) if self.layer_norm else vectors
        return entering if self.linear is None else self.linear(entering)
