"""How often the host waits for a GPU in a training step, counted on a CPU (tests/device/host_reads.py)."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.device.host_reads import HostReads, pretend_gpu
from tests.params import resolve
from tests.training.workers import run_workers
from unseen.config.document import Params
from unseen.data.loader import TrainBatch
from unseen.methods.build import initial_method
from unseen.methods.settings import Recipe
from unseen.training.optimizer import build_optimizer
from unseen.training.step import Learner, train_step

pytestmark = pytest.mark.slow

PARAMS = Params(Path(__file__).resolve().parents[2] / "params.yaml")
CLASSES, IMAGES, WORLD = 6, 12, 2
LOSSES = ("contrastive", "triplet", "xbm", "proxy_nca", "proxy_anchor", "nsoftmax", "snca", "gsp_xbm")
PUBLISHED = ("ms", "crt", "multihead", "gsp", "irt_l", "irt_r", *LOSSES)
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {  # of a published recipe
    "cosface": ("proxy_nca", {"loss.name": "cosface"}),
    "arcface": ("proxy_nca", {"loss.name": "arcface"}),
    "partial_fc": ("proxy_nca", {"loss.name": "partial_fc"}),
    "hybrid": ("ms", {"loss.name": "hybrid"}),
    "euclidean_contrastive": ("contrastive", {"loss.name": "euclidean_contrastive"}),
    "tuples": ("ms", {"loss.name": "tuple_contrastive", "loss.negatives": 1, "batch.sampling": "tuples"}),
    "momentum": ("xbm", {"memory.momentum": 0.9}),
    "generalized_max": ("ms", {"pooling.name": "generalized_max"}),
}
METHODS = (*PUBLISHED, *VARIANTS)


def small(name: str) -> Recipe:
    method, changes = VARIANTS.get(name, (name, {}))
    overrides: dict[str, Any] = {
        "batch.classes": 4,
        "batch.images_per_class": 3,
        "training.precision": "float32",
        **changes,
    }
    if method.startswith("gsp"):
        overrides |= {"pooling.prototypes": 4, "pooling.initialization_memory": 24, "pooling.warmup": 1}
    if getattr(resolve(PARAMS, "parts", method), "memory", None) is not None:
        overrides |= {"memory.size": 30, "memory.start": 1}
    return resolve(PARAMS, "parts", method, overrides)


def waits(method: str, rank: int = 0, world: int = 1) -> list[str]:
    """The waits of the fifth step on the slice of a worker. The first steps also read counters once."""
    recipe = small(method)
    module = initial_method(recipe, CLASSES, 48, seed=1).train()
    optimizer = build_optimizer(recipe.optimizer, module.parameter_groups(), torch.device("cpu"))
    learner = Learner(module, optimizer, recipe, seed=1, rank=rank)
    generator = torch.Generator().manual_seed(0)
    shape = (IMAGES, 3, recipe.input.size, recipe.input.size)
    labels = torch.arange(IMAGES) // 3
    rows = slice(rank * IMAGES // world, (rank + 1) * IMAGES // world)
    with pytest.MonkeyPatch.context() as patch:
        pretend_gpu(patch)
        # Its counters of steps are on the CPU, also where the parameters are on a GPU.
        patch.setattr(optimizer, "step", lambda: None)
        for step in range(5):
            images = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
            samples = labels * 8 + torch.randint(0, 8, (IMAGES,), generator=generator)
            with HostReads() as reads:
                train_step(learner, TrainBatch(step, images[rows], labels[rows], samples[rows])).result()
    return reads.names


def _work(rank: int, world: int) -> dict[str, list[str]]:
    return {method: waits(method, rank, world) for method in METHODS}


@pytest.fixture(scope="module")
def workers() -> list[dict[str, list[str]]]:
    return run_workers(_work, WORLD)


@pytest.mark.parametrize("method", METHODS)
def test_a_step_waits_for_the_device_once(method: str) -> None:
    assert waits(method) == ["tolist"]


@pytest.mark.parametrize("method", METHODS)
def test_a_step_of_several_workers_waits_for_the_device_once(
    method: str, workers: list[dict[str, list[str]]]
) -> None:
    for worker in workers:
        assert worker[method] == ["tolist"]
