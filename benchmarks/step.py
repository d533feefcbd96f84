"""The speed of the training of each method as a share of the speed of its backbone's forward and backward
pass on images in memory.

    python benchmarks/step.py [methods ...] [--compile]

Three parts are measured in each round. The floor: the backbone alone, differentiated from the sum of its last
map, on normalised images in the memory of the device. The step (training/step.py) on such images:
normalisation, forward pass, head, loss, backward pass, clipping, optimizer, update of the state. The
training: the step with the loader that decodes JPEG photographs of 500 x 375, the copy to the device, and a
checkpoint for every 100 steps, measured apart, as if no step overlapped its writing. Networks are those of
the published recipes with random weights. All parts have the settings of torch of a training
(training/reproducible.py).

On a GPU: batch 128, bfloat16, channels last, wall time between synchronisations, all cores for the loader,
required share of the training 0.95. On a CPU: batch 16, float32, one thread, CPU seconds of all threads, no
required share, because the matrix products of some heads take long on a CPU and the loader has no cores of
its own.
"""

import argparse
import contextlib
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import simplejpeg
import torch
from loader import photograph
from timing import Ratio, save
from torch import nn

from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.layers import dotted
from unseen.config.place import Place
from unseen.data.loader import TrainBatch
from unseen.data.shard_writer import ShardWriter
from unseen.methods.settings import Recipe
from unseen.runtime.cores import loader_threads_of
from unseen.training.job import Job
from unseen.training.log import Clock
from unseen.training.precision import autocast, with_effective_precision
from unseen.training.reproducible import reproducible
from unseen.training.resume import save as save_checkpoint
from unseen.training.resume import start_or_resume
from unseen.training.run import TrainingRun, begin
from unseen.training.step import SubmittedStep, train_step
from unseen.training.transfer import moved
from unseen.training.worker import Worker

REQUIRED = 0.95  # of the training, on a GPU
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
CLASSES, IMAGES, PHOTOS = 100, 8, 40  # train classes, images of each, different photographs
ROUNDS = 5
STEPS = {"cuda": 100, "cpu": 3}  # of a training in a round
CHECKPOINT_EVERY = 100  # steps


def main() -> int:
    parser = argparse.ArgumentParser(description="training step against bare backbone")
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--compile", action="store_true", help="compile both with torch.compile")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    params = Params(Path("params.yaml"))
    shares: dict[str, float] = {}
    step_shares: dict[str, float] = {}
    rows: dict[str, Any] = {}
    print(f"{'images per second':42s}{'batch':>6s}{'floor':>9s}{'step':>9s}{'share':>7s}", end="")
    print(f"{'training':>10s}{'share':>7s}{'checkpoint, s':>15s}")
    with reproducible(device, 1), tempfile.TemporaryDirectory() as directory:
        write_photographs(Path(directory, "shards"))
        for name in options.methods:
            recipe = _recipe(params, name, 128 if device.type == "cuda" else 16, options.compile)
            recipe = with_effective_precision(recipe, device)
            run = _run(recipe, name, Path(directory), device)
            with run.background:
                floor, step, training, checkpoint = _measured(run)
            step_shares[name] = statistics.median(a / b for a, b in zip(floor, step, strict=True))
            shares[name] = statistics.median(a / b for a, b in zip(floor, training, strict=True))
            speeds = [recipe.batch.size / statistics.median(times) for times in (floor, step, training)]
            rows[name] = {
                "network": recipe.backbone.name,
                "batch": recipe.batch.size,
                "floor": speeds[0],
                "step": speeds[1],
                "training": speeds[2],
                "checkpoint": checkpoint,
                "share of step": step_shares[name],
                "share of training": shares[name],
            }
            numbers = f"{speeds[0]:9.1f}{speeds[1]:9.1f}{step_shares[name]:7.3f}"
            numbers += f"{speeds[2]:10.1f}{shares[name]:7.3f}{checkpoint:15.2f}"
            print(f"{name:14s}{recipe.backbone.name:28s}{recipe.batch.size:6d}{numbers}", flush=True)
    required = REQUIRED if device.type == "cuda" else None
    save(
        f"step-{device.type}{'-compiled' if options.compile else ''}",
        {"device": device.type, "required": REQUIRED, "methods": rows},
        {f"{name}: training / backbone": Ratio(share, at_least=required) for name, share in shares.items()}
        | {f"{name}: step / backbone": Ratio(share) for name, share in step_shares.items()},
    )
    return int(device.type == "cuda" and min(shares.values()) < REQUIRED)


