"""Parts from outside the project: their settings, and what they compute in place of those of the project."""

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from tests.runtime.outside import CLASS, outside_project, resolved
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
from unseen.experiments.plan.modules import modules_of, position_modules_of
from unseen.frozen.head import head
from unseen.methods import modules
from unseen.methods.compatibility import require_compatible
from unseen.methods.settings import Recipe, parse_recipe
from unseen.runtime.code import code_of
from unseen.runtime.errors import UserError
from unseen.runtime.parts import trusted
from unseen.runtime.stage import PACKAGE


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return outside_project(tmp_path, monkeypatch)


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
    few = r"Few draws positions \(3,\) of type int64 .*; expected 4 integers and 4 numbers of type uint64"
    for module, message in (
        ("Pairs", r"outside of 0 to 8"),
        ("Changing", r"two batches for step 0"),
        ("Few", few),
    ):
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
    assert Definitions(params).dataset("own").kind == source.kind == "cub"
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
