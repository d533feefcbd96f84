"""Training on cached maps equals training of the whole method with a frozen network."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unseen.data.loader import TrainBatch
from unseen.frozen.head import head as layers_of_head
from unseen.frozen.head_training import MapBatch, embedded, on_cached_maps, train
from unseen.frozen.maps import Maps
from unseen.frozen.store import MAPS, ArrayStore
from unseen.frozen.trunk import CachedBackbone, Layout, packed
from unseen.methods.build import initial_method
from unseen.methods.settings import Recipe
from unseen.runtime.errors import UserError
from unseen.training.optimizer import build_optimizer
from unseen.training.step import Learner, to_pixels, train_step

RESNET = {"backbone.name": "test_resnet", "backbone.pretrained": False}
VIT = {"backbone.name": "test_vit", "backbone.pretrained": False, "backbone.arguments": {"img_size": 64}}
SMALL = {
    "input": {"size": 64, "resize": 64},
    "batch": {"classes": 4, "images_per_class": 2},
    "optimizer.new_layers_only": 10,  # the whole method also leaves its network unchanged
}
BRANCHES = {
    f"{branch}.{field}": 4 for branch in ("embedding", "auxiliary") for field in ("prototypes", "hidden")
}
MEMORY = {"pooling.prototypes": 4, "pooling.initialization_memory": 8}
HEADS: list[tuple[str, dict[str, Any]]] = [
    ("ms", RESNET | {"dim": 8, "pooling.name": "average"}),
    ("ms", RESNET | {"dim": 8, "pooling.name": "max"}),
    ("gsp", RESNET | MEMORY | {"dim": 8}),
    ("gsp_proxy_anchor", RESNET | MEMORY | {"dim": 8}),
    ("crt", RESNET | BRANCHES | {"embedding.dim": 8, "auxiliary.dim": 16}),
    ("multihead", RESNET | {"dim": 8, "backbone.stages": [-2, -1]}),
    ("multihead", RESNET | {"dim": 8, "backbone.stages": [-2, -1], "heads": "local"}),
    ("irt_r", VIT | {"dim": 8, "memory": None}),
]


def recipe_of(method: str, changes: dict[str, Any]) -> Recipe:
    return layers_of_head(method, changes=SMALL | changes).recipe()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "changes"), HEADS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_gradients_equal_those_of_the_method_with_a_frozen_network(
    method: str, changes: dict[str, Any]
) -> None:
    recipe = recipe_of(method, changes)
    whole = initial_method(recipe, 4, 8, 0)
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, 8, 3, 64, 64), np.uint8))
    whole.eval()
    with torch.no_grad():
        features = [whole.backbone(to_pixels(each, whole, recipe)) for each in images]
    layout = Layout.of(whole.backbone.stages, features[0])
    cached = on_cached_maps(recipe, layout, 4, 8, 0)
    labels, samples = torch.arange(8) // 2, torch.arange(8)
    learners = []
    for each in (whole, cached):
        each.train()
        optimizer = build_optimizer(recipe.optimizer, each.parameter_groups(), torch.device("cpu"))
        learners.append(Learner(each, optimizer, recipe, 0))
    for step in range(2):  # GSP selects its prototypes after the first
        of_whole = train_step(learners[0], TrainBatch(step, images[step], labels, samples)).result()
        of_cached = train_step(learners[1], MapBatch(step, packed(features[step]), labels, samples)).result()
        assert of_cached.loss == pytest.approx(of_whole.loss, rel=1e-4)
        expected = dict(whole.named_parameters())
        heads = dict(cached.named_parameters())
        assert heads.keys() == {name for name in expected if not name.startswith("backbone.")}
        largest = max(float(expected[name].grad.abs().max()) for name in heads)
        assert largest > 0
        for name, parameter in heads.items():
            assert (parameter.grad - expected[name].grad).abs().max() <= 1e-4 * largest, name


def cached_maps(count: int = 24, seed: int = 0) -> tuple[Maps, np.ndarray]:
    """Maps of 4 classes that differ in their mean, of channels (8, 256) as those of test_resnet."""
    random = np.random.default_rng(seed)
    whole = initial_method(recipe_of("ms", RESNET | {"dim": 8}), 4, 8, 0)
    channels = whole.backbone.channels[-1]
    layout = Layout(whole.backbone.stages, ((channels, 2, 2),), None)
    labels = np.arange(count) % 4
    centres = random.normal(size=(4, channels, 1))
    values = centres[labels] + random.normal(size=(count, channels, 4))
    block = values.reshape(count, -1).astype(np.float16)
    store, digests = ArrayStore(Path(), layout.width, MAPS), [str(row) for row in range(count)]
    store.add(digests[:10], lambda rows: block[:10][rows])
    store.add(digests[10:], lambda rows: block[10:][rows])
    return Maps(layout, store, digests), labels


@pytest.mark.slow
def test_training_separates_classes_and_is_reproducible() -> None:
    maps, labels = cached_maps()
    recipe = recipe_of("ms", RESNET | {"dim": 8, "pooling.name": "average"})
    rows = np.arange(24)
    results = []
    for _ in range(2):
        heads = [
            (head.steps, len(head.numbers), embedded(head.method, maps, rows))
            for head in train(recipe, maps, rows, labels, (1, 30))
        ]
        assert [(steps, numbers) for steps, numbers, _ in heads] == [(1, 1), (30, 30)]
        results.append(heads[-1][2])
        same = labels[:, None] == labels
        contrasts = [
            (cosine[same].mean() - cosine[~same].mean()) for _, _, z in heads for cosine in [z @ z.T]
        ]
        assert contrasts[1] > contrasts[0] + 0.05
    assert np.array_equal(results[0], results[1])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ms", "gsp"])
def test_principal_start_keeps_the_cosines_of_the_averages(method: str) -> None:
    maps, labels = cached_maps(40)
    width = maps.layout.maps[0][0]
    pooling = {"pooling.name": "average"} if method == "ms" else {"pooling.transport_ratio": 1.0}
    recipe = recipe_of(method, RESNET | pooling | {"dim": width, "optimizer.learning_rate": 1e-12})
    rows = np.arange(40)
    averages = maps.rows(rows).numpy().reshape(40, width, 4).mean(2)
    averages /= np.linalg.norm(averages, axis=1, keepdims=True)
    (head,) = train(recipe, maps, rows, labels, (1,), principal=True)
    vectors = embedded(head.method, maps, rows)
    assert abs(vectors @ vectors.T - averages @ averages.T).max() < 1e-4
    (head,) = train(recipe, maps, rows, labels, (1,))
    vectors = embedded(head.method, maps, rows)
    assert abs(vectors @ vectors.T - averages @ averages.T).max() > 1e-2


@pytest.mark.slow
def test_a_narrow_projection_starts_at_the_leading_directions() -> None:
    maps, labels = cached_maps(40)
    changes = RESNET | {"pooling.name": "average", "dim": 3, "optimizer.learning_rate": 1e-12}
    rows = np.arange(40)
    (head,) = train(recipe_of("ms", changes), maps, rows, labels, (1,), principal=True)
    averages = maps.rows(rows).numpy().reshape(40, -1, 4).mean(2)
    leading = averages @ np.linalg.svd(averages, full_matrices=False)[2][:3].T
    leading /= np.linalg.norm(leading, axis=1, keepdims=True)
    vectors = embedded(head.method, maps, rows)
    assert abs(vectors @ vectors.T - leading @ leading.T).max() < 1e-3


def test_refuses_an_own_start_of_the_training() -> None:
    recipe = recipe_of("ms", RESNET | {"dim": 8, "training.start": "principal"})
    with pytest.raises(
        UserError, match=r"start of a head on cached maps is random\.\n.*Remove training.start"
    ):
        on_cached_maps(recipe, Layout((3,), ((8, 2, 2),), None), 4, 8, 0)


@pytest.mark.slow
def test_refuses_maps_of_another_network_and_a_momentum_encoder() -> None:
    backbone = CachedBackbone(Layout((3,), ((8, 2, 2),), None), (3,))
    with pytest.raises(ValueError, match="32 values, got 31"):
        backbone(torch.zeros(1, 31))
    with pytest.raises(ValueError, match="the stages"):
        CachedBackbone(Layout((3,), ((8, 2, 2),), None), (2,))
    maps, labels = cached_maps()
    recipe = recipe_of("xbm", RESNET | {"dim": 8, "memory.size": 8, "memory.momentum": 0.9})
    with pytest.raises(UserError, match="momentum encoder"):
        next(train(recipe, maps, np.arange(24), labels, (1,)))
