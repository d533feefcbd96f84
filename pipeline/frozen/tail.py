"""The rung `adapt`: the last layers of the network, trained after the proxies of the classes.

    z = f(x) / ||f(x)||        the loss is that of rung `linear`, with a proxy per class

1. Head first: the proxies start at the mean features of their classes, and are trained on the published
   features. Random proxies would distort these (Kumar et al., ICLR 2022, LP-FT).
2. Then the proxies and the parameters theta of the last layers l = 1 ... L of the network are trained
   together, by AdamW without its own decay:

    rate of layer l     eta_l(t) = RATE * DECAY ** (L - l) * s(t)                (Bao et al., BEiT, ICLR 2022)
    each step           theta <- theta - eta_l(t) PULL (theta - theta_0), then the step of Adam

   s(t) rises linearly in WARMUP steps and falls to zero as a half cosine. theta_0 are the published weights
   (pipeline/training/optimizer.py).

Batch norm keeps its published statistics. The input of the last layers is computed once for each photo
(pipeline/networks/tail.py), so that the cost is that of the last layers. Photos are not augmented. A linear
map W behind the network, as in rung `linear`, lowered the accuracy on held-out classes and is omitted.
"""

import hashlib
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn

from unseen.data.sampler import EpochSampler
from unseen.frozen.head_training import MapLoader, training_steps
from unseen.frozen.maps import Maps, Trunk, maps_of
from unseen.frozen.network import WEIGHTS, Network, add_tail, load_network, write_network
from unseen.frozen.pictures import Listed
from unseen.frozen.proxies import PROXY_RATE, ProxyMethod, criterion_of, proxy_recipe
from unseen.frozen.trained import Task, Trained
from unseen.frozen.trunk import CachedBackbone, Layout
from unseen.methods.method import unit
from unseen.methods.settings import Optimizer, Recipe, Schedule
from unseen.networks.backbone import Backbone, Features, layers_of
from unseen.networks.tail import Tail, front
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.progress import Progress
from unseen.training.embed import embed_rows
from unseen.training.export.model import device

SHARE = 4  # of the layers, the last one in SHARE is trained
LENGTHS = (100,)  # steps
HEAD_STEPS = 50  # of the proxies before theta is trained
BATCH = 32  # images
RATE = 2e-3  # of the last layer
DECAY = 0.8
PULL = 10.0
WARMUP = 20  # steps
OPTIMIZER = Optimizer(
    name="adamw",
    learning_rate=RATE,
    weight_decay=0.0,
    multipliers={"proxies": PROXY_RATE / RATE},
    layer_decay=DECAY,
    anchor=PULL,
)


class AdaptInputs(NamedTuple):
    """The tail of a network, and its inputs for all photos."""

    tail: Tail
    inputs: Maps
    digest: str  # of the network, the trained layers and the size of the images
    seconds: float  # of CPU, for the inputs


class Front(Backbone):
    """Images -> the input of the tail, as one map."""

    def __init__(self, network: nn.Module, tail: Tail) -> None:
        nn.Module.__init__(self)
        self.network, self._first, self.stages = network, tail.first, (0,)
        self._shape = tail.shape
        self._frozen = False

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Features:
        values = front(self.network, self._first, images)
        return Features((values.reshape(len(values), *self._shape, *(1,) * (3 - len(self._shape))),), None)


class TailBackbone(Backbone):
    """The inputs of a tail as rows -> the output of the network as class tokens."""

    def __init__(self, tail: Tail) -> None:
        nn.Module.__init__(self)
        self.tail, self._frozen = tail, False

    def forward(self, images: Float[Tensor, "B V"]) -> Features:
        return Features((), self.tail(shaped(self.tail, images)))

    def layers(self) -> list[list[nn.Parameter]]:
        return self.tail.layers()


