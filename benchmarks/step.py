"""The speed of the training step of each method as a share of the speed of its backbone's forward and
backward pass.

    python benchmarks/step.py [methods ...] [--compile]

The step is that of `training/step.py`: normalisation, forward pass, head, loss, backward pass, clipping,
optimizer, update of the state. The reference is the backbone alone, differentiated from the sum of its last
map. Data are in memory; networks are those of the published recipes with random weights. On a GPU: batch 128,
bfloat16, channels last, wall time between synchronisations, required share 0.95. On a CPU: batch 16, float32,
one thread, CPU seconds, no required share, because the matrix products of some heads take long on a CPU.
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
from timing import Ratio, save

from pipeline.config import Params, Recipe, resolve
from pipeline.data.loader import TrainBatch
from pipeline.methods.build import initial_method
from pipeline.methods.method import Method
from pipeline.training.optimizer import build_optimizer
from pipeline.training.precision import autocast, with_effective_precision
from pipeline.training.step import Learner, train_step

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
    parser.add_argument("--compile", action="store_true", help="compile both with torch.compile")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)
    params = Params(Path("params.yaml"))
    shares: dict[str, float] = {}
    rows: dict[str, Any] = {}
    print(f"{'method':14s}{'network':28s}{'batch':>6s}{'floor img/s':>13s}{'step img/s':>12s}{'share':>8s}")
    for name in options.methods:
        recipe = with_effective_precision(_recipe(params, name, 128 if device.type == "cuda" else 16), device)
        floor, step = _measured(recipe, device, options.compile)
        shares[name] = statistics.median(a / b for a, b in zip(floor, step, strict=True))
        speeds = [recipe.batch.size / statistics.median(times) for times in (floor, step)]
        rows[name] = {
            "network": recipe.backbone.name,
            "batch": recipe.batch.size,
            "floor": speeds[0],
            "step": speeds[1],
            "share": shares[name],
        }
        numbers = f"{speeds[0]:13.1f}{speeds[1]:12.1f}{shares[name]:8.3f}"
        print(f"{name:14s}{recipe.backbone.name:28s}{recipe.batch.size:6d}{numbers}", flush=True)
    save(
        f"step-{device.type}{'-compiled' if options.compile else ''}",
        {"device": device.type, "required": REQUIRED, "methods": rows},
        {
            name: Ratio(share, at_least=REQUIRED if device.type == "cuda" else None)
            for name, share in shares.items()
        },
    )
    return int(device.type == "cuda" and min(shares.values()) < REQUIRED)


def _recipe(params: Params, name: str, batch: int) -> Recipe:
    """The published recipe on CUB with `batch` images: four of a class, or one if the recipe draws single
    images."""
    published = resolve(params, "cub", name)
    images_per_class = 4 if published.batch.images_per_class > 1 else 1
    overrides = {
        "backbone.pretrained": False,
        "batch.classes": batch // images_per_class,
        "batch.images_per_class": images_per_class,
        "batch.sampling": "classes",
        "optimizer.new_layers_only": 0,
    }
    if getattr(published, "memory", None) is not None:
        overrides["memory.start"] = 0
    return resolve(params, "cub", name, overrides)


def _measured(recipe: Recipe, device: torch.device, compiled: bool) -> tuple[list[float], list[float]]:
    """Seconds of the reference and of the step, measured alternately."""
    method = initial_method(recipe, CLASSES, SAMPLES, seed=0).to(device).train()
    if compiled:
        method.backbone.compile()
    size, batch = recipe.input.size, recipe.batch.size
    images = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8, device=device)
    labels = torch.arange(batch, device=device) // recipe.batch.images_per_class
    samples = torch.arange(batch, device=device)
    optimizer = build_optimizer(recipe.optimizer, method.parameter_groups(), device)
    learner = Learner(method, optimizer, recipe, seed=0)
    counter = itertools.count()

    def step() -> None:
        train_step(learner, TrainBatch(next(counter), images, labels, samples))

    floor_images = (images.float() / 255).contiguous(memory_format=torch.channels_last)

    def floor() -> None:
        _backbone_step(method, floor_images, recipe, device)

    floor_times, step_times = [], []
    for round_number in range(ROUNDS + 2):
        for run, times in ((floor, floor_times), (step, step_times)):
            seconds = _seconds(run, device)
            if round_number >= 2:
                times.append(seconds)
    return floor_times, step_times


def _backbone_step(method: Method, images: torch.Tensor, recipe: Recipe, device: torch.device) -> None:
    method.zero_grad(set_to_none=True)
    with autocast(recipe, device):
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
