"""Parts from outside the project: their settings, errors and code, and whose import is refused."""

import dataclasses
import json
import pickle
import sys
from pathlib import Path
from textwrap import indent
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from unseen.cli.main import main
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.inputs import IngestInputs
from unseen.config.resolve import dataset_settings
from unseen.config.resolve import settings as block
from unseen.data.embeddings import write as write_embeddings
from unseen.data.ingest.ingest import ingest
from unseen.data.loader import TrainLoader
from unseen.data.sampler import make_sampler
from unseen.data.shards import Shards
from unseen.evaluation.headline import headline
from unseen.evaluation.protocol import Protocol
from unseen.evaluation.run import Evaluation, evaluate_run
from unseen.evaluation.settings import EvaluateBlock, EvaluateSettings
from unseen.experiments.plan.facts import Facts, _located
from unseen.experiments.plan.files import plan
from unseen.experiments.plan.modules import modules_of, position_modules_of
from unseen.frozen.head import head
from unseen.methods import modules
from unseen.methods.compatibility import require_compatible
from unseen.methods.settings import BaselineRecipe, Recipe, parse_recipe
from unseen.runtime.code import code_of
from unseen.runtime.errors import UserError
from unseen.runtime.parts import trusted
from unseen.runtime.stage import PACKAGE

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
CLASS = "outside.circle:Circle"
HEAD = "methods:\n  mine:\n    like: ms\n    loss:\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with package `outside`."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/circle.py").write_text(LOSS, encoding="utf-8")
    (tmp_path / "outside/network.py").write_text(NETWORK, encoding="utf-8")
    (tmp_path / "outside/method.py").write_text(METHOD, encoding="utf-8")
    (tmp_path / "outside/images.py").write_text(IMAGES, encoding="utf-8")
    (tmp_path / "outside/reader.py").write_text(READER, encoding="utf-8")
    (tmp_path / "outside/wrong.py").write_text(WRONG, encoding="utf-8")
    (tmp_path / "outside/metric.py").write_text(METRIC, encoding="utf-8")
    for name in ("section", "bare"):
        (tmp_path / f"outside/{name}.py").write_text(SECTION, encoding="utf-8")
    (tmp_path / "outside/section.html").write_text(
        "<p>{{ count }} of {{ dataset.name }}</p>\n", encoding="utf-8"
    )
    (tmp_path / "outside/helper.py").write_text("def scaled(x, by):\n    return x * by\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unseen.runtime.parts._classes", {})
    return tmp_path


def resolved(*lines: str) -> Recipe:
    text = HEAD + "".join(f"      {line}\n" for line in lines)
    return Definitions(Params(text=text)).layers("cub", "mine").recipe()


def test_the_settings_are_the_arguments_of_the_class() -> None:
    recipe = resolved("module: outside.circle.Circle", "gamma: 80")
    assert recipe.loss.model_dump() == {"module": CLASS, "gamma": 80.0, "orders": (1, 2)}
    values: dict[str, Any] = recipe.model_dump(mode="json")
    assert parse_recipe(values) == pickle.loads(pickle.dumps(recipe)) == recipe
    loss = modules.loss(recipe.loss, classes=3, dim=8, samples=9)
    assert (loss.dim, loss.orders, float(loss(torch.ones(2, 8), None))) == (8, (1, 2), 1280.0)


def test_a_class_may_state_its_settings() -> None:
    text = "methods: {mine: {like: ms, pooling: {module: 'outside.circle:Power', exponent: 3}}}"
    settings = Definitions(Params(text=text)).layers("cub", "mine").recipe().pooling
    built = modules.pooling(settings, 4, 8, int)
    assert (settings.projects, built.channels, built.exponent) == (True, 4, 3.0)


