"""A package of parts of a user, right and wrong ones, for the tests of parts from outside."""

from pathlib import Path

import pytest

from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.methods.settings import Recipe

CLASS = "outside.circle:Circle"
HEAD = "methods:\n  mine:\n    like: ms\n    loss:\n"
LOSS = """
from torch import nn
from unseen.runtime import Strict
from .helper import scaled

class Circle(nn.Module):
    def __init__(self, dim: int, gamma: float, orders: tuple[int, ...] = (1, 2)) -> None:
        super().__init__()
        self.dim, self.gamma, self.orders = dim, gamma, orders

    def forward(self, embeddings, labels):
        return scaled(embeddings.sum(), self.gamma)

class Power(nn.Module):
    projects = True

    class Settings(Strict):
        exponent: float = 2.0

    def __init__(self, channels, exponent):
        super().__init__()
        self.channels, self.exponent = channels, exponent

    def forward(self, features):
        return features.mean((2, 3))
"""
WRONG = """
import torch
from torch import nn
from unseen.losses import PairLoss
from unseen.methods import EmbeddingMethod, OutsideRecipe
from unseen.networks import Staged

class Abstract(PairLoss):
    pass

class Cost(PairLoss):
    def cost(self, a, b):
        return a

class Named(nn.Module):
    def __init__(self, name: str):
        super().__init__()

    def forward(self, embeddings, labels):
        return 0

class NoForward(nn.Module):
    pass

class NoModule:
    def forward(self, embeddings, labels):
        return 0

class OneSided(nn.Module):
    def forward(self, embeddings):
        return 0

class OfSamples(nn.Module):
    inputs = "samples"

    def forward(self, embeddings, labels, samples):
        return 0

class OfTuples(nn.Module):
    inputs = "tuples"

    def __init__(self, negatives: int = 3):
        super().__init__()

    def forward(self, query, positive, negatives):
        return 0

class OfTwoSides(nn.Module):
    inputs = "tuples"

    def forward(self, query, positive):
        return 0

class NoChannels(nn.Module):
    def __init__(self, channels):
        super().__init__()

    def forward(self, features):
        return features.mean((2, 3))

class NoBlock(Staged):
    plan, channels = (("first",),), (4,)
    default_cfg = {"classifier": (), "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}

class NoStep:
    steps_per_epoch = 5

    def __init__(self, labels, batch, seed):
        pass

    def draw(self):
        return None

class NoSteps:
    def draw(self, step):
        return None

class NoKey:
    def __call__(self, image):
        return image

class Terms(EmbeddingMethod):
    class Settings(OutsideRecipe):
        pass

    def terms(self, outputs):
        return {}

class Init(EmbeddingMethod):
    class Settings(OutsideRecipe):
        pass

    def __init__(self, recipe):
        super().__init__(recipe, 1, 1)

class NoMethod(nn.Module):
    class Settings(OutsideRecipe):
        pass

class Values:
    DEFINITION = "x"

    def values(self, x):
        return x
"""
NETWORK = """
from torch import nn
from unseen.networks import Staged

class Conv2(Staged):
    plan, channels = (("first",), ("second",)), (4, 8)
    default_cfg = {"classifier": (), "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}

    def __init__(self, kernel: int = 3) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, kernel), nn.Conv2d(4, 8, kernel)
"""
METHOD = """
from unseen.methods import EmbeddingMethod, OutsideRecipe
from .helper import scaled

class Compact(EmbeddingMethod):
    positions = "outside.shares:shares"

    class Settings(OutsideRecipe):
        dim: int = 8
        weight: float

    def __init__(self, recipe, classes, samples):
        super().__init__(recipe, classes, samples)
        self.weight = recipe.weight

    def terms(self, outputs, labels, samples, observed):
        terms = super().terms(outputs, labels, samples, observed)
        return terms | {"compact": scaled(outputs.embedding.square().mean(), self.weight)}
"""
IMAGES = """
import numpy as np
from unseen.data import drawn

class Pairs:
    steps_per_epoch = 5

    def __init__(self, labels, batch, seed, shift: int = 0):
        self.labels, self.batch, self.seed, self.shift = labels, batch, seed, shift

    def draw(self, step):
        return drawn(np.arange(self.batch.size) + self.shift, self.seed, step)

class Few(Pairs):
    def draw(self, step):
        return drawn(np.arange(self.batch.size - 1), self.seed, step)

class Changing(Pairs):
    calls = 0

    def draw(self, step):
        self.calls += 1
        return drawn(np.arange(self.batch.size), self.seed, self.calls)

class Noise:
    def __init__(self, input, levels: int):
        self.input, self.levels = input, levels

    def __call__(self, image, key):
        assert image.shape == (self.input.size, self.input.size, 3)
        noise = np.random.default_rng(key).integers(0, self.levels, image.shape)
        return (image // 2 + noise).astype(np.uint8)

class Grey(Noise):
    def __call__(self, image, key):
        return image.mean(2)
"""
READER = """
from pathlib import Path
import numpy as np
from unseen.data import Collection, Picture
from unseen.runtime import Strict
from .helper import scaled

LIKE = "cub"

class Settings(Strict):
    path: str
    classes: int = 4

def read(name):
    return np.random.default_rng(int(name)).integers(0, 256, (9, 9, 3), np.uint8)

def collection(settings, scratch):
    assert scratch.is_dir()
    names = [str(scaled(row, 1)) for row in range(2 * settings.classes)]
    pictures = [
        Picture(name, f"c{int(name) // 2}", "train" if int(name) < settings.classes else "test")
        for name in names
    ]
    return Collection(settings.path, pictures, read)
"""
METRIC = """
class Reciprocal:
    DEFINITION = "1 over the rank of the first relevant row, to a power"

    def __init__(self, per_query, power: int = 1):
        self.first, self.power = per_query.first, power

    def values(self):
        return 1.0 / self.first**self.power

class Single(Reciprocal):
    def values(self):
        return super().values().mean()

def mean(per_query):
    return 1
"""
SECTION = """
def content(dataset, count: int = 3):
    return None
"""


def outside_project(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes `directory` the current one, and writes package `outside` into it."""
    package = directory / "outside"
    package.mkdir()
    texts = {"circle": LOSS, "network": NETWORK, "method": METHOD, "images": IMAGES, "reader": READER}
    texts |= {"wrong": WRONG, "metric": METRIC, "section": SECTION, "bare": SECTION}
    texts["helper"] = "def scaled(x, by):\n    return x * by\n"
    for name, text in texts.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    (package / "section.html").write_text("<p>{{ count }} of {{ dataset.name }}</p>\n", encoding="utf-8")
    monkeypatch.syspath_prepend(directory)
    monkeypatch.chdir(directory)
    monkeypatch.setattr("unseen.runtime.parts._classes", {})
    return directory


def resolved(*lines: str) -> Recipe:
    """Recipe `mine`, whose block `loss` has these lines."""
    text = HEAD + "".join(f"      {line}\n" for line in lines)
    return Definitions(Params(text=text)).layers("cub", "mine").recipe()
