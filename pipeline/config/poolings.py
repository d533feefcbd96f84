"""The poolings of a recipe: part `pooling`, chosen by `name`. Defaults are published constants; their source stands beside them.

`module` is the class of a pooling; the other fields are its arguments, by name (pipeline/methods/modules.py). A pooling with
`projects` contains the transform to the embedding. docs/extending.md adds one.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from pipeline.config.parts import Count, Positive
from pipeline.config.strict import Strict


class AveragePooling(Strict):
    module: ClassVar[str] = "pipeline.pooling.average:Average"
    name: Literal["average"] = "average"


class MaxPooling(Strict):
    module: ClassVar[str] = "pipeline.pooling.max:Max"
    name: Literal["max"] = "max"


class AverageMaxPooling(Strict):
    module: ClassVar[str] = "pipeline.pooling.average_max:AverageMax"
    name: Literal["average_max"] = "average_max"


class GemPooling(Strict):
    """Generalized mean: (mean x^p)^(1/p)."""

    module: ClassVar[str] = "pipeline.pooling.gem:Gem"
    name: Literal["gem"] = "gem"
    exponent: Positive = 3.0  # p
    learnable: bool = True


class ClsPooling(Strict):
    name: Literal["cls"] = "cls"


class RmacPooling(Strict):
    """Regional maxima, each of unit length, summed."""

    module: ClassVar[str] = "pipeline.pooling.rmac:Rmac"
    name: Literal["rmac"] = "rmac"
    levels: Count = 3


class _Transport(Strict):
    """Generalized sum pooling (GSP sec. 4; released configs)."""

    prototypes: Count = 64  # M; 64 for CUB and Cars, 128 for SOP and In-Shop
    transport_ratio: Annotated[float, Field(gt=0, le=1)] = 0.3  # mu; 1 is average pooling
    epsilon: Positive = 5.0  # 5 with pair losses, 0.5 with proxy losses; larger is sharper
    warmup: Annotated[int, Field(ge=0)] = 0  # iterations of average pooling before the memory of the initialisation starts to fill
    initialization_memory: Count = 1024  # pooled features that the greedy k-centre chooses prototypes from
    solver: Literal["newton", "iteration"] = "newton"  # iteration: the paper's own, for the study of its fig. 7
    iterations: Count = 100  # of solver `iteration`
    gradient: Literal["closed_form", "autograd"] = "closed_form"  # of solver `iteration`
    bound: Positive | None = None  # of every element of a prototype, put back after each step (the token study: 0.3)

    @model_validator(mode="after")
    def _enough(self) -> "_Transport":
        if self.initialization_memory < 2 * self.prototypes:
            raise ValueError(f"initialization_memory must hold at least twice the {self.prototypes} prototypes, got {self.initialization_memory}")
        return self


class GspPooling(_Transport):
    module: ClassVar[str] = "pipeline.pooling.projected_gsp:ProjectedGsp"
    name: Literal["gsp"] = "gsp"


class MaxGspPooling(_Transport):
    """Maximum + generalized sum, under one transform."""

    module: ClassVar[str] = "pipeline.pooling.max_gsp:MaxGsp"
    name: Literal["max_gsp"] = "max_gsp"


class GemGspPooling(_Transport):
    """Generalized mean of the features that transport chooses."""

    module: ClassVar[str] = "pipeline.pooling.gem_gsp:GemGsp"
    name: Literal["gem_gsp"] = "gem_gsp"
    exponent: Positive = 3.0  # learned


class AttributeAveragePooling(Strict):
    """Average pooling beside attributes that are a softmax over prototypes (the rows "without GSP" of GSP table 1)."""

    module: ClassVar[str] = "pipeline.pooling.attribute_average:AttributeAverage"
    name: Literal["attribute_average"] = "attribute_average"
    prototypes: Count = 64  # M
    scale: Positive = 10.0  # of the softmax; released code


class GeneralizedMaxPooling(Strict):
    module: ClassVar[str] = "pipeline.pooling.generalized_max:GeneralizedMax"
    name: Literal["generalized_max"] = "generalized_max"
    regularization: Positive = 1.0


class CbamPooling(Strict):
    """Channel, then spatial attention in front of the average."""

    module: ClassVar[str] = "pipeline.pooling.cbam:Cbam"
    name: Literal["cbam"] = "cbam"
    reduction: Count = 1  # GSP's configs; CBAM's own default is 16


class CrowPooling(Strict):
    module: ClassVar[str] = "pipeline.pooling.crow:Crow"
    name: Literal["crow"] = "crow"


class DelfPooling(Strict):
    module: ClassVar[str] = "pipeline.pooling.delf:Delf"
    name: Literal["delf"] = "delf"
    hidden: Count = 512


class GsopPooling(Strict):
    """Channel and spatial attention from covariances of the transformed map, whose number of positions is the input's: no other input size later."""

    module: ClassVar[str] = "pipeline.pooling.gsop:Gsop"
    projects: ClassVar[bool] = True
    name: Literal["gsop"] = "gsop"
    attention_dim: Count = 128


class SmoothingPooling(Strict):
    """Norm-weighted smoothing: the trainable selective match kernel."""

    module: ClassVar[str] = "pipeline.pooling.smoothing:Smoothing"
    projects: ClassVar[bool] = True
    name: Literal["smoothing"] = "smoothing"
    window: Count = 3


class SecondOrderPooling(Strict):
    """Second-order attention in front of a generalized mean (SOLAR)."""

    attention: ClassVar[str] = "pipeline.models.attention:SecondOrderAttention"  # poolings do not import models
    module: ClassVar[str] = "pipeline.pooling.second_order:SecondOrder"
    name: Literal["second_order"] = "second_order"
    reduction: Count = 1
    exponent: Positive = 3.0  # learned


class NetvladPooling(Strict):
    module: ClassVar[str] = "pipeline.pooling.netvlad:Netvlad"
    projects: ClassVar[bool] = True
    name: Literal["netvlad"] = "netvlad"
    centers: Count = 16


class OptimalTransportPooling(Strict):
    module: ClassVar[str] = "pipeline.pooling.optimal_transport:OptimalTransport"
    projects: ClassVar[bool] = True
    name: Literal["optimal_transport"] = "optimal_transport"
    prototypes: Count = 64
    iterations: Count = 10
    weight: Positive = 2.0  # of the entropy


class WeldonPooling(Strict):
    module: ClassVar[str] = "pipeline.pooling.weldon:Weldon"
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
AnyAttributePooling = AnyTransportPooling | AttributeAveragePooling  # those that find attributes beside the vector
AttributePooling = Annotated[AnyAttributePooling, Field(discriminator="name")]
Pooling = Annotated[AnyMapPooling | ClsPooling | AnyTransportPooling, Field(discriminator="name")]
