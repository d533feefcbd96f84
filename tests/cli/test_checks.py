"""`unseen check`: a right part from outside passes, and each check fails for the part with its fault."""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from unseen.cli.checks import checks_of, results, settings_of
from unseen.cli.main import main
from unseen.data import Draw, drawn
from unseen.evaluation import PerQuery
from unseen.losses.pairs import PairLoss, Pairs
from unseen.methods import EmbeddingMethod, OutsideRecipe, unit
from unseen.networks.staged import Staged
from unseen.runtime.device.precision import full_precision, without_autocast
from unseen.runtime.errors import UserError


class Right(PairLoss):
    """The mean over pairs of (s - target)^2."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def similarities(self, pairs: Pairs) -> Tensor:
        return pairs.anchors @ pairs.references.T

    def weights(self, pairs: Pairs, costs: Tensor) -> Tensor:
        weights = torch.ones_like(costs)
        if pairs.self_index is not None:
            weights = weights.scatter(1, pairs.self_index[:, None], 0.0)
        return weights

    def cost(self, pairs: Pairs) -> Tensor:
        equal = pairs.labels[:, None] == pairs.reference_labels
        costs = self.scale * (self.similarities(pairs) - equal.to(pairs.anchors.dtype)).square()
        weights = self.weights(pairs, costs)
        return (weights * costs).sum() / weights.sum().clamp(min=1)


class StopsGradient(Right):
    def weights(self, pairs: Pairs, costs: Tensor) -> Tensor:
        return super().weights(pairs, costs) * (0.1 + costs.detach())


class Circle(StopsGradient):
    gradient = "surrogate"


class Ascends(Circle):
    def cost(self, pairs: Pairs) -> Tensor:
        value = super().cost(pairs)
        return 2 * value.detach() - value


class OneForEachImage(nn.Module):
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return full_precision(embeddings).square().sum(1) + labels


class OfOneInput(nn.Module):  # a loss: it gets `classes`
    def __init__(self, classes: int) -> None:
        super().__init__()

    def forward(self, vectors: Tensor) -> Tensor:
        return vectors.sum()


class OfTwoInputs(nn.Module):  # a pooling: it states `attributes`
    attributes = False

    def __init__(self, channels: int) -> None:
        super().__init__()

    def forward(self, maps: Tensor, mask: Tensor) -> Tensor:
        return maps.mean((2, 3))


class NoModule:
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return embeddings.sum()


class Infinite(Right):
    def cost(self, pairs: Pairs) -> Tensor:
        return super().cost(pairs) / 0


class ByPosition(Right):
    def weights(self, pairs: Pairs, costs: Tensor) -> Tensor:
        return super().weights(pairs, costs) * (1 + torch.arange(len(costs)))[:, None]


class ByPositionInMemory(Right):
    def weights(self, pairs: Pairs, costs: Tensor) -> Tensor:
        weights = super().weights(pairs, costs)
        return weights if pairs.self_index is not None else weights * (1 + torch.arange(costs.shape[1]))


class Random(Right):
    def cost(self, pairs: Pairs) -> Tensor:
        return super().cost(pairs) * (1 + torch.rand(()))


class Counts(Right):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def cost(self, pairs: Pairs) -> Tensor:
        self.calls += 1
        return super().cost(pairs)


class Rounds(Right):
    def forward(self, embeddings: Tensor, labels: Tensor) -> Any:  # type: ignore[override]
        return self.cost(Pairs(embeddings, labels, embeddings, labels, torch.arange(len(labels))))


class DividesByPairs(Right):
    def cost(self, pairs: Pairs) -> Tensor:
        equal = (pairs.labels[:, None] == pairs.reference_labels).fill_diagonal_(False)
        return super().cost(pairs) * equal.sum() / equal.sum()


class Idle(Right):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))


class CountsItself(Right):
    def cost(self, pairs: Pairs) -> Tensor:
        within = pairs.references is pairs.anchors
        return super().cost(pairs if within else pairs._replace(self_index=None))


class DetachesMemory(Right):
    def similarities(self, pairs: Pairs) -> Tensor:
        within = pairs.references is pairs.anchors
        return pairs.anchors @ (pairs.references if within else pairs.references.detach()).T


class Raises(Right):
    def cost(self, pairs: Pairs) -> Tensor:
        raise KeyError("no such margin")


class Proxies(nn.Module):
    """Cosines to learned vectors."""

    inputs = "proxies"

    def __init__(self, classes: int, dim: int) -> None:
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(classes, dim))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        with without_autocast(embeddings):
            rows = full_precision(embeddings)
            return nn.functional.cross_entropy(rows @ self.proxies.T.to(rows.dtype), labels)


class OneProxy(Proxies):
    def __init__(self, classes: int, dim: int) -> None:
        super().__init__(classes, dim)
        self.centre = nn.Parameter(torch.zeros(dim))


class Mean(nn.Module):
    """The mean over positions, in float32."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.out_channels = channels

    def forward(self, features: Tensor) -> Tensor:
        return full_precision(features).mean((2, 3))


