"""Training steps of all recipes on the pretended GPU, of one worker and of two: no operation mixes devices,
the host waits for nothing and computes nothing with tensors of its own."""

from collections import Counter
from typing import Any, NamedTuple

import pytest
import torch

from tests.device import pretended
from tests.device.pretended import CPU, GPU, Record, recorded
from tests.params import resolve
from unseen.config.document import Params
from unseen.config.recipe_files import published
from unseen.data.loader import TrainBatch
from unseen.methods.build import initial_method
from unseen.methods.settings import Recipe
from unseen.runtime.stage import ROOT
from unseen.training.compiled import step_functions
from unseen.training.optimizer import build_optimizer
from unseen.training.step import Learner, train_step
from unseen.training.transfer import moved

pytestmark = pytest.mark.slow

CLASSES, IMAGES, STEPS, WORLD = 6, 12, 4, 2
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
METHODS = (*published("methods"), *VARIANTS)
# One of each class of method, memory and pooling: a loss sees the batch of all workers and exchanges nothing.
OF_WORKERS = ("ms", "xbm", "crt", "multihead", "gsp", "gsp_xbm", "irt_l", "irt_r", "partial_fc", "momentum")


class Taken(NamedTuple):
    """The last step of a training: what it did on the device, what reading its numbers did, and the loss of
    the first step."""

    step: Record
    reading: Record
    first_loss: float


def small(name: str) -> Recipe:
    params = Params(ROOT / "params.yaml")
    method, changes = VARIANTS.get(name, (name, {}))
    overrides: dict[str, Any] = {
        "batch.classes": 4,
        "batch.images_per_class": 3,
        "training.precision": "float32",
        **changes,
    }
    published_recipe = resolve(params, "parts", method)
    if getattr(getattr(published_recipe, "pooling", None), "name", None) == "gsp":
        overrides |= {"pooling.prototypes": 4, "pooling.initialization_memory": 24, "pooling.warmup": 1}
    if getattr(published_recipe, "memory", None) is not None:
        overrides |= {"memory.size": 30, "memory.start": 1}
    return resolve(params, "parts", method, overrides)


def taken(name: str, device: torch.device, steps: int, rank: int = 0, world: int = 1) -> Taken:
    """The first steps read counters once, select prototypes and fill memories."""
    recipe = small(name)
    method = initial_method(recipe, CLASSES, 48, seed=1).to(device).train()
    optimizer = build_optimizer(recipe.optimizer, method.parameter_groups(), device)
    learner = Learner(method, optimizer, recipe, seed=1, rank=rank)
    generator = torch.Generator().manual_seed(0)
    shape = (IMAGES, 3, recipe.input.size, recipe.input.size)
    labels = torch.arange(IMAGES) // 3
    rows = slice(rank * IMAGES // world, (rank + 1) * IMAGES // world)
    batches = []
    for step in range(steps):
        images = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        samples = labels * 8 + torch.randint(0, 8, (IMAGES,), generator=generator)
        batches.append(TrainBatch(step, images[rows], labels[rows], samples[rows]))
    losses = []
    there = moved(iter(batches), device)
    for _ in range(steps):
        with recorded() as of_step:
            submitted = train_step(learner, next(there))
        with recorded() as of_reading:
            losses.append(submitted.result().loss)
    return Taken(of_step, of_reading, losses[0])


def _of_one(names: list[str]) -> dict[str, tuple[Taken, Taken]]:
    return {name: (taken(name, GPU, STEPS), taken(name, CPU, 1)) for name in names}


def _of_two(rank: int, names: list[str]) -> dict[str, Taken]:
    return {name: taken(name, GPU, STEPS, rank, WORLD) for name in names}


@pytest.fixture(scope="module")
def of_one_worker() -> dict[str, tuple[Taken, Taken]]:
    results: dict[str, tuple[Taken, Taken]] = pretended.run(_of_one, list(METHODS))
    return results


@pytest.fixture(scope="module")
def of_two_workers() -> list[dict[str, Taken]]:
    return pretended.run_two(_of_two, list(OF_WORKERS))


def assert_the_host_does_not_wait(taken: Taken) -> None:
    assert taken.step.refused == []
    assert taken.step.waits == []
    assert taken.step.on_host == Counter()
    assert len(taken.step.pinned_to_device) == 3  # images, labels and samples
    assert taken.step.pageable_to_device == []
    assert len(taken.step.to_host) == 1  # the numbers of the step
    assert taken.step.awaited == 0
    assert (taken.reading.waits, taken.reading.awaited) == ([], 1)
    assert sum(taken.step.launches.values()) > 200


@pytest.mark.parametrize("name", METHODS)
def test_the_host_does_not_wait_in_a_step(name: str, of_one_worker: dict[str, tuple[Taken, Taken]]) -> None:
    on_gpu, on_cpu = of_one_worker[name]
    assert_the_host_does_not_wait(on_gpu)
    assert on_gpu.first_loss == pytest.approx(on_cpu.first_loss, rel=1e-5)


def _compiled() -> None:
    for device, compile, iterations, expected in (
        (GPU, "auto", 1000, True),
        (GPU, "auto", 999, False),
        (CPU, "auto", 1000, False),
        (GPU, False, 1000, False),
        (CPU, True, 10, True),
    ):
        changes = {"training.compile": compile, "training.iterations": iterations}
        recipe = resolve(Params(ROOT / "params.yaml"), "parts", "ms", changes)
        method = initial_method(recipe, CLASSES, 48, seed=1).to(device)
        functions = step_functions(method, recipe.training)
        assert (functions.forward is not method) is expected


def test_auto_compiles_long_trainings_on_a_gpu() -> None:
    pretended.run(_compiled)


@pytest.mark.parametrize("name", OF_WORKERS)
def test_the_host_of_two_workers_does_not_wait_in_a_step(
    name: str, of_two_workers: list[dict[str, Taken]]
) -> None:
    for worker in of_two_workers:
        assert_the_host_does_not_wait(worker[name])
