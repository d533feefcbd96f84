"""The poolings of a recipe: part `pooling`, chosen by `name`. Defaults are published constants, with their
source.

`module` is the class of a pooling; the other fields are its arguments, by name (pipeline/methods/modules.py).
`positions` is the function that computes its weights of positions (pipeline/methods/explain).
The first paragraph of a docstring is the description in docs/library.md. docs/extending.md adds a pooling.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Discriminator, Field, SerializeAsAny, model_validator

from unseen.runtime.parts import Calls, PartSettings, opened
from unseen.runtime.settings import Count, Positive


class PoolingSettings(PartSettings):
    """What a recipe asks of its pooling.

    projects: whether it contains the transform to the embedding. attributes: whether it also returns
    attributes and the average of the transformed map.
    """

    given: ClassVar[tuple[str, ...]] = ("channels", "dim", "positions")
    calls: ClassVar[Calls] = {"forward": ("features",)}
    base_class: ClassVar[str] = "torch.nn:Module"
    projects: ClassVar[bool] = False
    dim_is_optional: ClassVar[bool] = False  # of one that projects: without it there is no transform
    attributes: ClassVar[bool] = False


class AveragePooling(PoolingSettings):
    """Mean over positions."""

    module: ClassVar[str] = "unseen.poolings.average:Average"
    name: Literal["average"] = "average"


class MaxPooling(PoolingSettings):
    """Maximum over positions (Tolias et al. 2016)."""

    module: ClassVar[str] = "unseen.poolings.max:Max"
    name: Literal["max"] = "max"


class AverageMaxPooling(PoolingSettings):
    """Mean plus maximum (Proxy-Anchor code; Multi-Head sec. 3.2)."""

    module: ClassVar[str] = "unseen.poolings.average_max:AverageMax"
    name: Literal["average_max"] = "average_max"


class GemPooling(PoolingSettings):
    """Generalized mean: (mean x^p)^(1/p) (Radenovic et al. 2018)."""

    module: ClassVar[str] = "unseen.poolings.gem:Gem"
    name: Literal["gem"] = "gem"
    exponent: Positive = 3.0  # p
    learnable: bool = True


class ClsPooling(PoolingSettings):
    """The class token of a vision transformer (IRT)."""

    positions: ClassVar[str] = "unseen.methods.explain.class_token:position_weights"
    name: Literal["cls"] = "cls"


class RmacPooling(PoolingSettings):
    """Regional maxima, each of unit length, summed (Tolias et al. 2016)."""

    module: ClassVar[str] = "unseen.poolings.rmac:Rmac"
    name: Literal["rmac"] = "rmac"
    levels: Count = 3


class _Transport(PoolingSettings):
    """Generalized sum pooling (GSP sec. 4; released configs)."""

    positions: ClassVar[str] = "unseen.methods.explain.transport:position_weights"
    projects: ClassVar[bool] = True
    attributes: ClassVar[bool] = True
    prototypes: Count = 64  # M; 64 for CUB and Cars, 128 for SOP and In-Shop
    transport_ratio: Annotated[float, Field(gt=0, le=1)] = 0.3  # mu; 1 is average pooling
    epsilon: Positive = 5.0  # 5 with pair losses, 0.5 with proxy losses; larger is sharper
    # iterations of average pooling before the initialisation memory starts to fill
    warmup: Annotated[int, Field(ge=0)] = 0
    initialization_memory: Count = 1024  # pooled features from which greedy k-centre selects the prototypes
    # newton: exact; iteration: the solver of the paper, for the study of its fig. 7
    solver: Literal["newton", "iteration"] = "newton"
    iterations: Count = 100  # of solver `iteration`
    gradient: Literal["closed_form", "autograd"] = "closed_form"  # of solver `iteration`
    # largest absolute value of an element of a prototype, enforced after each step (the token study: 0.3)
    bound: Positive | None = None

    @model_validator(mode="after")
    def _memory_is_large_enough(self) -> "_Transport":
        if self.initialization_memory < 2 * self.prototypes:
            raise ValueError(
                f"initialization_memory must be at least twice the number of prototypes ({self.prototypes}), "
                f"got {self.initialization_memory}"
            )
        return self


class GspPooling(_Transport):
    """Generalized sum: mean of the features that partial transport selects (GSP sec. 4.1)."""

    module: ClassVar[str] = "unseen.poolings.projected_gsp:ProjectedGsp"
    dim_is_optional: ClassVar[bool] = True
    name: Literal["gsp"] = "gsp"


class MaxGspPooling(_Transport):
    """Maximum plus generalized sum, under one transform (GSP table 2)."""

    module: ClassVar[str] = "unseen.poolings.max_gsp:MaxGsp"
    name: Literal["max_gsp"] = "max_gsp"


class GemGspPooling(_Transport):
    """Generalized mean of the features that transport selects (GSP table 2)."""

    module: ClassVar[str] = "unseen.poolings.gem_gsp:GemGsp"
    name: Literal["gem_gsp"] = "gem_gsp"
    exponent: Positive = 3.0  # learned


class AttributeAveragePooling(PoolingSettings):
    """Average; attributes are a softmax over prototypes; for `method: gsp` (GSP table 1)."""

    module: ClassVar[str] = "unseen.poolings.attribute_average:AttributeAverage"
    projects: ClassVar[bool] = True
    attributes: ClassVar[bool] = True
    name: Literal["attribute_average"] = "attribute_average"
    prototypes: Count = 64  # M
    scale: Positive = 10.0  # of the softmax; released code


class GeneralizedMaxPooling(PoolingSettings):
    """Ridge regression of 1 on the features (Murray and Perronnin 2014)."""

    module: ClassVar[str] = "unseen.poolings.generalized_max:GeneralizedMax"
    name: Literal["generalized_max"] = "generalized_max"
    regularization: Positive = 1.0


class CbamPooling(PoolingSettings):
    """Channel attention, then spatial attention, then the average (Woo et al. 2018)."""

    module: ClassVar[str] = "unseen.poolings.cbam:Cbam"
    name: Literal["cbam"] = "cbam"
    reduction: Count = 1  # GSP's configs; CBAM's default is 16


class CrowPooling(PoolingSettings):
    """Cross-dimensional weighting of positions and channels (Kalantidis et al. 2016)."""

    module: ClassVar[str] = "unseen.poolings.crow:Crow"
    name: Literal["crow"] = "crow"


class DelfPooling(PoolingSettings):
    """Average weighted by the attention of a small network (Noh et al. 2017)."""

    module: ClassVar[str] = "unseen.poolings.delf:Delf"
    name: Literal["delf"] = "delf"
    hidden: Count = 512


class GsopPooling(PoolingSettings):
    """Channel and spatial attention from second moments; for one input size (Gao et al. 2019)."""

    module: ClassVar[str] = "unseen.poolings.gsop:Gsop"
    projects: ClassVar[bool] = True
    name: Literal["gsop"] = "gsop"
    attention_dim: Count = 128


class SmoothingPooling(PoolingSettings):
    """Norm-weighted smoothing: the trainable selective match kernel (Tolias et al. 2020)."""

    module: ClassVar[str] = "unseen.poolings.smoothing:Smoothing"
    projects: ClassVar[bool] = True
    name: Literal["smoothing"] = "smoothing"
    window: Count = 3


class SecondOrderPooling(PoolingSettings):
    """Second-order attention, then a generalized mean (SOLAR, Ng et al. 2020; SOAP in GSP's code, whose
    constants and initialisation these are)."""

    # poolings do not import models
    attention: ClassVar[str] = "unseen.networks.attention:GspSecondOrderAttention"
    module: ClassVar[str] = "unseen.poolings.second_order:SecondOrder"
    name: Literal["second_order"] = "second_order"
    reduction: Count = 1
    exponent: Positive = 3.0  # learned


class NetvladPooling(PoolingSettings):
    """Residuals to centres, softly assigned and summed (Arandjelovic et al. 2016)."""

    module: ClassVar[str] = "unseen.poolings.netvlad:Netvlad"
    projects: ClassVar[bool] = True
    name: Literal["netvlad"] = "netvlad"
    centers: Count = 16


class OptimalTransportPooling(PoolingSettings):
    """Balanced transport to prototypes (Mialon et al. 2021)."""

    module: ClassVar[str] = "unseen.poolings.optimal_transport:OptimalTransport"
    projects: ClassVar[bool] = True
    name: Literal["optimal_transport"] = "optimal_transport"
    prototypes: Count = 64
    iterations: Count = 10
    weight: Positive = 2.0  # of the entropy


class WeldonPooling(PoolingSettings):
    """Sum of the largest and of the smallest values of each channel (Durand et al. 2016)."""

    module: ClassVar[str] = "unseen.poolings.weldon:Weldon"
    projects: ClassVar[bool] = True
    name: Literal["weldon"] = "weldon"
    top: Count = 3
    bottom: Count = 3


AnyMapPooling = (
    AveragePooling
    | MaxPooling
    | AverageMaxPooling
    | GemPooling
    | RmacPooling
    | GeneralizedMaxPooling
    | CbamPooling
    | CrowPooling
    | DelfPooling
    | GsopPooling
    | SmoothingPooling
    | SecondOrderPooling
    | NetvladPooling
    | OptimalTransportPooling
    | WeldonPooling
)
AnyTransportPooling = GspPooling | MaxGspPooling | GemGspPooling
# Poolings that return attributes in addition to the vector.
AnyAttributePooling = AnyTransportPooling | AttributeAveragePooling
AttributePooling = SerializeAsAny[
    Annotated[AnyAttributePooling, Discriminator("name"), opened(PoolingSettings, attributes=(True,))]
]
Pooling = SerializeAsAny[
    Annotated[
        AnyMapPooling | ClsPooling | AnyTransportPooling, Discriminator("name"), opened(PoolingSettings)
    ]
]
