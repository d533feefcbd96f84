"""The price of the trainings of a run before they start: steps, operations, memory and hours of each row.

hours on a GPU       steps x max(flops / peak of its tensor cores, bytes / bandwidth) / 3600: a lower bound
                     (the roofline, Williams et al., CACM 2009)
hours here           steps x seconds of a measured step / 3600
disk                 weights and embeddings of each training, in float32. Of a training of the run: the
                     weights before it, of its last step and selected; the embeddings of the test images
                     with each and by the network alone, and of the train images. Of a fold: these weights,
                     and the embeddings of the test images with those selected. Of a trial: nothing.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from unseen.experiments.plan.facts import Built, Facts, step_parts
from unseen.experiments.plan.files import Plan, count, is_of_fold, trainings
from unseen.experiments.plan.sizes import Size, size_of
from unseen.experiments.plan.trainings import Training
from unseen.methods.settings import Recipe, StepCost
from unseen.runtime.progress import track
from unseen.training.cost import measured_seconds, resident
from unseen.training.precision import with_effective_precision

UNKNOWN = Size(100, 5_000, 4_999, None)  # assumed for a data set whose counts are not published


@dataclass(frozen=True)
class Gpu:
    """Of its data sheet: dense bfloat16 operations and bytes in a second, and bytes of memory."""

    name: str
    flops: float
    bandwidth: float
    memory: float


GPUS = (
    Gpu("L4", 121e12, 300e9, 24e9),
    Gpu("A10", 125e12, 600e9, 24e9),
    Gpu("A100", 312e12, 2.039e12, 80e9),
    Gpu("H100", 989e12, 3.35e12, 80e9),
)


@dataclass(frozen=True)
class Price:
    """Of the trainings of a method on a data set whose steps are alike."""

    dataset: str
    method: str
    trainings: int
    steps: int  # of all of them, at most: trials and trainings with patience may stop earlier
    batch: int
    images: int  # of a pass
    on_gpu: StepCost  # in bfloat16, unless the recipe is in float32
    here: StepCost  # in the precision of this machine
    seconds: float  # of a step on this machine; NaN if it does not fit
    disk: int  # bytes
    assumed: bool = False  # whether the data set is priced as UNKNOWN

    def hours(self, gpu: Gpu) -> float | None:
        """At least, on this GPU; None if a pass does not fit."""
        if self.on_gpu.memory(self.images) > gpu.memory:
            return None
        return self.steps * max(self.on_gpu.flops / gpu.flops, self.on_gpu.moved / gpu.bandwidth) / 3600

    @property
    def hours_here(self) -> float:
        return self.steps * self.seconds / 3600


def prices(run: Plan, facts: Facts, device: torch.device, memory: int) -> Iterator[Price]:
    """The prices of all trainings of a run on `device`, which has this many bytes. A step that needs more is
    not measured.

    Raises UserError for a recipe from which no method can be built.
    """
    sizes = {dataset: size_of(source) for dataset, (source, _) in run.ingest.items()}
    groups: dict[tuple[str, str, str], list[Training]] = {}
    for training in trainings(run):
        if training.recipe.training.iterations:
            key = training.dataset, training.method, step_parts(training.recipe)
            groups.setdefault(key, []).append(training)
    for (dataset, method, _), group in track(groups.items(), "cost", "rows"):
        recipe, size = group[0].recipe, sizes[dataset] or UNKNOWN
        backbone = recipe.backbone.model_copy(update={"pretrained": False, "checkpoint": None})
        untrained = recipe.model_copy(update={"backbone": backbone})  # a price needs no file of weights
        counts = [count(run, training) for training in group]
        local = with_effective_precision(recipe, device)
        images = min(recipe.batch.size, run.machine.images_per_pass or recipe.batch.size)
        on_gpu, here = (
            facts.step(each, size.train_classes, size.train_images) for each in (_on_gpu(recipe), local)
        )
        if device.type == "cpu":
            here = resident(here)
        built = facts.built(untrained, False)
        results = [_result(training, built, size) for training in group]
        yield Price(
            dataset=dataset,
            method=method,
            trainings=sum(counts),
            steps=sum(times * _steps(run, training) for times, training in zip(counts, group, strict=True)),
            batch=recipe.batch.size,
            images=images,
            on_gpu=on_gpu,
            here=here,
            seconds=measured_seconds(local, size.train_classes, size.train_images, here, device)
            if here.memory(images) <= memory
            else math.nan,
            disk=sum(times * result for times, result in zip(counts, results, strict=True)),
            assumed=sizes[dataset] is None,
        )


def _result(training: Training, built: Built, size: Size) -> int:
    """The bytes of the weights and embeddings of one training."""
    if training.is_trial:
        return 0
    test, weights = size.neighbours + 1, 3 + training.recipe.training.watch_test
    images = test if is_of_fold(training) else 4 * test + size.train_images
    return 4 * (weights * built.saved + images * built.dim)


def _steps(run: Plan, training: Training) -> int:
    """Of one training, at most: protocol refit trains twice."""
    settings = training.recipe.training
    trial = run.sweeps[training.method].iterations if training.is_trial else None
    return (trial or settings.iterations) * (2 if settings.protocol == "refit" else 1)


def _on_gpu(recipe: Recipe) -> Recipe:
    """The recipe in bfloat16 in place of `auto`."""
    if recipe.training.precision != "auto":
        return recipe
    training = recipe.training.model_copy(update={"precision": "bfloat16"})
    return recipe.model_copy(update={"training": training})
