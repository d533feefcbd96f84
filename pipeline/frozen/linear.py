"""A linear map of frozen features, trained with a loss of proxies.

    z' = W z / ||W z||        W = I + A

z is the feature at unit length (D). A starts at zero, and weight decay pulls it back there: the published
features are the start and the prior. The loss is one of proxies.py.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn

from unseen.data.sampler import EpochSampler
from unseen.frozen.head_training import training_steps
from unseen.frozen.network import add_linear
from unseen.frozen.proxies import PROXY_RATE, ProxyMethod, criterion_of, proxy_recipe
from unseen.frozen.trained import Task, Trained
from unseen.frozen.trunk import CachedBackbone, Layout
from unseen.methods.method import unit
from unseen.methods.settings import Optimizer, Recipe, Schedule

BATCH = 256  # images
LEARNING_RATE = 1e-3  # of A
OPTIMIZER = Optimizer(
    name="adamw",
    learning_rate=LEARNING_RATE,
    weight_decay=0.1,  # of A
    multipliers={"proxies": PROXY_RATE / LEARNING_RATE},
    decay={"proxies": 0.0},
)
LENGTHS = (15, 30, 60, 120, 240)  # steps among which validation chooses


class LinearMap(ProxyMethod):
    """W = I + A and the loss with its proxies, at their start."""

    def __init__(self, criterion: nn.Module) -> None:
        dim = criterion.get_parameter("proxies").shape[1]
        super().__init__(CachedBackbone(Layout.of_vectors(dim), ()), criterion)
        self.change = nn.Parameter(torch.zeros(dim, dim))  # A

    def vectors(self, features: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """z' of B features."""
        return unit(features + features @ self.change.T)

    def weight(self) -> Float32[np.ndarray, "D D"]:
        """W."""
        change = self.change.detach().cpu()
        result: np.ndarray = (torch.eye(len(change)) + change).numpy()
        return result


def train(
    features: Float32[np.ndarray, "N D"],
    labels: Int64[np.ndarray, "N"],
    lengths: Sequence[int] = LENGTHS,
    loss: str = "nsoftmax",
    seed: int = 0,
) -> Iterator[tuple[int, LinearMap]]:
    """The map after each of the ascending numbers of steps in `lengths`, with that number; the same object
    each time.

    labels: 0 to C - 1, each with an image. Equal inputs give equal results on one number of threads.
    """
    linear = LinearMap(criterion_of(loss, features, labels))
    recipe = recipe_of_linear(loss, len(labels), lengths[-1])
    sampler = EpochSampler(labels, recipe.batch, seed)
    for trained in training_steps(
        linear, recipe, sampler, lambda rows: torch.from_numpy(features[rows]), labels, lengths, seed
    ):
        yield trained.steps, linear


def recipe_of_linear(loss: str, photos: int, steps: int) -> Recipe:
    """The settings of a training of A and the proxies on a number of photos."""
    return proxy_recipe(loss, min(BATCH, photos), steps, OPTIMIZER, Schedule())


def mapped(
    features: Float32[np.ndarray, "N D"], weight: Float32[np.ndarray, "D D"]
) -> Float32[np.ndarray, "N D"]:
    """z' of N features."""
    result: np.ndarray = unit(torch.from_numpy(features) @ torch.from_numpy(weight).T).numpy()
    return result


class LinearTrainer:
    """The rung `linear` for the features of all photos."""

    name = "linear"
    lengths: tuple[int, ...] = LENGTHS
    seconds = 0.0  # its features are those of the frozen rung

    def __init__(self, features: Float32[np.ndarray, "N D"], loss: str, seed: int) -> None:
        self._features, self._loss, self._seed = features, loss, seed
        self.digest = hashlib.sha256(np.ascontiguousarray(features).data).hexdigest()

    def recipe(self, photos: int, steps: int) -> Recipe:
        """As Trainer.recipe."""
        return recipe_of_linear(self._loss, photos, steps)

    def train(self, task: Task) -> list[Trained]:
        """As Trainer.train; `parameters` is W."""
        return [
            Trained(steps, mapped(self._features[task.searched], weight), weight)
            for steps, linear in train(
                self._features[task.rows], task.labels, task.lengths, self._loss, self._seed
            )
            for weight in [linear.weight()]
        ]

    def write(self, model: Path, trained: Trained, photos: int, classes: int, measured: bool) -> None:
        """As Trainer.write."""
        about = {"loss": self._loss, "steps": trained.steps, "photos": photos, "classes": classes}
        add_linear(model, torch.from_numpy(trained.parameters), about | {"measured": measured})
