"""Trainings on a GPU: no step of a default recipe waits for the GPU, and a resumed training continues the
interrupted one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.params import resolve
from tests.training.jobs import job, killed_at, log_of, recipe
from unseen.config.document import Params
from unseen.data.loader import TrainBatch
from unseen.methods.build import initial_method
from unseen.training import loop
from unseen.training.job import Job
from unseen.training.optimizer import build_optimizer
from unseen.training.reproducible import reproducible
from unseen.training.step import Learner, SubmittedStep, train_step
from unseen.training.transfer import moved

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.usefixtures("every_checkpoint"),
]

ROOT = Path(__file__).resolve().parents[2]
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
LOSSES = ("contrastive", "triplet", "proxy_anchor", "proxy_nca", "nsoftmax", "xbm", "snca")
METHODS = ("ms", *LOSSES, "crt", "multihead", "gsp", "gsp_xbm", "irt_l", "irt_r")
CLASSES, IMAGES, STEPS = 6, 12, 6


@contextmanager
def waits_are_errors() -> Iterator[None]:
    """torch raises RuntimeError where the host would wait for the GPU."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_wait_is_an_error() -> None:
    value = torch.ones((), device=GPU)
    with waits_are_errors(), pytest.raises(RuntimeError, match="synchroniz"):
        value.item()


@pytest.mark.parametrize("name", METHODS)
def test_no_step_waits_for_the_gpu(name: str) -> None:
    """The last two of the steps, when prototypes and memories are initialised, with their copies."""
    params = Params(ROOT / "params.yaml")
    overrides: dict[str, Any] = {"batch.classes": 4, "batch.images_per_class": 3}
    if name.startswith("gsp"):
        overrides |= {"pooling.prototypes": 4, "pooling.initialization_memory": 24, "pooling.warmup": 1}
    if getattr(resolve(params, "parts", name), "memory", None) is not None:
        overrides |= {"memory.size": 30, "memory.start": 1}
    settings = resolve(params, "parts", name, overrides)
    settings = settings.model_copy(
        update={"training": settings.training.model_copy(update={"precision": "bfloat16"})}
    )
    method = initial_method(settings, CLASSES, 48, seed=1).to(GPU).train()
    learner = Learner(
        method, build_optimizer(settings.optimizer, method.parameter_groups(), GPU), settings, 1
    )
    generator = torch.Generator().manual_seed(0)
    shape = (IMAGES, 3, settings.input.size, settings.input.size)
    labels = torch.arange(IMAGES) // 3
    batches = (
        TrainBatch(
            step,
            torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8),
            labels,
            labels * 8 + torch.randint(0, 8, (IMAGES,), generator=generator),
        )
        for step in range(STEPS)
    )
    on_gpu = moved(batches, GPU)
    submitted: list[SubmittedStep] = []
    with reproducible(GPU, 1):
        for _ in range(STEPS - 2):
            submitted.append(train_step(learner, next(on_gpu)))
        torch.cuda.synchronize()
        with waits_are_errors():
            for _ in range(2):
                submitted.append(train_step(learner, next(on_gpu)))
    steps = [step.result() for step in submitted]
    assert len(steps) == STEPS  # `result` raises NotFinite for numbers that are not finite


def _last(training_job: Job) -> dict[str, torch.Tensor]:
    assert training_job.outputs is not None
    return load_file(training_job.outputs.model / "last.safetensors")


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_a_resumed_training_continues_the_interrupted_one(name: str, fresh_root: Callable[[], Path]) -> None:
    """Closely: a GPU does not repeat bits. The state of a fused optimizer is restored with its counters."""
    optimizer = {"name": name, "learning_rate": 1e-3, "weight_decay": 1e-2}
    settings = recipe("baseline", optimizer=optimizer)
    on_cpu, straight, broken = (job(fresh_root(), settings) for _ in range(3))
    expected = loop.train(on_cpu, 0, 1, CPU)
    row = loop.train(straight, 0, 1, GPU)
    assert row["loss"] == pytest.approx(expected["loss"], rel=2e-2)

    with killed_at(7):
        loop.train(broken, 0, 1, GPU)
    resumed = loop.train(broken, 0, 1, GPU)
    assert log_of(broken)["resumed_at"] == [6]
    assert resumed["loss"] == pytest.approx(row["loss"], rel=1e-2)
    last, resumed_last = _last(straight), _last(broken)
    differences = torch.cat(
        [(value.double() - resumed_last[key].double()).abs().flatten() for key, value in last.items()]
    )
    # A gradient close to zero can change its sign, and Adam then moves a weight by twice the learning rate.
    assert differences.max() < 2e-2
    assert differences.mean() < 1e-4