class AnotherWidth(Mean):
    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features)[:, 1:]


class ProjectsNot(Mean):
    projects = True

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__(channels)


class Centred(Mean):
    def forward(self, features: Tensor) -> Tensor:
        pooled = super().forward(features)
        return pooled - pooled.mean(0)


class Half(Mean):
    def forward(self, features: Tensor) -> Tensor:
        return features.mean((2, 3))


class Root(Mean):
    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features.square()).sqrt()


class Scaled(Mean):
    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.factor = nn.Parameter(torch.ones(channels))

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features) * self.factor.detach()


class Votes(Mean):
    attributes = True

    def forward(self, features: Tensor) -> Any:
        pooled = super().forward(features)
        return pooled, pooled.softmax(1) / 2, pooled


class Convolutions(Staged):
    plan = (("first",), ("second",))
    channels = (8, 16)
    default_cfg = {"classifier": (), "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}  # noqa: RUF012

    def __init__(self, stride: int = 2) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride)
        self.second = nn.Conv2d(8, 16, 3, stride)


class OtherChannels(Convolutions):
    channels = (8, 32)


class CentredMaps(Convolutions):
    def block(self, name: str, x: Tensor) -> Tensor:
        maps = super().block(name, x)
        return maps - maps.mean(0)


class Plain(EmbeddingMethod):
    class Settings(OutsideRecipe):
        factor: float = 1.0

    def __init__(self, recipe: Settings, classes: int, samples: int) -> None:
        super().__init__(recipe, classes, samples)
        self.factor = recipe.factor


class IdleMethod(Plain):
    def __init__(self, recipe: Plain.Settings, classes: int, samples: int) -> None:
        super().__init__(recipe, classes, samples)
        self.temperature = nn.Parameter(torch.ones(()))


class Long(Plain):
    def forward(self, images: Tensor) -> Any:
        outputs = super().forward(images)
        return replace(outputs, embedding=2 * outputs.embedding)


class CentredMethod(Plain):
    def forward(self, images: Tensor) -> Any:
        outputs = super().forward(images)
        return replace(outputs, embedding=unit(outputs.embedding - outputs.embedding.mean(0)))


class OfOneWorker(Plain):
    """Its term reads what the worker computed from its own images."""

    def forward(self, images: Tensor) -> Any:
        outputs = super().forward(images)
        self.seen = outputs.embedding.square().mean(0)[0]
        return outputs

    def terms(self, *arguments: Any) -> Any:
        return super().terms(*arguments) | {"seen": self.seen}


class Runs:
    """Step t has the images t B, ..., t B + B - 1, modulo N."""

    def __init__(self, labels: np.ndarray, batch: Any, seed: int) -> None:
        self.images, self.size, self.seed = len(labels), batch.size, seed
        self.steps_per_epoch = self.images // self.size

    def draw(self, step: int) -> Draw:
        return drawn((step * self.size + np.arange(self.size)) % self.images, self.seed, step)


class Continues(Runs):
    """Draws what follows the last draw of another step."""

    last, start = -1, 0

    def draw(self, step: int) -> Draw:
        self.start += step != self.last
        self.last = step
        return super().draw(self.start)


class Endless(Runs):
    def __init__(self, labels: np.ndarray, batch: Any, seed: int) -> None:
        super().__init__(labels, batch, seed)
        self.steps_per_epoch = 0


class SameKeys(Runs):
    def draw(self, step: int) -> Draw:
        return super().draw(step)._replace(keys=np.arange(self.size, dtype=np.uint64))


class Noise:
    def __init__(self, levels: int = 4) -> None:
        self.levels = levels

    def generator(self, key: int) -> np.random.Generator:
        return np.random.default_rng(key)

    def __call__(self, image: np.ndarray, key: int) -> np.ndarray:
        noise = self.generator(key).integers(-self.levels, self.levels + 1, image.shape)
        return np.clip(image + noise, 0, 255).astype(np.uint8)


class OneGenerator(Noise):
    def __init__(self) -> None:
        super().__init__()
        self.shared = np.random.default_rng(0)

    def generator(self, key: int) -> np.random.Generator:
        return self.shared


class OneBuffer(Noise):
    """Another thread replaces the key before it is read."""

    key = 0

    def generator(self, key: int) -> np.random.Generator:
        self.key = key
        time.sleep(0.01)
        return super().generator(self.key)


