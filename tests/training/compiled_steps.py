"""Compares compiled with eager training steps and prints the results of all groups as JSON; see
test_compiled.py.

It is a program because checks of shapes, which the test suite adds to every function, cannot be captured.
Captured graphs run by torch's backends that need no compiler: `eager`, and where state changes between
forward and backward pass `aot_eager`, which is slower and transforms a graph as the default backend does
before it generates code.
"""

import contextlib
import copy
import io
import json
import pickle
import tempfile
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._dynamo.utils import counters

from tests.methods.small import CLASSES, SAMPLES, batch, parts_of, places, recipe
from tests.training import jobs
from tests.training.workers import run_workers
from unseen.data.loader import TrainBatch
from unseen.losses.settings import AnyPairLoss, AnyProxyLoss, HybridLoss
from unseen.methods import by_name
from unseen.methods.build import initial_method
from unseen.methods.embedding import EmbeddingOutputs
from unseen.methods.settings import Recipe
from unseen.poolings.settings import AnyAttributePooling, AnyMapPooling
from unseen.training import compiled, loop
from unseen.training.optimizer import build_optimizer
from unseen.training.step import Learner, train_step

STEPS = 4
FROZEN = {"batch_norm": "frozen"}
CONTRASTIVE: dict[str, Any] = {"name": "contrastive"}
METHODS: dict[str, tuple[str, dict[str, Any], int | None]] = {  # method, blocks, images per pass
    "baseline": ("baseline", {}, None),
    "crt": ("crt", {}, None),
    "multihead": ("multihead", {}, None),
    "gsp": ("gsp", {}, None),
    "irt": ("irt", {"koleo_weight": 0.3, "training": {"gradient_noise": "contrastive"}}, None),
    "memory": ("baseline", {"loss": CONTRASTIVE, "memory": {"size": 30, "start": 1}}, None),
    "momentum": ("baseline", {"loss": CONTRASTIVE, "memory": {"size": 12, "momentum": 0.9}}, None),
    "snca": ("baseline", {"loss": {"name": "snca"}}, None),
    "passes": ("gsp", {"backbone": FROZEN}, 5),
}
SMALL: dict[str, dict[str, Any]] = {  # settings of poolings
    "gsop": {"attention_dim": 4},
    "netvlad": {"centers": 4},
    "optimal_transport": {"prototypes": 4},
}
CHANGES_STATE = {"gsp"}  # of METHODS
WORKERS = ("baseline", "irt")  # of METHODS, on two workers


def with_compile(settings: Recipe, flag: bool) -> Recipe:
    return settings.model_copy(update={"training": settings.training.model_copy(update={"compile": flag})})


def captured(backend: str) -> Any:
    """In this context, compiled functions run as their captured graphs."""
    compile_ = torch.compile

    def with_backend(function: Any, *, options: Any, **settings: Any) -> Any:
        return compile_(function, backend=backend, **settings)

    return mock.patch.object(torch, "compile", with_backend)


def steps_of(name: str, flag: bool, rank: int = 0, world: int = 1) -> tuple[list[float], list[Tensor], Any]:
    """Losses, the gradients of every step, and the method after the steps."""
    method, blocks, images_per_pass = METHODS[name]
    settings = with_compile(recipe(method, **blocks), flag)
    module = initial_method(settings, CLASSES, SAMPLES, seed=0).double().train()
    optimizer = build_optimizer(settings.optimizer, module.parameter_groups(), torch.device("cpu"))
    learner = Learner(module, optimizer, settings, 0, rank, images_per_pass)
    losses, gradients = [], []
    for step in range(STEPS):
        images, labels = batch(step)
        rows = slice(rank * len(images) // world, (rank + 1) * len(images) // world)
        pixels = (128 + 40 * images).clamp(0, 255).to(torch.uint8)[rows]
        losses.append(
            train_step(learner, TrainBatch(step, pixels, labels[rows], places(labels)[rows])).result().loss
        )
        gradients.append(flat([p.grad for p in module.parameters()]))
    return losses, gradients, module


def flat(tensors: Any) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors if tensor is not None])


def compared(name: str, rank: int = 0, world: int = 1) -> dict[str, Any]:
    expected, expected_gradients, eager = steps_of(name, False, rank, world)
    counters.clear()
    with captured("aot_eager" if name in CHANGES_STATE else "eager"):
        losses, gradients, module = steps_of(name, True, rank, world)
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
        "loss": max(abs(a - b) / abs(a) if a else abs(b) for a, b in zip(expected, losses, strict=True)),
        "gradient": max(map(difference, expected_gradients, gradients)),
        "same names": list(eager.state_dict()) == list(module.state_dict()),
        "copies": list(copy.deepcopy(module).state_dict())
        == list(pickle.loads(pickle.dumps(module)).state_dict()),
    }


