"""A linear map of frozen features, trained with a loss of proxies.

    z' = W z / ||W z||        W = I + A

z is the feature at unit length (D). A starts at zero, and weight decay pulls it back there: the published
features are the start and the prior. The loss (cosine softmax, CosFace or ArcFace) has a proxy per class,
which starts at the mean feature of its class.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import nn

from pipeline.ladder.trained import Trained
from pipeline.losses.margin_softmax import ArcFace, CosFace
from pipeline.losses.normalized_softmax import NormalizedSoftmax
from pipeline.methods.method import unit
from pipeline.methods.pretrained import add_linear

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


def train(
    features: Float32[np.ndarray, "N D"],
    labels: Int64[np.ndarray, "N"],
    lengths: Sequence[int] = LENGTHS,
    loss: str = "nsoftmax",
    seed: int = 0,
) -> Iterator[tuple[int, Float32[np.ndarray, "D D"]]]:
    """W after each of the ascending numbers of steps in `lengths`, with that number.

    labels: 0 to C - 1, each with an image. Batches are drawn without replacement within an epoch. Equal
    inputs give equal results on one number of threads.
    """
    images, targets = torch.from_numpy(features), torch.from_numpy(labels)
    classes, dim = int(labels.max()) + 1, features.shape[1]
    with torch.random.fork_rng(devices=[]):
        criterion = LOSSES[loss](classes, dim)
    with torch.no_grad():
        means = torch.zeros(classes, dim).index_add_(0, targets, images)
        criterion.get_parameter("proxies").copy_(unit(means))
    change = nn.Parameter(torch.zeros(dim, dim))
    optimizer = torch.optim.AdamW(
        [
            {"params": [change], "lr": LEARNING_RATE, "weight_decay": WEIGHT_DECAY},
            {"params": list(criterion.parameters()), "lr": PROXY_RATE, "weight_decay": 0.0},
        ]
    )
    for step, rows in enumerate(_batches(len(labels), lengths[-1], seed), 1):
        batch = images[rows]
        optimizer.zero_grad(set_to_none=True)
        criterion(unit(batch + batch @ change.T), targets[rows]).backward()
        optimizer.step()
        if step in lengths:
            yield step, (torch.eye(dim) + change.detach()).numpy()


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
        numbered = np.unique(labels, return_inverse=True)[1].astype(np.int64)
        return [
            Trained(steps, mapped(self._features[searched], weight), weight)
            for steps, weight in train(self._features[rows], numbered, lengths, self._loss, self._seed)
        ]

    def write(self, model: Path, trained: Trained, photos: int, classes: int, measured: bool) -> None:
        """As Trainer.write."""
        about = {"loss": self._loss, "steps": trained.steps, "photos": photos, "classes": classes}
        add_linear(model, torch.from_numpy(trained.parameters), about | {"measured": measured})


def _batches(count: int, steps: int, seed: int) -> Iterator[torch.Tensor]:
    random = np.random.default_rng(seed)
    size = min(BATCH, count)
    order = np.empty(0, np.int64)
    for _ in range(steps):
        if len(order) < size:
            order = random.permutation(count)
        yield torch.from_numpy(order[:size])
        order = order[size:]
