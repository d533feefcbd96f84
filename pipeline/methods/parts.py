"""From the parts that a recipe names to the modules they are."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from pipeline.config import losses, poolings
from pipeline.config.parts import Backbone as BackboneSettings
from pipeline.config.strict import Strict
from pipeline.losses.contrastive import Contrastive
from pipeline.losses.euclidean_contrastive import EuclideanContrastive
from pipeline.losses.multi_similarity import MultiSimilarity
from pipeline.losses.normalized_softmax import NormalizedSoftmax
from pipeline.losses.proxy_anchor import ProxyAnchor
from pipeline.losses.proxy_nca import ProxyNca
from pipeline.losses.triplet import Triplet
from pipeline.models.attention import SecondOrderAttention
from pipeline.models.backbone import Backbone
from pipeline.pooling.attribute_average import AttributeAverage
from pipeline.pooling.average import Average
from pipeline.pooling.average_max import AverageMax
from pipeline.pooling.cbam import Cbam
from pipeline.pooling.crow import Crow
from pipeline.pooling.delf import Delf
from pipeline.pooling.gem import Gem
from pipeline.pooling.gem_gsp import GemGsp
from pipeline.pooling.generalized_max import GeneralizedMax
from pipeline.pooling.gsop import Gsop
from pipeline.pooling.max import Max
from pipeline.pooling.max_gsp import MaxGsp
from pipeline.pooling.netvlad import Netvlad
from pipeline.pooling.optimal_transport import OptimalTransport
from pipeline.pooling.projected_gsp import ProjectedGsp
from pipeline.pooling.rmac import Rmac
from pipeline.pooling.second_order import SecondOrder
from pipeline.pooling.smoothing import Smoothing
from pipeline.pooling.weldon import Weldon

_Table = dict[type[Strict], Callable[..., nn.Module]]

# The module of each part of a recipe, made of the fields of the part by name (docs/extending.md).
PAIR_LOSSES: _Table = {
    losses.MultiSimilarityLoss: MultiSimilarity,
    losses.ContrastiveLoss: Contrastive,
    losses.EuclideanContrastiveLoss: EuclideanContrastive,
    losses.TripletLoss: Triplet,
}
PROXY_LOSSES: _Table = {  # of (classes, dim, ...)
    losses.ProxyAnchorLoss: ProxyAnchor,
    losses.ProxyNcaLoss: ProxyNca,
    losses.NormalizedSoftmaxLoss: NormalizedSoftmax,
}
POOLINGS: _Table = {  # of (channels, ...); (B, L, H, W) -> (B, L)
    poolings.AveragePooling: Average,
    poolings.MaxPooling: Max,
    poolings.AverageMaxPooling: AverageMax,
    poolings.GemPooling: Gem,
    poolings.RmacPooling: Rmac,
    poolings.GeneralizedMaxPooling: GeneralizedMax,
    poolings.CbamPooling: Cbam,
    poolings.CrowPooling: Crow,
    poolings.DelfPooling: Delf,
}
PROJECTING_POOLINGS: _Table = {  # of (channels, dim, ...): they contain the transform to the embedding
    poolings.SmoothingPooling: Smoothing,
    poolings.NetvladPooling: Netvlad,
    poolings.OptimalTransportPooling: OptimalTransport,
    poolings.WeldonPooling: Weldon,
}
ATTRIBUTE_POOLINGS: _Table = {  # of (channels, dim, ...)
    poolings.GspPooling: ProjectedGsp,
    poolings.MaxGspPooling: MaxGsp,
    poolings.GemGspPooling: GemGsp,
    poolings.AttributeAveragePooling: AttributeAverage,
}


def backbone(settings: BackboneSettings) -> Backbone:
    """Raises ValueError or FileNotFoundError, as Backbone does."""
    return Backbone(
        settings.name,
        settings.pretrained,
        settings.checkpoint,
        dict(settings.arguments),
        settings.stages,
        settings.batch_norm,
    )


def pair_loss(settings: losses.PairLoss) -> nn.Module:
    """What compares embeddings with each other: forward(embeddings, labels[, references, reference_labels, self_index])."""
    return PAIR_LOSSES[type(settings)](**_constants(settings))


def proxy_loss(settings: losses.ProxyLoss, classes: int, dim: int) -> nn.Module:
    """What compares embeddings with learned proxies of the classes: forward(embeddings, labels)."""
    return PROXY_LOSSES[type(settings)](classes, dim, **_constants(settings))


def map_pooling(settings: poolings.AnyMapPooling, source: Backbone, dim: int | None, size: int) -> nn.Module:
    """What makes one vector of the last map, (B, L, H, W) -> (B, E): E is `out_channels`; `projects` where E is D = `dim` already.

    size: side of the input image. Raises ValueError for a pooling that contains the transform to D where `dim` is None.
    """
    channels = source.channels[-1]
    match settings:
        case poolings.SecondOrderPooling():  # poolings and models do not know each other: its attention is handed to it
            return SecondOrder(channels, SecondOrderAttention(channels, settings.reduction, None), settings.exponent)
        case poolings.GsopPooling():
            return Gsop(channels, _needed(dim, settings.name), _positions(source, size), settings.attention_dim)
    if type(settings) in PROJECTING_POOLINGS:
        return PROJECTING_POOLINGS[type(settings)](channels, _needed(dim, settings.name), **_constants(settings))
    return POOLINGS[type(settings)](channels, **_constants(settings))


def attribute_pooling(settings: poolings.AttributePooling, channels: int, dim: int | None) -> nn.Module:
    """What makes a vector, attributes and the average of the transformed map of (B, L, H, W). Raises ValueError without `dim`, but for `gsp`."""
    return ATTRIBUTE_POOLINGS[type(settings)](channels, dim if settings.name == "gsp" else _needed(dim, settings.name), **_constants(settings))


def _constants(settings: Strict) -> dict[str, Any]:
    """The fields of a part as the arguments of its module, which bear the same names."""
    return settings.model_dump(exclude={"name"})


def _needed(dim: int | None, name: str) -> int:
    if dim is None:
        raise ValueError(f"pooling `{name}` contains the transform to the embedding: set `dim`.")
    return dim


@torch.no_grad()
def _positions(source: Backbone, size: int) -> int:
    """Positions of the last map for images of that size: found by looking."""
    was_training = source.training
    source.eval()
    found = source(torch.zeros(1, 3, size, size)).maps[-1]
    source.train(was_training)
    return found.shape[-2] * found.shape[-1]
