"""A linear map of frozen features, trained with a loss of proxies.

    z' = W z / ||W z||        W = I + A

z is the feature at unit length (D). A starts at zero, and weight decay pulls it back there: the published
features are the start and the prior. The loss (cosine softmax, CosFace or ArcFace) has a proxy per class,
which starts at the mean feature of its class.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn

from unseen.frozen.network import add_linear
from unseen.frozen.trained import Trained
from unseen.losses.margin_softmax import ArcFace, CosFace
from unseen.losses.normalized_softmax import NormalizedSoftmax
from unseen.methods.method import unit

BATCH = 256  # images
LEARNING_RATE = 1e-3  # of A, AdamW
PROXY_RATE = 1e-2  # of the proxies
WEIGHT_DECAY = 0.1  # of A, decoupled
LENGTHS = (15, 30, 60, 120, 240)  # steps among which validation chooses
# Losses by name. Scale 20 is the temperature 0.05 of the normalised softmax. The margins are smaller than
# those of the papers, which train whole networks at scale 64.
LOSSES: dict[str, Callable[[int, int], nn.Module]] = {
    "nsoftmax": lambda classes, dim: NormalizedSoftmax(classes, dim, 0.05),
    "cosface": lambda classes, dim: CosFace(classes, dim, 20.0, 0.1),
    "arcface": lambda classes, dim: ArcFace(classes, dim, 20.0, 0.1),
}


class LinearMap(nn.Module):
    """W = I + A and the loss with its proxies, at their start for N features of C classes."""

    def __init__(self, features: Float32[Tensor, "N D"], targets: Int64[Tensor, "N"], loss: str) -> None:
        """targets: 0 to C - 1, each with a feature. loss: a name of LOSSES."""
        super().__init__()
        self.criterion = criterion_of(loss, features, targets)
        self.change = nn.Parameter(torch.zeros(features.shape[1], features.shape[1]))  # A

    def forward(self, features: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """z' of B features."""
        return unit(features + features @ self.change.T)

    def weight(self) -> Float32[np.ndarray, "D D"]:
        """W."""
        change = self.change.detach().cpu()
        result: np.ndarray = (torch.eye(len(change)) + change).numpy()
        return result

    def groups(self) -> list[dict[str, Any]]:
        """The groups of AdamW."""
        return [
            {"params": [self.change], "lr": LEARNING_RATE, "weight_decay": WEIGHT_DECAY},
            {"params": list(self.criterion.parameters()), "lr": PROXY_RATE, "weight_decay": 0.0},
        ]


def criterion_of(loss: str, features: Float32[Tensor, "N D"], targets: Int64[Tensor, "N"]) -> nn.Module:
    """The loss of a name of LOSSES, with the proxies at the mean features of their classes, 0 to C - 1."""
    classes, dim = int(targets.max()) + 1, features.shape[1]
    with torch.random.fork_rng(devices=[]):
        criterion = LOSSES[loss](classes, dim)
    with torch.no_grad():
        means = torch.zeros(classes, dim).index_add_(0, targets, features)
        criterion.get_parameter("proxies").copy_(unit(means))
    return criterion


def train(
    features: Float32[np.ndarray, "N D"],
    labels: Int64[np.ndarray, "N"],
    lengths: Sequence[int] = LENGTHS,
    loss: str = "nsoftmax",
    seed: int = 0,
) -> Iterator[tuple[int, LinearMap]]:
    """The map after each of the ascending numbers of steps in `lengths`, with that number; the same object
    each time.

    labels: 0 to C - 1, each with an image. Batches are drawn without replacement within an epoch. Equal
    inputs give equal results on one number of threads.
    """
    images, targets = torch.from_numpy(features), torch.from_numpy(labels)
    linear = LinearMap(images, targets, loss)
    optimizer = torch.optim.AdamW(linear.groups())
    for step, rows in enumerate(batches(len(labels), min(BATCH, len(labels)), lengths[-1], seed), 1):
        optimizer.zero_grad(set_to_none=True)
        linear.criterion(linear(images[rows]), targets[rows]).backward()
        optimizer.step()
        if step in lengths:
            yield step, linear


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

    def train(
        self,
        rows: Int64[np.ndarray, "_"],
        labels: Int64[np.ndarray, "_"],
        lengths: Sequence[int],
        searched: Int64[np.ndarray, "_"],
    ) -> list[Trained]:
        """As Trainer.train; `parameters` is W."""
        return [
            Trained(steps, mapped(self._features[searched], weight), weight)
            for steps, linear in train(self._features[rows], labels, lengths, self._loss, self._seed)
            for weight in [linear.weight()]
        ]

    def write(self, model: Path, trained: Trained, photos: int, classes: int, measured: bool) -> None:
        """As Trainer.write."""
        about = {"loss": self._loss, "steps": trained.steps, "photos": photos, "classes": classes}
        add_linear(model, torch.from_numpy(trained.parameters), about | {"measured": measured})


def batches(count: int, size: int, steps: int, seed: int) -> Iterator[Int64[Tensor, "B"]]:
    """`size` of `count` rows for each of a number of steps, without replacement within an epoch."""
    random = np.random.default_rng(seed)
    order = np.empty(0, np.int64)
    for _ in range(steps):
        if len(order) < size:
            order = random.permutation(count)
        yield torch.from_numpy(order[:size])
        order = order[size:]