def write_photographs(directory: Path) -> None:
    """Shards of photographs with random labels."""
    directory.mkdir()
    photos = [simplejpeg.encode_jpeg(photograph(500, 375, seed), quality=90) for seed in range(PHOTOS)]
    with ShardWriter(directory, [f"class {label}" for label in range(CLASSES)], 2**28) as writer:
        for row in range(CLASSES * IMAGES):
            label, photo = row // IMAGES, photos[row % PHOTOS]
            writer.add(photo, label, "train", f"{row}.jpg", width=500, height=375)
        writer.finish({"dataset": "benchmark"})


def _run(recipe: Recipe, name: str, directory: Path, device: torch.device) -> TrainingRun:
    """A training before its first step, on the photographs."""
    job = Job(
        dataset="cub",
        method=name,
        seed=0,
        recipe=recipe,
        root=Path.cwd(),
        shards=directory / "shards",
        state=directory / "state",
        outputs=None,
    )
    threads = loader_threads_of(1) if device.type == "cuda" else 1
    run = start_or_resume(begin(job, Worker(0, 1, device, threads), Clock()))
    run.method.train()
    return run


def _recipe(params: Params, name: str, batch: int, compiled: bool) -> Recipe:
    """The published recipe on CUB with `batch` images: four of a class, or one if the recipe draws single
    images."""
    published = Definitions(params).layers("cub", name).recipe()
    images_per_class = 4 if published.batch.images_per_class > 1 else 1
    overrides = {
        "backbone.pretrained": False,
        "batch.classes": batch // images_per_class,
        "batch.images_per_class": images_per_class,
        "batch.sampling": "classes",
        "optimizer.new_layers_only": 0,
        "training.compile": compiled,
    }
    if getattr(published, "memory", None) is not None:
        overrides["memory.start"] = 0
    return Definitions(params).layers("cub", name).plus(dotted(Place("benchmark"), overrides)).recipe()


def _measured(run: TrainingRun) -> tuple[list[float], list[float], list[float], float]:
    """Seconds of the floor, of a step and of a step of a training, measured alternately, and the median of
    those of a checkpoint."""
    recipe, device = run.recipe, run.worker.device
    size, batch = recipe.input.size, recipe.batch.size
    images = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8, device=device)
    labels = torch.arange(batch, device=device) // recipe.batch.images_per_class
    samples = torch.arange(batch, device=device)
    floor_images = (images.float() / 255).contiguous(memory_format=torch.channels_last)
    counter = itertools.count()
    backbone: nn.Module = run.method.backbone
    if recipe.training.compile:
        _ = run.learner.functions  # discards what was compiled before
        backbone = torch.compile(backbone, dynamic=False)
    parts: dict[str, Callable[[], object]] = {
        "floor": lambda: _backbone_step(backbone, floor_images, recipe, device),
        "step": lambda: train_step(run.learner, TrainBatch(next(counter), images, labels, samples)).result(),
        "training": lambda: _train(run, STEPS[device.type]),
        "checkpoint": lambda: _checkpoint(run),
    }
    times: dict[str, list[float]] = {name: [] for name in parts}
    for round_number in range(ROUNDS + 2):
        for name, part in parts.items():
            seconds = _seconds(part, device)
            if round_number >= 2:
                times[name].append(seconds)
    training = [
        steps / STEPS[device.type] + checkpoint / CHECKPOINT_EVERY
        for steps, checkpoint in zip(times["training"], times["checkpoint"], strict=True)
    ]
    return times["floor"], times["step"], training, statistics.median(times["checkpoint"])


def _train(run: TrainingRun, steps: int) -> None:
    """As many steps of a training: its loader, copies to the device, and numbers that are read a step later
    (training/loop.py)."""
    first = run.record.iteration
    batches = run.loader.iterate(first, first + steps)
    unread: SubmittedStep | None = None
    with contextlib.closing(batches):
        for batch in moved(batches, run.worker.device):
            submitted = train_step(run.learner, batch)
            if unread is not None:
                unread.result()
            unread = submitted
    if unread is not None:
        unread.result()
    run.record.iteration += steps


def _checkpoint(run: TrainingRun) -> None:
    save_checkpoint(run)
    run.background.wait()


def _backbone_step(backbone: nn.Module, images: torch.Tensor, recipe: Recipe, device: torch.device) -> None:
    backbone.zero_grad(set_to_none=True)
    with autocast(recipe, device):
        features = backbone(images)
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