def test_a_method_has_the_fields_of_the_baseline_and_its_own() -> None:
    mine = "method: outside.method.Compact, weight: 2, backbone: {name: test_resnet, pretrained: false}"
    definitions = Definitions(Params(text=f"methods: {{mine: {{{mine}}}, more: {{like: mine, weight: 3}}}}"))
    layers = definitions.layers("parts", "more")
    recipe = layers.recipe()
    assert (recipe.dim, recipe.weight, recipe.batch.size) == (
        8,
        3.0,
        definitions.layers("parts", "ms").recipe().batch.size,
    )
    assert layers.origin("weight") == "params.yaml:1, methods.more"
    assert parse_recipe(recipe.model_dump(mode="json")) == pickle.loads(pickle.dumps(recipe)) == recipe
    method = require_compatible(recipe)
    assert (type(method).__name__, method.dim, method.weight) == ("Compact", 8, 3.0)
    assert "outside.method" in modules_of(recipe)
    assert position_modules_of(recipe) == ["outside.shares"]
    on_features = head("outside.method:Compact", None, {"weight": 1.0, "backbone.name": "test_vit"}).recipe()
    assert (on_features.method, on_features.optimizer.learning_rate) == (recipe.method, 1e-3)


class Picture(Shards):
    """One picture of 8 x 8 pixels, for all rows."""

    def __init__(self) -> None:
        pass

    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)

    def image(self, row: int) -> np.ndarray:
        return cv2.imencode(".png", self.pixels)[1]


def test_a_sampler_and_a_transform() -> None:
    batch = "batch: {module: outside.images.Pairs, shift: 2, classes: 2, images_per_class: 2}"
    images = "input: {module: outside.images.Noise, levels: 9, size: 8, crop_scale: [1, 1], flip: 0.0"
    images += ", crop_ratio: [1, 1], resize: null}"
    low = f"low: {{like: ms, batch: {{sampling: shuffled}}, {images}}}"
    definitions = Definitions(Params(text=f"methods: {{{low}, mine: {{like: low, {batch}}}}}"))
    recipe = definitions.layers("parts", "mine").recipe()
    assert parse_recipe(recipe.model_dump(mode="json")) == pickle.loads(pickle.dumps(recipe)) == recipe
    assert "outside.images" in modules_of(recipe)
    labels = np.arange(9)
    sampler = make_sampler(labels, recipe.batch, 0)
    (first, second), (other, _) = (
        list(TrainLoader(Picture(), labels, labels, sampler, recipe.input, threads=n).iterate(0, 2))
        for n in (1, 2)
    )
    assert first.samples.tolist() == second.samples.tolist() == [2, 3, 4, 5]
    assert torch.equal(first.images, other.images)
    assert not torch.equal(first.images, second.images)
    noise = first.images.permute(0, 2, 3, 1).numpy() - Picture.pixels[..., ::-1] // 2
    assert (noise.min(), noise.max()) == (0, 8)


def test_what_a_sampler_and_a_transform_return_is_checked() -> None:
    def images(**fields: Any) -> Recipe:
        with trusted():
            return parse_recipe({"method": "baseline", **fields})

    batch = {"classes": 2, "images_per_class": 2}
    labels = np.arange(9)
    for module, message in (("Pairs", r"outside of 0 to 8"), ("Changing", r"two batches for step 0")):
        shift = {"shift": 7}
        recipe = images(batch=batch | shift | {"module": f"outside.images:{module}"})
        with pytest.raises(UserError, match=message):
            make_sampler(labels, recipe.batch, 0)
    recipe = images(batch=batch, input={"module": "outside.images:Grey", "levels": 2, "size": 8})
    classes = labels // 2
    sampler = make_sampler(classes, recipe.batch, 0)
    loader = TrainLoader(Picture(), labels, classes, sampler, recipe.input)
    with pytest.raises(
        UserError, match=r"Grey returns an image \(8, 8\) of type float64; expected \(8, 8, 3"
    ):
        next(iter(loader.iterate(0, 1)))


def test_a_reader(project: Path) -> None:
    params = Params(text="datasets: {own: {source: {module: outside.reader, classes: 6}}}\ningest: {}")
    source, settings = dataset_settings(Definitions(params), "own")
    assert source.model_dump() == {"module": "outside.reader", "path": "data/raw/own", "classes": 6}
    assert Definitions(params).dataset("own").kind == "cub"
    inputs = IngestInputs(source=source, ingest=settings)
    assert IngestInputs.parse(inputs.model_dump(mode="json")) == pickle.loads(pickle.dumps(inputs)) == inputs
    ingest(source, settings, project / "shards", "own", 1)
    shards = Shards(project / "shards")
    assert (len(shards.rows("train")), len(shards.rows("test"))) == (6, 6)


