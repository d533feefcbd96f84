"""The training step of each method against the bare forward and backward pass of its backbone: images per
second, as a share.

    python benchmarks/step.py [methods ...] [--compile]

The step is the whole of `training/step.py`: normalisation, forward pass, head, loss, backward pass, clipping,
optimizer, and what follows it. The floor is the backbone alone, its last map summed and differentiated. Data
are resident, networks are the published ones with random weights. On a GPU: batch 128, bfloat16, channels
last, wall time between synchronisations, required share 0.95. On a CPU: batch 16, float32, one thread, CPU
seconds; nothing is required there, where the products of a head cost what they cost.
"""

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from timing import save

from pipeline.config import Params, Recipe, resolve
from pipeline.data.loader import TrainBatch
from pipeline.methods.build import initial_method
from pipeline.methods.method import Method
from pipeline.training.optimizer import build_optimizer
from pipeline.training.step import Learner, mixed_precision, train_step

REQUIRED = 0.95  # on a GPU
METHODS = (
    "ms",
    "contrastive",
    "triplet",
    "proxy_anchor",
    "proxy_nca",
    "nsoftmax",
    "xbm",
    "snca",
    "crt",
    "multihead",
    "gsp",
    "irt_l",
    "irt_r",
)
CLASSES, SAMPLES, ROUNDS = 100, 5864, 5  # CUB


def main() -> int:
    parser = argparse.ArgumentParser(description="training step against bare backbone")
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--compile", action="store_true", help="both through torch.compile")
    chosen = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)
    params = Params(Path("params.yaml"))
    shares: dict[str, float] = {}
    rows: dict[str, Any] = {}
    print(f"{'method':14s}{'network':28s}{'batch':>6s}{'floor img/s':>13s}{'step img/s':>12s}{'share':>8s}")
    for name in chosen.methods:
        recipe = _recipe(params, name, 128 if device.type == "cuda" else 16)
        floor, step = _measured(recipe, device, chosen.compile)
        shares[name] = statistics.median(a / b for a, b in zip(floor, step, strict=True))
        speeds = [recipe.batch.size / statistics.median(times) for times in (floor, step)]
        rows[name] = {
            "network": recipe.backbone.name,
            "batch": recipe.batch.size,
            "floor": speeds[0],
            "step": speeds[1],
            "share": shares[name],
        }
        print(
            f"{name:14s}{recipe.backbone.name:28s}{recipe.batch.size:6d}{speeds[0]:13.1f}{speeds[1]:12.1f}{shares[name]:8.3f}",
            flush=True,
        )
    save(
        f"step-{device.type}{'-compiled' if chosen.compile else ''}",
        {"device": device.type, "required": REQUIRED, "methods": rows},
    )
    return int(device.type == "cuda" and min(shares.values()) < REQUIRED)


def _recipe(params: Params, name: str, batch: int) -> Recipe:
    """The published recipe on CUB, with as many images as `batch`: in fours of a class, or single ones where
    the recipe draws single ones."""
    apiece = 4 if resolve(params, "cub", name).batch.images_per_class > 1 else 1
    overrides = {
        "backbone.pretrained": False,
        "batch.classes": batch // apiece,
        "batch.images_per_class": apiece,
        "batch.sampling": "classes",
    }
    overrides |= {"optimizer.new_layers_only": 0}
    if getattr(resolve(params, "cub", name), "memory", None) is not None:
        overrides["memory.start"] = 0
    return resolve(params, "cub", name, overrides)


def _measured(recipe: Recipe, device: torch.device, compiled: bool) -> tuple[list[float], list[float]]:
    """Seconds of the floor and of the step, in alternating turns."""
    method = initial_method(recipe, CLASSES, SAMPLES, seed=0).to(device).train()
    if compiled:
        method.backbone.compile()
    size, batch = recipe.input.size, recipe.batch.size
    images = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8, device=device)
    labels = torch.arange(batch, device=device) // recipe.batch.images_per_class
    samples = torch.arange(batch, device=device)
    learner = Learner(
        method, build_optimizer(recipe.optimizer, method.parameter_groups(), device), recipe, seed=0
    )
    counter = itertools.count()

    def step() -> None:
        train_step(learner, TrainBatch(next(counter), images, labels, samples))

    floor_images = (images.float() / 255).contiguous(memory_format=torch.channels_last)

    def floor() -> None:
        _bare(method, floor_images, recipe, device)

    first, second = [], []
    for turn in range(ROUNDS + 2):
        for run, times in ((floor, first), (step, second)):
            took = _seconds(run, device)
            if turn >= 2:
                times.append(took)
    return first, second


def _bare(method: Method, images: torch.Tensor, recipe: Recipe, device: torch.device) -> None:
    method.zero_grad(set_to_none=True)
    with mixed_precision(recipe.training.precision, device):
        features = method.backbone(images)
    (features.maps[-1] if features.cls is None else features.cls).float().sum().backward()


def _seconds(run: Callable[[], None], device: torch.device) -> float:
    if device.type == "cpu":
        begin = time.process_time()
        run()
        return time.process_time() - begin
    torch.cuda.synchronize()
    begin = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


if __name__ == "__main__":
    sys.exit(main())
