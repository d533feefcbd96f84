"""Trains a head on cached maps, with the method, the sampler, the optimizer and the step of a whole network.

If `principal` is set, its last linear layers start at the principal directions of what they read
(training/principal_start.py), not centred, so that the embedding starts near the published one. A random W
of 128 dimensions loses several points of MAP@R at the start.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from unseen.data.loader import Sampler, TrainBatch
from unseen.data.sampler import make_sampler
from unseen.frozen.maps import Maps
from unseen.frozen.trunk import CachedBackbone, Layout
from unseen.methods.build import initial_method
from unseen.methods.embedding import EmbeddingMethod
from unseen.methods.method import Method
from unseen.methods.settings import Recipe
from unseen.runtime.errors import UserError
from unseen.training.embed import embed_rows
from unseen.training.export.model import device
from unseen.training.optimizer import build_optimizer
from unseen.training.principal_start import set_principal_directions
from unseen.training.step import Learner, Step, train_step

EMBEDDED = 256  # images that a head embeds at a time


@dataclass(frozen=True)
class MapBatch(TrainBatch):
    """A global batch of cached maps in place of images."""

    images: Float32[Tensor, "b V"]


@dataclass(frozen=True)
class TrainedHead:
    """A head after `steps` training steps, in eval mode, with the numbers of these steps."""

    method: Method
    steps: int
    numbers: Sequence[Step]


def on_cached_maps(recipe: Recipe, layout: Layout, classes: int, samples: int, seed: int) -> Method:
    """The method of a recipe with the same initial head as `initial_method`, and a backbone that reads cached
    maps. The maps of the layout are those of the recipe's stages, in their order.

    The recipe's network is built, without its weights, because the head depends on its shapes. Raises
    UserError as `initial_method` does.
    """
    if recipe.training.start != "random":
        raise UserError(
            "training.start of a head on cached maps is random.", "Remove training.start from its recipe."
        )
    bare = recipe.backbone.model_copy(update={"pretrained": False, "checkpoint": None})
    method = initial_method(recipe.model_copy(update={"backbone": bare}), classes, samples, seed)
    backbone = CachedBackbone(layout, method.backbone.stages)
    assert backbone.channels == method.backbone.channels, "the maps are those of another network"
    if isinstance(method, EmbeddingMethod) and method.momentum is not None:
        raise UserError(
            "A head on cached maps has no momentum encoder, which averages a network.",
            "Set memory.momentum to null.",
        )
    method.backbone = backbone
    return method


def train(
    recipe: Recipe,
    maps: Maps,
    photos: Int64[np.ndarray, "N"],
    labels: Int64[np.ndarray, "N"],
    lengths: Sequence[int],
    seed: int = 0,
    principal: bool = False,
) -> Iterator[TrainedHead]:
    """The head after each of the ascending numbers of steps in `lengths`; the same object each time.

    photos: positions in `maps` of the training images. labels: 0 to C - 1, each with an image. It is trained
    on the GPU if there is one; on a CPU equal inputs give equal results on one number of threads. Raises
    UserError if the images do not fill a batch, and for a recipe without trainable parameters.
    """
    method = on_cached_maps(recipe, maps.layout, int(labels.max()) + 1, len(photos), seed)
    if principal:
        batches = (images for images, _ in MapLoader(maps, photos))
        set_principal_directions(method, batches, centred=False)
    method, sampler = method.to(device()), make_sampler(labels, recipe.batch, seed)
    return training_steps(
        method, recipe, sampler, lambda positions: maps.rows(photos[positions]), labels, lengths, seed
    )


def training_steps(
    method: Method,
    recipe: Recipe,
    sampler: Sampler,
    rows: Callable[[Int64[np.ndarray, "B"]], Float32[Tensor, "B V"]],
    labels: Int64[np.ndarray, "N"],
    lengths: Sequence[int],
    seed: int,
) -> Iterator[TrainedHead]:
    """Trains a method on cached rows; yields it after each of the ascending numbers of steps in `lengths`.

    rows: of positions in `labels`, as the backbone of the method reads them. The random numbers of the caller
    do not change.
    """
    place = next(method.parameters()).device
    optimizer = build_optimizer(recipe.optimizer, method.parameter_groups(), place, method.backbone.layers())
    learner, numbers = Learner(method, optimizer, recipe, seed), []
    for step in range(lengths[-1]):
        method.train()
        positions = sampler.draw(step).positions
        images, targets = rows(positions), torch.from_numpy(labels[positions])
        with torch.random.fork_rng(devices=[]):
            submitted = train_step(learner, MapBatch(step, images, targets, torch.from_numpy(positions)))
        numbers.append(submitted.result())
        if step + 1 in lengths:
            yield TrainedHead(method.eval(), step + 1, tuple(numbers))


@dataclass(frozen=True)
class MapLoader:
    """The cached maps of photos, EMBEDDED at a time."""

    maps: Maps
    rows: Int64[np.ndarray, "N"]  # photos

    def __iter__(self) -> Iterator[tuple[Float32[Tensor, "b V"], Int64[Tensor, "b"]]]:
        for start in range(0, len(self.rows), EMBEDDED):
            part = self.rows[start : start + EMBEDDED]
            yield self.maps.rows(part), torch.from_numpy(part)


def embedded(method: Method, maps: Maps, photos: Int64[np.ndarray, "N"]) -> Float32[np.ndarray, "N D"]:
    """Unit vectors of the cached maps of photos by a method in eval mode."""
    place = next((parameter.device for parameter in method.parameters()), torch.device("cpu"))
    (vectors,) = embed_rows(lambda rows: (method.embed(rows),), MapLoader(maps, photos), place)
    return vectors