def difference(expected: Tensor, value: Tensor) -> float:
    """The length of the difference relative to the length of the expected vector."""
    norm = torch.linalg.vector_norm
    return (
        float(norm(value - expected) / norm(expected).clamp(min=1e-300))
        if expected.shape == value.shape
        else 1.0
    )


def methods() -> dict[str, Any]:
    return {name: compared(name) for name in METHODS}


def _worker(rank: int, world: int) -> dict[str, Any]:
    return {name: compared(name, rank, world) for name in WORKERS}


def workers() -> list[dict[str, Any]]:
    return run_workers(_worker, 2)


def losses() -> dict[str, Any]:
    """The terms of every loss on drawn unit vectors."""
    parts = parts_of(AnyPairLoss) | parts_of(AnyProxyLoss) | {"hybrid": HybridLoss}
    cases: dict[str, Any] = {name: {"loss": {"name": name}} for name in parts}
    cases["arcface fraction"] = {"loss": {"name": "partial_fc", "function": "arcface", "share": 0.5}}
    cases["semihard"] = {"loss": {"name": "triplet", "mining": "semihard", "margin": 0.3}}
    tuples = {"classes": 4, "images_per_class": 3, "sampling": "tuples"}
    cases["tuple_contrastive"] = {"loss": {"name": "tuple_contrastive", "negatives": 1}, "batch": tuples}
    return {name: loss_compared(blocks) for name, blocks in cases.items()}


def loss_compared(blocks: dict[str, Any]) -> dict[str, Any]:
    settings = recipe("baseline", **blocks)
    _, labels = batch()
    results = []
    counters.clear()
    with captured("eager"):
        for flag in (False, True):
            method = initial_method(settings, CLASSES, SAMPLES, seed=0).double().train()
            functions = compiled.step_functions(method, with_compile(settings, flag).training)
            drawn = torch.randn(
                12, method.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
            )
            rows = torch.nn.functional.normalize(drawn).requires_grad_()
            outputs = EmbeddingOutputs(rows, None, None)
            torch.manual_seed(0)
            loss = torch.stack(list(functions.objective(outputs, labels, places(labels)).values())).sum()
            loss.backward()
            results.append((loss.item(), flat([rows.grad, *(p.grad for p in method.proxies())])))
    (expected, gradient), (value, compiled_gradient) = results
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
        "loss": abs(value - expected) / abs(expected),
        "gradient": difference(gradient, compiled_gradient),
    }


def poolings() -> dict[str, Any]:
    """The vectors of every pooling on drawn maps."""
    return {name: pooling_compared(name) for name in parts_of(AnyMapPooling) | parts_of(AnyAttributePooling)}


def pooling_compared(name: str) -> dict[str, Any]:
    torch.manual_seed(0)
    pooling = by_name.pooling(name, channels=6, dim=8, positions=16, **SMALL.get(name, {})).double().train()
    for buffer_name, buffer in pooling.named_buffers():
        if buffer_name.endswith("initialized"):
            buffer.fill_(True)
    maps = torch.randn(4, 6, 4, 4, dtype=torch.float64, requires_grad=True)
    results = []
    counters.clear()
    for forward in (pooling.forward, torch.compile(pooling.forward, backend="eager", dynamic=False)):
        pooled = forward(maps)
        value = flat(pooled if isinstance(pooled, tuple) else [pooled])
        gradients = torch.autograd.grad(
            value.square().sum(), [maps, *pooling.parameters()], allow_unused=True
        )
        results.append((value.detach(), flat(gradients)))
    (expected, gradient), (value, compiled_gradient) = results
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
        "loss": difference(expected, value),
        "gradient": difference(gradient, compiled_gradient),
    }


def training() -> dict[str, Any]:
    """Whether a compiled training that was killed after its first validation and resumed gives the bytes of
    an uninterrupted one."""
    settings = jobs.recipe("gsp", training={"iterations": 8, "validate_every": 4, "compile": True})
    outputs = []
    for is_killed in (False, True):
        with tempfile.TemporaryDirectory() as directory, captured("eager"):
            jobs.write_tiny_set(Path(directory))
            job = jobs.job(Path(directory), settings)
            train = partial(loop.train, job, 0, 1, torch.device("cpu"))
            if is_killed:
                with contextlib.suppress(jobs.Killed):
                    train(kill)
            train()
            outputs.append(
                {name: sha256(value).hexdigest() for name, value in jobs.output_bytes(job).items()}
            )
    return {"uninterrupted": outputs[0], "resumed": outputs[1]}


def kill(row: dict[str, Any]) -> None:
    raise jobs.Killed


if __name__ == "__main__":
    torch.set_num_threads(1)
    results = {}
    for group in (methods, workers, losses, poolings, training):
        torch._dynamo.reset()
        results[group.__name__] = group()
    print(json.dumps(results))