class Grey(Noise):
    def __call__(self, image: np.ndarray, key: int) -> np.ndarray:
        return image.mean(2)


class ReciprocalRank:
    DEFINITION = "1 / rank of the first relevant image, 0 if its rank was not computed"

    def __init__(self, per_query: PerQuery) -> None:
        self.first = per_query.first

    def values(self) -> np.ndarray:
        return np.where(self.first > 0, 1 / np.maximum(self.first, 1), 0.0)


class Relative(ReciprocalRank):
    def values(self) -> np.ndarray:
        return super().values() / super().values().max() - super().values().mean()


class Drawn(ReciprocalRank):
    def values(self) -> np.ndarray:
        return super().values() + np.random.default_rng().normal()


class Counts32(ReciprocalRank):
    def values(self) -> np.ndarray:
        return super().values().astype(np.float32)


DATA = (Runs, Noise, ReciprocalRank)


@pytest.mark.parametrize("part", [Right, Circle, Rounds, Proxies, Mean, Convolutions, Plain, *DATA])
def test_right_parts_pass(part: type) -> None:
    failed = {result.name for result in results(_settings(part)) if result.failure}
    assert failed == ({"The value has single precision under autocast."} if part is Rounds else set())


FAULTS = {
    Continues: ("batches", "draw different batches for the steps"),
    Endless: ("batches", "steps_per_epoch is 0"),
    SameKeys: ("keys", "24 of 36 keys"),
    OneGenerator: ("images", "with one image and one key differ"),
    OneBuffer: ("images", "several threads"),
    Grey: ("images", r"Grey returns an image \(64, 64\) of type float64"),
    Relative: ("each_query", "queries in two files differ"),
    Drawn: ("values", "Two calls differ"),
    Counts32: ("values", "of type float32; expected"),
    StopsGradient: ("gradient", r"gradient is not the derivative.*\n.*gradient = \"surrogate\""),
    Ascends: ("lowers_itself", "The value is .* at the first step and .* at the last"),
    OneForEachImage: ("value", r"The value is tensor\(\[.*\n.*mean or the sum"),
    Infinite: ("value", "The value is inf"),
    ByPosition: ("order", "two orders differ by"),
    ByPositionInMemory: ("order", "two orders of a memory differ by"),
    Random: ("workers", "same arguments differ by"),
    Counts: ("workers", "A call changes calls"),
    Rounds: ("precision", "with and without autocast differ|has the type"),
    DividesByPairs: ("empty_sides", "not finite with no positives"),
    Idle: ("parameters", "No gradient reaches temperature"),
    OneProxy: ("parameters", "No gradient reaches centre"),
    CountsItself: ("memory", "The values differ by"),
    DetachesMemory: ("gradient", "gradient is not the derivative"),
    AnotherWidth: ("shape", r"the shape \(6, 15\); out_channels is 16"),
    ProjectsNot: ("shape", "projects, and its out_channels is 16 for dim = 8"),
    Votes: ("shape", "sums of attributes and 1 differ by 0.5"),
    Centred: ("each_image", "an image in two batches differ by"),
    Half: ("precision_of_vectors", r"have the type torch\.bfloat16"),
    Root: ("zero_map", "gradient is missing or not finite"),
    Scaled: ("parameters_of_pooling", "No gradient reaches factor"),
    OtherChannels: ("maps", r"the shapes \[\(2, 8\), \(2, 16\)\]; the channels are \(8, 32\)"),
    CentredMaps: ("each_image_of_maps", "maps of an image in two batches differ by"),
    Long: ("unit_vectors", "The lengths and 1 differ by 1"),
    CentredMethod: ("unit_vectors", "of an image in two batches differ by|lengths and 1 differ by"),
    OfOneWorker: ("terms", "terms of one and two workers differ by"),
    IdleMethod: ("parameters_of_method", "No gradient reaches temperature"),
}


# parts whose fault is found by further checks
MORE = (OneForEachImage, Infinite, Random, CentredMethod, Endless, Continues, Drawn, Counts32)


def test_every_check_has_a_fault() -> None:
    parts = (Right, Circle, Mean, Votes, Convolutions, Plain, *DATA)
    known = {check.__name__ for part in parts for check in checks_of(_settings(part))}
    assert known == {name for name, _ in FAULTS.values()}


@pytest.mark.parametrize("part", FAULTS)
def test_each_check_finds_its_fault(part: type) -> None:
    name, message = FAULTS[part]
    settings = _settings(part)
    by_name = {
        check.__name__: result for check, result in zip(checks_of(settings), results(settings), strict=True)
    }
    failed = {each for each, result in by_name.items() if result.failure}
    with pytest.raises(UserError, match=message):
        raise by_name[name].failure or AssertionError(f"{name} passed")
    assert failed == {name} or part in MORE, failed