def evaluated(module: str, tmp_path: Path) -> Evaluation:
    """Four vectors of two classes on a circle in each of four orthogonal planes, with a metric of a user."""
    angles = np.radians([0, 10, 32, 60])
    embedding = np.kron(np.eye(4), np.stack([np.cos(angles), np.sin(angles)], 1)).astype(np.float32)
    rows = np.arange(16)
    for name in ("", "-last", "-untrained", "-features"):
        write_embeddings(tmp_path / f"test{name}.arrow", rows, rows // 4 * 2 + rows % 2, embedding)
    params = Params(text=f"evaluate: {{metrics: {{mrr: {{module: '{module}'}}}}, nmi: false}}")
    settings = block(params, "evaluate", EvaluateBlock)
    return evaluate_run(tmp_path, EvaluateSettings(**dict(settings) | {"recall_at": (1,)}))


def test_a_metric(tmp_path: Path) -> None:
    """The first relevant rows of the queries have the ranks 2, 3, 3 and 2."""
    evaluation = evaluated("outside.metric:Reciprocal", tmp_path)
    assert evaluation.metrics["mrr"] == evaluation.metrics["last_mrr"] == round(5 / 12, 10)
    assert evaluation.metrics["mrr_low"] == evaluation.metrics["mrr_high"] == evaluation.metrics["mrr"]
    assert evaluation.queries["selected"]["mrr"].to_pylist() == [1 / 2, 1 / 3, 1 / 3, 1 / 2] * 4
    assert "mrr_low" in headline(evaluation.metrics, ["mrr"])
    assert isinstance(evaluation.protocol, Protocol)
    declared: dict[str, Any] = evaluation.protocol.declaration()
    assert declared["metrics"]["mrr"]["definition"].startswith("1 over the rank")
    assert declared["metrics"]["mrr"]["power"] == 1
    plain = dataclasses.replace(evaluation.protocol, metrics={})
    assert "metrics" not in plain.declaration()
    assert plain.hash() != evaluation.protocol.hash()
    with pytest.raises(UserError, match=r"evaluate.metrics.mrr: .*Single returns an array \(\) of"):
        evaluated("outside.metric:Single", tmp_path)


def test_a_network_drops_the_fields_of_the_network_below() -> None:
    below = "like: ms, backbone: {name: resnet18, checkpoint: a.pth, stages: [-2, -1]}"
    above = "like: low, backbone: {module: outside.network.Conv2, arguments: {kernel: 5}, pretrained: false}"
    again = "like: high, backbone: {module: 'outside.network:Conv2', batch_norm: batch}"
    text = f"methods: {{low: {{{below}}}, high: {{{above}}}, top: {{{again}}}}}"
    recipe = Definitions(Params(text=text)).layers("cub", "top").recipe()
    assert parse_recipe(recipe.model_dump(mode="json")) == pickle.loads(pickle.dumps(recipe)) == recipe
    assert recipe.backbone.checkpoint is None
    built = require_compatible(recipe).backbone
    assert (built.channels, built.mean, built.network.second.kernel_size) == ((4, 8), (0.5,) * 3, (5, 5))
    assert "outside.network" in modules_of(recipe)
    assert "unseen.networks.staged" in code_of(PACKAGE, Path()).closure(["outside.network"])


ABOVE = {
    **dict.fromkeys(
        ("loss", "pooling", "backbone", "batch", "input"), "methods:\n  mine:\n    like: ms\n    {}:\n"
    ),
    "method": "methods:\n  mine:\n",
    "source": "datasets:\n  own:\n    source:\n",
    "metrics": "evaluate:\n  metrics:\n",
    "sections": "report:\n  sections:\n",
}
RUN = "run: {datasets: [own], methods: [mine], seeds: [0]}\n"
OTHERS = {
    "methods": "methods: {mine: {like: ms}}\n",
    "datasets": "datasets: {own: {source: {kind: parts}}}\n",
    **{
        name: f"{name}: {{}}\n"
        for name in ("train", "ensemble", "export", "evaluate", "analyze", "report", "ingest")
    },
}


@pytest.mark.parametrize(
    ("key", "lines", "message"),
    [
        ("loss", "gamma: 1\nmodule: outsid.circle:Circle", r":6: methods.mine.loss.module: .*No module"),
        ("loss", "module: outside.circle:Circl", r":5: .*no attribute 'Circl'"),
        ("loss", "module: outside.helper:scaled", r":5: .*scaled is not a class"),
        ("loss", f"module: {CLASS}", r":4: methods.mine.loss.gamma is missing"),
        ("loss", f"module: {CLASS}\ngamma: 1\ngama: 2", r":7: .*loss.gama is not .*\n.*mean gamma"),
        ("loss", f"module: {CLASS}\ngamma: '1'", r":6: methods.mine.loss.gamma: .*valid number"),
        (
            "loss",
            f"name: hybrid\nproxy: {{module: '{CLASS}', gamma: 1}}",
            r":6: .*'pairs'; .*be proxies",
        ),
        ("loss", "module: outside.wrong:Abstract", r":5: .*loss.module: .*Abstract does not define `cost`"),
        (
            "loss",
            "module: outside.wrong:Cost",
            r":5: .*called as `cost\(pairs\)`, it defines `cost\(self, a, b\)`",
        ),
        ("loss", "module: outside.wrong:NoForward", r":5: .*NoForward has no attribute `forward`"),
        ("loss", "module: outside.wrong:NoModule", r":5: .*NoModule is no subclass of torch.nn.Module"),
        ("loss", "module: outside.wrong:OneSided", r":5: .*called as `forward\(embeddings, labels\)`, it"),
        ("loss", "module: outside.wrong:OfTwoSides", r":5: .*as `forward\(query, positive, negatives\)`, it"),
        ("pooling", "module: outside.wrong:NoModule", r":5: .*NoModule is no subclass of torch.nn.Module"),
        ("backbone", "module: outside.wrong:NoBlocks", r":5: .*no attribute 'NoBlocks'"),
        (
            "batch",
            "module: outside.wrong:NoStep",
            r":5: .*called as `draw\(step\)`, it defines `draw\(self\)`",
        ),
        ("input", "module: outside.wrong:NoKey", r":5: .*called as `__call__\(image, key\)`, it defines"),
        ("method", "method: outside.wrong:Terms", r":3: .*`terms\(outputs, labels, samples, observed\)`, it"),
        (
            "method",
            "method: outside.wrong:NoMethod",
            r":3: .*NoMethod is no subclass of unseen.methods.method",
        ),
        ("metrics", "mrr:\n  module: outside.wrong:Values", r":4: .*called as `values\(\)`, it defines"),
        (
            "pooling",
            "module: outside.circle:Power\nexponnt: 2",
            r":6: .*exponnt is not .*\n.*mean exponent.*: exponent, module",
        ),
        ("backbone", "module: outside.circle:Circle", r":5: .*backbone.module: .*no attribute `plan`"),
        ("backbone", "module: outside.network:Conv2\narguments: {kernal: 3}", r":6: .*kernal is not a"),
        ("backbone", "module: outside.network:Conv2\narguments: {kernel: a}", r":6: .*integer, got 'a'"),
        ("batch", "module: outside.images:Noise", r":5: .*batch.module: .*has no attribute `draw`"),
        ("batch", "module: outside.images:Pairs\nclasses: 4\nshft: 1", r":7: .*batch.shft is not a"),
        ("batch", "module: outside.images:Pairs\nsampling: tuples", r":6: .*sampling: .*'classes'"),
        ("input", "module: outside.image:Noise", r":5: .*input.module: .*No module"),
        ("input", "module: outside.images:Noise", r":4: methods.mine.input.levels is missing"),
        ("input", "module: outside.images:Noise\nlevels: a", r":6: .*input.levels: .*integer"),
        ("method", "method: outside.method:Compac", r":3: methods.mine.method: .*no attribute 'Compac'"),
        ("method", "method: outside.circle:Circle", r":3: .*method: .*Circle has no attribute `Settings`"),
        ("method", "method: compact", r"must be one of baseline, .*, or a class"),
        ("method", "method: outside.method:Compact", r":2: methods.mine.weight is missing"),
        ("method", "method: outside.method:Compact\nweight: 1\nwight: 1", r":5: .*wight is not a setting"),
        ("method", "method: outside.method:Compact\nweight: a", r":4: methods.mine.weight: .*valid number"),
        (
            "source",
            "module: outside.redaer",
            r":4: datasets.own.source.module: .*No module named 'outside",
        ),
        ("source", "module: outside.helper", r":4: .*helper has no attribute `collection`"),
        ("source", "module: outside.reader\nclases: 6", r":5: .*source.clases is not .*\n.*mean classes"),
        ("source", "module: outside.reader\nclasses: a", r":5: .*source.classes: .*valid integer"),
        ("source", "module: outside.reader\nkind: folder", r":5: .*source.kind is not a setting"),
        ("metrics", "mrr:\n  module: outside.metrics:Mean", r":4: evaluate.metrics.mrr.module: .*No module"),
        ("metrics", "mrr:\n  module: outside.circle:Circle", r":4: .*mrr.module: .*no attribute `values`"),
        ("metrics", "mrr:\n  module: outside.metric:mean", r":4: .*mrr.module: .*mean is not a class"),
        ("metrics", "mrr:\n  module: outside.metric:Reciprocal\n  pwer: 2", r":5: .*mrr.pwer is not a"),
        ("metrics", "mrr:\n  module: outside.metric:Reciprocal\n  power: a", r":5: .*mrr.power: .*integer"),
        ("metrics", "map:\n  module: outside.metric:Reciprocal", r":2: .*map is a name of the project"),
        ("metrics", "mrr: {power: 2}", r":3: evaluate.metrics.mrr.module is missing"),
        ("sections", "own: {module: outside.sectoin}", r":3: report.sections.own.module: .*No module"),
        ("sections", "own: {module: outside.reader}", r":3: .*own.module: .*no attribute `content`"),
        ("sections", "own: {module: outside.bare}", r":3: .*own.module: .*template bare.html is not beside"),
        ("sections", "own: {module: outside.section, cuont: 2}", r":3: .*own.cuont is not a setting"),
        ("sections", "own: {module: outside.section, count: a}", r":3: .*own.count: .*valid integer"),
    ],
)
def test_a_mistake_is_an_error_with_line_and_key(key: str, lines: str, message: str) -> None:
    above = ABOVE[key].format(key)
    others = [text for block, text in OTHERS.items() if not above.startswith(f"{block}:")]
    width = len(above.splitlines()[-1]) - len(above.splitlines()[-1].lstrip()) + 2
    text = f"{above}{indent(lines, ' ' * width)}\n{RUN}{''.join(others)}"
    with pytest.raises(UserError, match=message):
        plan(Params(text=text))


@pytest.mark.parametrize(
    ("block", "what", "field"),
    [
        ("pooling: {module: 'outside.wrong:NoChannels'}", "no attribute 'out_channels'", "pooling.module"),
        ("backbone: {module: 'outside.wrong:NoBlock'}", "no attribute `first`", "backbone.module"),
        ("method: outside.wrong:Init", "positional argument", "method"),
    ],
)
def test_a_part_that_cannot_be_built_is_an_error_that_names_its_field(
    block: str, what: str, field: str
) -> None:
    like = "" if block.startswith("method") else "like: ms, "
    network = "" if block.startswith("backbone") else ", backbone: {name: resnet18, pretrained: false}"
    definitions = Definitions(Params(text=f"methods: {{mine: {{{like}{block}{network}}}}}"))
    recipe = definitions.layers("cub", "mine").recipe()
    for fact in (lambda: Facts().built(recipe, False), lambda: Facts().cost(recipe)):
        with pytest.raises(UserError, match=f"cannot be built or called: .*{what}") as caught:
            fact()
        assert f"Correct {field}; docs/extending.md has its contract" in caught.value.remedy
    published = definitions.layers("cub", "ms").recipe()
    with pytest.raises(ZeroDivisionError), _located(published):
        raise ZeroDivisionError


@pytest.mark.parametrize("name", ["OfSamples", "OfTuples"])
def test_a_loss_gets_what_its_inputs_are(name: str) -> None:
    batch = ", batch: {sampling: tuples}" if name == "OfTuples" else ""
    text = f"methods: {{mine: {{like: ms, loss: {{module: 'outside.wrong:{name}'}}{batch}}}}}"
    recipe = Definitions(Params(text=text)).layers("cub", "mine").recipe()
    assert isinstance(recipe, BaselineRecipe)
    assert recipe.loss.inputs == name.removeprefix("Of").lower()


def test_a_sampler_that_fails_is_an_error_that_names_it() -> None:
    for name, what in (("NoSteps", "no attribute 'steps_per_epoch'"), ("Changing", "two batches for step 0")):
        module = "images" if name == "Changing" else "wrong"
        text = f"methods: {{mine: {{like: ms, batch: {{module: 'outside.{module}:{name}'}}}}}}"
        batch = Definitions(Params(text=text)).layers("cub", "mine").recipe().batch
        with pytest.raises(UserError, match=f"The sampler outside.{module}:{name} .*{what}") as caught:
            make_sampler(np.repeat(np.arange(8), 10), batch, 0)
        assert "batch.module" in caught.value.remedy


def test_a_recipe_from_elsewhere_imports_only_what_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"method": "baseline", "loss": {"module": CLASS, "gamma": 1}}
    with pytest.raises(UserError, match="imports os:system, code from outside"):
        parse_recipe({"method": "os:system"})
    params = project / "params.yaml"
    for text in ("", f"# module: {CLASS}\n", f"module: {CLASS}2\n"):
        params.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match="that this project does not name"):
            parse_recipe(values)
    params.write_text(f'{HEAD}      "module": "{CLASS}"\n', encoding="utf-8")
    named = parse_recipe(values)
    params.unlink()
    monkeypatch.setattr("unseen.runtime.parts._classes", {})
    with trusted("outsid", "other.circle"), pytest.raises(UserError, match="`unseen --trust outside "):
        parse_recipe(values)
    for packages in ((), ("outside",), ("other", "outside.circle")):
        monkeypatch.setattr("unseen.runtime.parts._classes", {})
        with trusted(*packages):
            assert parse_recipe(values).model_dump() == named.model_dump()