class TailMethod(ProxyMethod):
    """The vectors of a tail at unit length."""

    def vectors(self, features: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        return unit(features)


def tail_of(network: Network, directory: Path) -> tuple[Tail, Trunk]:
    """The tail of a network, and what computes its input. `directory` receives the network.

    Raises UserError as `write_network` does, and for a network whose last layers cannot be divided from the
    others.
    """
    write_network(network, directory)
    loaded = load_network(directory)
    module: Any = loaded.method.network
    try:
        count = max(1, round(len(layers_of(module, network.name)) / SHARE))
        tail = Tail(module, network.name, count, loaded.input.size)
    except ValueError as error:
        raise UserError(
            f"The last layers of {network.name} cannot be trained alone: {error}",
            "Choose another network, or omit the rung: --no-adapt.",
        ) from error
    identity = [sha256_of(directory / WEIGHTS), network.name, dict(network.arguments), tail.first]
    text = json.dumps([*identity, loaded.input.model_dump(mode="json")], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    channels, height, width = (*tail.shape, 1, 1)[:3]
    layout = Layout((0,), ((channels, height, width),), None)
    return tail, Trunk(Front(module, tail), {}, loaded.input, digest, layout)


def inputs(network: Network, photos: Path, pictures: Listed, directory: Path, model: Path) -> AdaptInputs:
    """The inputs of the tail for all photos; those in `directory` are used again. model: receives the
    network."""
    begin = time.process_time()
    tail, trunk = tail_of(network, model)
    paths = [photos / path for path in pictures.paths]
    label = f"ladder: inputs of {tail.first}, {trunk.input.size} pixels"
    computed = maps_of(paths, pictures.sha256, trunk, directory, label)
    return AdaptInputs(tail, computed, trunk.digest, time.process_time() - begin)


class AdaptTrainer:
    """The rung `adapt` for the inputs of all photos."""

    name = "adapt"
    lengths: tuple[int, ...] = LENGTHS

    def __init__(self, given: AdaptInputs, loss: str, seed: int) -> None:
        self._tail, self._inputs, self.seconds = given.tail.to(device()), given.inputs, given.seconds
        self.digest = given.digest
        self._published = self._tail.state()
        self._loss, self._seed = loss, seed

    def recipe(self, photos: int, steps: int) -> Recipe:
        """As Trainer.recipe, after the steps of the proxies."""
        return proxy_recipe(self._loss, min(BATCH, photos), steps, OPTIMIZER, schedule_of(steps))

    def train(self, task: Task) -> list[Trained]:
        """As Trainer.train; `parameters` are theta. Each length is a training of its own."""
        return [self._trained(task, steps) for steps in task.lengths]

    def _trained(self, task: Task, steps: int) -> Trained:
        rows, labels = task.rows, task.labels
        place = device()
        self._tail.load(self._published)
        features = embedded(self._tail, self._inputs, rows)
        criterion = criterion_of(self._loss, features, labels)

        frozen = ProxyMethod(CachedBackbone(Layout.of_vectors(features.shape[1]), ()), criterion).to(place)
        recipe = proxy_recipe(self._loss, min(BATCH, len(rows)), HEAD_STEPS, OPTIMIZER, Schedule())
        sampler = EpochSampler(labels, recipe.batch, self._seed)

        def of_features(positions: Int64[np.ndarray, "B"]) -> Float32[Tensor, "B D"]:
            return torch.from_numpy(features[positions])

        list(training_steps(frozen, recipe, sampler, of_features, labels, (HEAD_STEPS,), self._seed))

        method = TailMethod(TailBackbone(self._tail), criterion).to(place)
        of_layers = self.recipe(len(rows), steps)

        def of_tail(positions: Int64[np.ndarray, "B"]) -> Float32[Tensor, "B V"]:
            return self._inputs.rows(rows[positions])

        every = range(1, steps + 1)
        with Progress("ladder: adapt", steps, "steps") as progress:
            for _ in training_steps(method, of_layers, sampler, of_tail, labels, every, self._seed):
                progress.advance()
        return Trained(steps, embedded(self._tail, self._inputs, task.searched), self._tail.state())

    def write(self, model: Path, trained: Trained, photos: int, classes: int, measured: bool) -> None:
        """As Trainer.write."""
        about = {"loss": self._loss, "steps": trained.steps, "photos": photos, "classes": classes}
        add_tail(model, trained.parameters, about | {"measured": measured, "first": self._tail.first})


def schedule_of(steps: int) -> Schedule:
    """s of a training; without a warm-up if it is no longer than that."""
    return Schedule(name="cosine", warmup=WARMUP if steps > WARMUP else 0)


def embedded(tail: Tail, inputs: Maps, photos: Int64[np.ndarray, "n"]) -> Float32[np.ndarray, "n D"]:
    """The unit vectors of photos by the tail."""
    loader = MapLoader(inputs, photos)
    (vectors,) = embed_rows(lambda rows: (unit(tail(shaped(tail, rows))),), loader, device())
    return vectors


def shaped(tail: Tail, rows: Float[Tensor, "B V"]) -> Float[Tensor, "B ..."]:
    """Rows of cached values as inputs of the tail."""
    return rows.reshape(len(rows), *tail.shape)