READER = """
import itertools
from pathlib import Path

import numpy as np

from unseen.data import Collection, Picture
from unseen.runtime import Strict

calls = itertools.count()


class Settings(Strict):
    path: str


class Reader:
    def __call__(self, name):
        return np.full((4, 4, 3), len(name), np.uint8)


def collection(settings):
    read = Reader()
    pictures = [Picture(f"{c}/{i}", c, "train" if c < "c" else "test") for c in "abcd" for i in range(3)]
    # FAULT
    return Collection(settings.path, pictures, read)
"""
READERS = {
    "whole": ("", "", ""),
    "lone": ("pictures = pictures[:-5]", "pictures", "test"),
    "changing": ("pictures = pictures[next(calls) % 2:]", "pictures", "Two lists of pictures differ"),
    "repeated": ("pictures += pictures[-1:]", "pictures", "1 sources are not unique"),
    "local": ("read = lambda name: Reader()(name)", "readings", "pickle"),
    "damaged": ("read = str.encode", "readings", "ValueError"),
}


@pytest.mark.parametrize("name", READERS)
def test_the_checks_of_a_reader(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, failing, message = READERS[name]
    (tmp_path / f"reader_{name}.py").write_text(READER.replace("# FAULT", fault))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    settings = settings_of(f"reader_{name}", {"path": "pictures"})
    by_name = dict(zip((check.__name__ for check in checks_of(settings)), results(settings), strict=True))
    assert set(by_name) == {"pictures", "readings"}
    assert {each for each, result in by_name.items() if result.failure} == ({failing} if failing else set())
    if failing:
        assert message in str(by_name[failing].failure)


def _settings(part: type) -> Any:
    return settings_of(f"{__name__}:{part.__name__}", {})


def _command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["check", *arguments])
    return int(ended.value.code or 0)


def test_the_command_prints_a_line_for_each_check(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", f"{__name__}:Right", "scale=2.5"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert lines[0] == "passed  The value of a batch is one finite number."
    assert all(line.startswith("passed  ") for line in lines)


def test_the_command_fails_with_the_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert _command(f"{__name__}.Idle") == 1
    text = capsys.readouterr().out
    fault = (
        "FAILED  Every parameter has a gradient.\n        No gradient reaches temperature.\n        Use it"
    )
    assert fault in text
    assert text.count("FAILED") == 1
    assert _command(f"{__name__}:Raises") == 1
    assert "KeyError: 'no such margin'" in capsys.readouterr().out


def test_a_part_below_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "parts_of_check").mkdir()
    (tmp_path / "parts_of_check/sums.py").write_text(
        "from torch import nn\n\n\nclass Sum(nn.Module):\n"
        "    def __init__(self, factor: float):\n        super().__init__()\n        self.factor = factor\n\n"
        "    def forward(self, embeddings, labels):\n"
        "        same = (labels[:, None] == labels).float()\n"
        "        return self.factor * ((embeddings @ embeddings.T - same) ** 2).sum()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert _command("parts_of_check.sums:Sum", "factor=1.5") == 1  # matmul in bfloat16 under autocast
    text = capsys.readouterr().out
    assert text.count("passed") == 6
    assert "takes no references" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tests.nothing:Loss",), "tests.nothing:Loss cannot be used as a part: ModuleNotFoundError"),
        (("tests.cli.test_checks:Loss",), "cannot be used as a part: AttributeError"),
        (("tests.packages",), "module: cannot be used as a part: packages has no attribute `collection`"),
        ((f"{__name__}:NoModule",), "NoModule is no subclass of torch.nn.Module"),
        ((f"{__name__}:Path",), "Path has no attribute `forward`"),
        ((f"{__name__}:OfOneInput",), "OfOneInput is called as `forward(embeddings, labels)`, it defines"),
        ((f"{__name__}:OfTwoInputs",), "OfTwoInputs is called as `forward(features)`, it defines"),
        ((f"{__name__}:Plain", "factor=wide"), "factor: Input should be a valid number"),
        ((f"{__name__}:Convolutions", "size=3"), "arguments.size: Extra inputs are not permitted"),
        ((f"{__name__}:Right", "scale=wide"), "scale: Input should be a valid number"),
        ((f"{__name__}:Right", "width=2"), "width: Extra inputs are not permitted"),
        ((f"{__name__}:Right", "width"), "'width' is not KEY=VALUE"),
    ],
)
def test_wrong_arguments(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _command(*arguments) in (1, 2)
    assert message in capsys.readouterr().err
