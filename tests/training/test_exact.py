"""Two workers equal one process on the same global batches, in float64: every gradient, the loss, and three
steps of training, for each method.

The images are random and the two slices differ: one is dark, one is bright, and a class is in both. A
gradient that stays on one worker or counts twice gives a wrong result."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods.small import METHODS, parts_of
from tests.training.jobs import recipe
from tests.training.workers import run_workers
from unseen.data.loader import TrainBatch
from unseen.losses.settings import AnyPairLoss, AnyProxyLoss
from unseen.methods.build import initial_method
from unseen.methods.settings import Recipe
from unseen.training.optimizer import build_optimizer
from unseen.training.step import Learner, train_step

pytestmark = pytest.mark.slow

WORLD, STEPS, CLASSES = 2, 3, 5
CPU = torch.device("cpu")

_MOMENTUM = {
    "name": "sgd",
    "learning_rate": 0.05,
    "weight_decay": 1e-3,
    "momentum": 0.9,
}  # Adam would amplify rounding where a gradient is zero
_VARIANTS: dict[str, dict[str, Any]] = {
    "multihead": {
        "input": {"size": 64, "resize": 64}
    },  # at 32 pixels the global map is one position, and attention over it has no gradient
    # The initialisation of GSP starts at step 1 and ends within the steps: the second step has 24 pooled
    # features.
    "gsp": {"pooling": {"warmup": 0, "initialization_memory": 24}},
    "gsp, memory": {"pooling": {"warmup": 0, "initialization_memory": 24}, "memory": {"size": 24}},
    "gsp, contrastive": {
        "pooling": {"warmup": 0, "initialization_memory": 24},
        "loss": {"name": "contrastive"},
    },
    "irt": {"memory": {"size": 20, "with_batch": False}},  # overwrites its rows within a batch
    "baseline, average_max, memory": {"pooling": {"name": "average_max"}, "memory": {"size": 20}},
}
_TRANSPORT = {"prototypes": 4, "warmup": 0, "initialization_memory": 24}
_MORE: dict[str, dict[str, Any]] = {  # with batch norm over all workers
    **{
        f"baseline, {name}": {"loss": {"name": name}}
        for name in [*parts_of(AnyPairLoss), *parts_of(AnyProxyLoss), "snca", "hybrid"]
    },
    "baseline, semihard": {"loss": {"name": "triplet", "margin": 0.2, "mining": "semihard"}},
    **{
        f"baseline, {name}, memory": {"loss": {"name": name}, "memory": {"size": 20}}
        for name in ("euclidean_contrastive", "triplet")
    },
    "baseline, momentum encoder": {"loss": {"name": "contrastive"}, "memory": {"size": 20, "momentum": 0.9}},
    "baseline, gsp": {"pooling": {"name": "gsp", **_TRANSPORT}},
    **{f"gsp, {name}": {"pooling": {"name": name, **_TRANSPORT}} for name in ("max_gsp", "gem_gsp")},
    **{
        f"baseline, {name}": {"pooling": {"name": name}}
        for name in ("gem", "gsop", "second_order", "smoothing")
    },
    "gsp, attributes": {"pooling": {"name": "attribute_average", "prototypes": 4}},
    "gsp, momentum encoder": {"pooling": _TRANSPORT, "memory": {"size": 20, "momentum": 0.9}},
    "baseline, new layers first": {
        "optimizer": {"new_layers_only": 2, "clip_norm": None, "clip_value": 0.01}
    },
    "baseline, layer norm": {
        "projection": {"layer_norm": True, "bias": False, "initialization": "orthogonal"}
    },
    "irt, tuples": {
        "batch": {"classes": 3, "images_per_class": 4, "sampling": "tuples"},
        "loss": {"name": "tuple_contrastive", "negatives": 2},
        "memory": None,
    },
    "crt, shared": {"branches": "shared", "networks": "shared", "auxiliary": {"prototypes": 4}},
    **{
        f"multihead, {name}": {"input": {"size": 64, "resize": 64}, "heads": name}
        for name in ("local", "global", "single")
    },
}


def _recipes() -> dict[str, Recipe]:
    recipes = {}
    for name in dict.fromkeys([*METHODS, *_VARIANTS, *_MORE]):
        method = name.split(",")[0]
        for norm in ("batch",) if name in _MORE else ("frozen", "batch"):
            blocks = {**_VARIANTS.get(name, {}), **_MORE.get(name, {})}
            blocks["optimizer"] = {**_MOMENTUM, **blocks.get("optimizer", {})}
            # at stride 32 the map is one position
            pooled = any(part in name for part in ("gsp", "gem", "gsop", "second_order", "smoothing"))
            blocks["backbone"] = {
                "batch_norm": norm,
                **({"arguments": {"output_stride": 8}} if pooled else {}),
            }
            recipes[f"{name}, {norm} norm"] = recipe(method, **blocks)
    return recipes


RECIPES = _recipes()


def _batch(step: int, side: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    images = torch.randint(0, 256, (12, 3, side, side), generator=generator)
    bright = torch.linspace(0.2, 1.0, 12)[:, None, None, None]
    classes = torch.randperm(CLASSES, generator=generator)[:3]
    labels = classes.repeat_interleave(4)  # 3 classes of 4: the middle one is cut in two
    return (
        (images * bright).to(torch.uint8),
        labels,
        12 * labels + 4 * step % 12 + torch.arange(12) % 4,
    )  # 12 training images in each class


def _train(settings: Recipe, rank: int, world: int) -> dict[str, Any]:
    """Three steps on this worker's slices: gradients and numbers of each, and the state at the end."""
    method = initial_method(settings, CLASSES, 60, seed=0).double()
    optimizer = build_optimizer(settings.optimizer, method.parameter_groups(), CPU)
    method.train()
    learner = Learner(method, optimizer, settings, 0, rank)
    rows = slice(rank * 12 // world, (rank + 1) * 12 // world)
    steps = []
    for step in range(STEPS):
        images, labels, samples = _batch(step, settings.input.size)
        slice_ = TrainBatch(step, images[rows], labels[rows], samples[rows])
        step_result = train_step(learner, slice_).result()
        gradients = {
            name: None if p.grad is None else p.grad.clone() for name, p in method.named_parameters()
        }
        steps.append(
            {
                "loss": step_result.loss,
                "terms": step_result.terms,
                "norm": step_result.gradient_norm,
                "gradients": gradients,
            }
        )
    return {"steps": steps, "state": {name: value.clone() for name, value in method.state_dict().items()}}


def _work(rank: int, world: int) -> dict[str, Any]:
    return {name: _train(settings, rank, world) for name, settings in RECIPES.items()}


@pytest.fixture(scope="module")
def workers() -> list[dict[str, Any]]:
    return run_workers(_work, WORLD)


def _assert_equal(actual: Tensor, expected: Tensor, message: str, floor: float) -> None:
    """Relative to the largest element of the tensor. `floor` is the rounding error of an exact zero."""
    if not expected.is_floating_point():
        assert torch.equal(actual, expected), message
        return
    error, size = float((actual - expected).abs().max()), float(expected.abs().max())
    assert error <= 1e-9 * size + floor, (
        f"{message}: differs by {error:.3g}, its largest element is {size:.3g}"
    )


@pytest.mark.parametrize("name", RECIPES)
def test_two_workers_equal_one_process(name: str, workers: list[dict[str, Any]]) -> None:
    single = _train(RECIPES[name], rank=0, world=1)
    for rank, worker in enumerate(result[name] for result in workers):
        for step, (actual, expected) in enumerate(zip(worker["steps"], single["steps"], strict=True)):
            position = f"{name}, rank {rank}, step {step}"
            assert actual["loss"] == pytest.approx(expected["loss"], rel=1e-9), position
            assert actual["terms"] == pytest.approx(expected["terms"], rel=1e-9, abs=1e-12), position
            assert actual["norm"] == pytest.approx(expected["norm"], rel=1e-9), position
            # its memory is empty in the first step
            assert actual["norm"] > 1e-4 or ("snca" in name and step == 0), position
            for parameter, gradient in expected["gradients"].items():
                other_gradient = actual["gradients"][parameter]
                assert (other_gradient is None) == (gradient is None), f"{position}: {parameter}"
                if gradient is not None:
                    _assert_equal(
                        other_gradient,
                        gradient,
                        f"{position}: gradient of {parameter}",
                        floor=1e-12 * expected["norm"],
                    )
        for entry, value in single["state"].items():
            _assert_equal(
                worker["state"][entry],
                value,
                f"{name}, rank {rank}, after {STEPS} steps: {entry}",
                floor=1e-12,
            )


def test_every_parameter_has_a_gradient(workers: list[dict[str, Any]]) -> None:
    """Parameters without gradients would make the comparison void. The gradients of the workers are those of
    one process."""
    for name, settings in RECIPES.items():
        if (
            settings.optimizer.new_layers_only
        ):  # one step is too few for a residual branch that starts at zero
            continue
        steps = workers[0][name]["steps"]
        idle = [
            p
            for p in steps[0]["gradients"]
            if not p.startswith("momentum.")
            and all(s["gradients"][p] is None or not s["gradients"][p].any() for s in steps)
        ]
        assert not idle, f"{name}: no gradient for {idle}"
