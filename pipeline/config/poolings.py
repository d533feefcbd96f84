"""The poolings of a recipe: part `pooling`, chosen by `name`. Defaults are published constants; their source stands beside them.

The fields of a pooling are the arguments of the module that it is, by name (pipeline/methods/parts.py). docs/extending.md adds one.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline.config.parts import Count, Positive
from pipeline.config.strict import Strict


class AveragePooling(Strict):
    name: Literal["average"] = "average"


class MaxPooling(Strict):
    name: Literal["max"] = "max"


class AverageMaxPooling(Strict):
    name: Literal["average_max"] = "average_max"


class GemPooling(Strict):
    """Generalized mean: (mean x^p)^(1/p)."""

    name: Literal["gem"] = "gem"
    exponent: Positive = 3.0  # p
    learnable: bool = True


class ClsPooling(Strict):
    name: Literal["cls"] = "cls"


class RmacPooling(Strict):
    """Regional maxima, each of unit length, summed."""

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
    name: Literal["gsp"] = "gsp"


class MaxGspPooling(_Transport):
    """Maximum + generalized sum, under one transform."""

    name: Literal["max_gsp"] = "max_gsp"


class GemGspPooling(_Transport):
    """Generalized mean of the features that transport chooses."""

    name: Literal["gem_gsp"] = "gem_gsp"
    exponent: Positive = 3.0  # learned


class AttributeAveragePooling(Strict):
    """Average pooling beside attributes that are a softmax over prototypes (the rows "without GSP" of GSP table 1)."""

    name: Literal["attribute_average"] = "attribute_average"
    prototypes: Count = 64  # M
    scale: Positive = 10.0  # of the softmax; released code


class GeneralizedMaxPooling(Strict):
    name: Literal["generalized_max"] = "generalized_max"
    regularization: Positive = 1.0


class CbamPooling(Strict):
    """Channel, then spatial attention in front of the average."""

    name: Literal["cbam"] = "cbam"
    reduction: Count = 1  # GSP's configs; CBAM's own default is 16


class CrowPooling(Strict):
    name: Literal["crow"] = "crow"


class DelfPooling(Strict):
    name: Literal["delf"] = "delf"
    hidden: Count = 512


class GsopPooling(Strict):
    """Channel and spatial attention from covariances of the transformed map, whose number of positions is the input's: no other input size later."""

    name: Literal["gsop"] = "gsop"
    attention_dim: Count = 128


class SmoothingPooling(Strict):
    """Norm-weighted smoothing: the trainable selective match kernel."""

    name: Literal["smoothing"] = "smoothing"
    window: Count = 3


class SecondOrderPooling(Strict):
    """Second-order attention in front of a generalized mean (SOLAR)."""

    name: Literal["second_order"] = "second_order"
    reduction: Count = 1
    exponent: Positive = 3.0  # learned


class NetvladPooling(Strict):
    name: Literal["netvlad"] = "netvlad"
    centers: Count = 16


class OptimalTransportPooling(Strict):
    name: Literal["optimal_transport"] = "optimal_transport"
    prototypes: Count = 64
    iterations: Count = 10
    weight: Positive = 2.0  # of the entropy


class WeldonPooling(Strict):
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