def test_a_part_beside_params_yaml_needs_no_path(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages that are installed come first."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(project)])
    monkeypatch.setattr("unseen.runtime.parts.ROOT", project)
    (project / "outside").rename(project / "beside")
    assert resolved("module: beside.circle:Circle", "gamma: 7").loss.gamma == 7
    assert sys.path[-1] == str(project)


def test_a_command_trusts_a_package(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = {"schema_version": 1, "classes": 2, "samples": 4, "seed": 0, "dataset": "parts"}
    recipe = {"method": "baseline", "loss": {"module": CLASS, "gamma": 1}}
    (project / "model").mkdir()
    (project / "model/recipe.json").write_text(json.dumps(model | {"recipe": recipe}), encoding="utf-8")
    messages = []
    for options in ([], ["--trust", "outside"]):
        with pytest.raises(SystemExit):
            main([*options, "export-model", "model", "exported"])
        messages.append(capsys.readouterr().err)
    assert "imports outside.circle:Circle, code from outside" in messages[0]
    assert "weights.safetensors is missing" in messages[1]


def test_an_edit_of_an_imported_module_changes_the_code_of_its_method_alone(project: Path) -> None:
    (project / "unseen/stages").mkdir(parents=True)
    (project / "unseen/stages/train.py").write_text("import outside.helper\n", encoding="utf-8")
    mine = {name for name in modules_of(resolved(f"module: {CLASS}", "gamma: 1")) if "outside" in name}

    def codes() -> list[dict[str, str]]:
        code = code_of(project / "unseen", project)
        return [code.closure(["unseen.stages.train"]), code.closure(["unseen.stages.train", *mine, "torch"])]

    other, before = codes()
    (project / "outside/helper.py").write_text("def scaled(x, by):\n    return by * x\n", encoding="utf-8")
    unchanged, after = codes()
    assert unchanged == other
    assert set(before) - set(other) == {"outside.circle", "outside.helper", "torch"}
    assert {name for name in before if before[name] != after[name]} == {"outside.helper"}


def test_a_template_changes_the_code_of_its_section_alone(project: Path) -> None:
    (project / "outside/__init__.py").touch()
    code = code_of(PACKAGE, project)
    assert "outside/section.html" in code.closure(["outside.section"])
    assert "outside/section.html" not in code.closure(["outside.helper"])
