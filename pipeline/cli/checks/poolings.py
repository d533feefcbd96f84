"""The properties of poolings."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from unseen.cli.checks.common import (
    CHANNELS,
    DIM,
    FINITE,
    PRECISION,
    SIDE,
    built,
    require,
    require_equal,
    require_trained,
)
from unseen.methods import modules
from unseen.poolings.settings import PoolingSettings


def _pooling(settings: PoolingSettings) -> tuple[Any, Tensor]:
    """A pooling and six maps."""
    pooling = built(lambda: modules.pooling(settings, CHANNELS, DIM, lambda: SIDE * SIDE))
    generator = torch.Generator().manual_seed(1)
    return pooling, torch.randn(6, CHANNELS, SIDE, SIDE, generator=generator)


def _vector(settings: PoolingSettings, pooled: Any) -> Tensor:
    vector: Tensor = pooled[0] if settings.attributes else pooled
    return vector


def shape(settings: PoolingSettings) -> None:
    """A map gives a finite vector of out_channels numbers, and attributes that sum to 1 if it states them."""
    pooling, maps = _pooling(settings)
    pooled = pooling.eval()(maps)
    vector, width = _vector(settings, pooled), pooling.out_channels
    what = f"The vectors of six maps have the shape {tuple(vector.shape)}; out_channels is {width}."
    require(vector.shape == (6, width), what, "Return one row of out_channels numbers for each map.")
    what = f"The class states projects, and its out_channels is {width} for dim = {DIM}."
    require(not settings.projects or width == DIM, what, "Set out_channels to dim.")
    require(vector.isfinite().all(), "A vector is not finite.", FINITE)
    if settings.attributes:
        sums = pooled[1].sum(1)
        require_equal(sums, torch.ones_like(sums), "The sums of attributes and 1", "Use a softmax.", 1e-4)


def each_image(settings: PoolingSettings) -> None:
    """The vector of an image does not depend on the other images, which may be on another worker.

    Batch norm alone combines images, in training and over all workers.
    """
    pooling, maps = _pooling(settings)
    normalises = any(isinstance(each, nn.modules.batchnorm._BatchNorm) for each in pooling.modules())
    for training in (False, not normalises):
        pooling.train(training)
        parts = torch.cat([_vector(settings, pooling(part)) for part in (maps[:2], maps[2:])])
        what, remedy = (
            "The vectors of an image in two batches",
            "Combine positions or channels, never images.",
        )
        require_equal(parts, _vector(settings, pooling(maps)), what, remedy, tolerance=1e-4)


def precision_of_vectors(settings: PoolingSettings) -> None:
    """The vectors have single precision under autocast."""
    pooling, maps = _pooling(settings)
    pooling.eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        vector = _vector(settings, pooling(maps.bfloat16()))
    require(vector.dtype == torch.float32, f"The vectors have the type {vector.dtype}.", PRECISION)
    exact = _vector(settings, pooling(maps))
    require_equal(vector, exact, "The vectors with and without autocast", PRECISION, tolerance=0.1)


def zero_map(settings: PoolingSettings) -> None:
    """A map of zeros has a finite gradient."""
    pooling, maps = _pooling(settings)
    zeros = torch.zeros_like(maps).requires_grad_()
    _vector(settings, pooling(zeros)).sum().backward()
    finite = zeros.grad is not None and zeros.grad.isfinite().all()
    require(finite, "The gradient is missing or not finite.", FINITE)


def parameters_of_pooling(settings: PoolingSettings) -> None:
    """Every parameter has a gradient."""
    pooling, maps = _pooling(settings)
    vector = _vector(settings, pooling(maps.requires_grad_()))
    (vector * torch.arange(vector.shape[1])).sum().backward()
    require_trained(pooling)


def checks_of(settings: PoolingSettings) -> tuple[Callable[[PoolingSettings], None], ...]:
    """The checks that apply. A pooling with attributes may select its prototypes before it trains them."""
    each = (shape, each_image, precision_of_vectors, zero_map)
    return each if settings.attributes else (*each, parameters_of_pooling)
