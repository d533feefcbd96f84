"""How often the host waits for a GPU in a training step, counted on a CPU (tests/device/host_reads.py)."""

from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.config import Params, resolve
from pipeline.data.loader import TrainBatch
from pipeline.methods.build import initial_method
from pipeline.training.optimizer import build_optimizer
from pipeline.training.step import Learner, train_step
from tests.device.host_reads import HostReads, pretend_gpu

PARAMS = Params(Path(__file__).resolve().parents[2] / "params.yaml")
CLASSES, IMAGES = 6, 12
LOSSES = ("contrastive", "triplet", "xbm", "proxy_nca", "proxy_anchor", "nsoftmax", "snca", "gsp_xbm")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ms", "crt", "multihead", "gsp", "irt_l", "irt_r", *LOSSES])
def test_a_step_waits_for_the_device_once(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpu(monkeypatch)
    overrides: dict[str, Any] = {
        "batch.classes": 4,
        "batch.images_per_class": 3,
        "training.precision": "float32",
    }
    if method.startswith("gsp"):
        overrides |= {"pooling.prototypes": 4, "pooling.initialization_memory": 24, "pooling.warmup": 1}
    if getattr(resolve(PARAMS, "parts", method), "memory", None) is not None:
        overrides |= {"memory.size": 30, "memory.start": 1}
    recipe = resolve(PARAMS, "parts", method, overrides)
    module = initial_method(recipe, CLASSES, 48, seed=1).train()
    optimizer = build_optimizer(recipe.optimizer, module.parameter_groups(), torch.device("cpu"))
    # Its counters of steps are on the CPU, also where the parameters are on a GPU.
    monkeypatch.setattr(optimizer, "step", lambda: None)
    learner = Learner(module, optimizer, recipe, seed=1)
    generator = torch.Generator().manual_seed(0)
    shape = (IMAGES, 3, recipe.input.size, recipe.input.size)
    labels = torch.arange(IMAGES) // 3
    for step in range(5):
        images = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        samples = labels * 8 + torch.randint(0, 8, (IMAGES,), generator=generator)
        with HostReads() as reads:
            train_step(learner, TrainBatch(step, images, labels, samples))
    assert reads.names == ["tolist"]
