"""Options `--cost` of `unseen run` and `unseen study`: the price of the trainings, before one starts."""

from collections.abc import Sequence

from unseen.config.document import Params
from unseen.experiments.plan.facts import FOLDER, Facts
from unseen.experiments.plan.files import plan
from unseen.experiments.plan.price import GPUS, UNKNOWN, Price, prices
from unseen.report.words import counted, listed
from unseen.runtime.errors import UserError
from unseen.runtime.memory import memory_of_host
from unseen.runtime.text import aligned

_GB = 1e9
_OF_STEP = ("batch", "TFLOP", "GB moved", "GB memory", "MB an image")
_HOURS = (*(f"{gpu.name} h" for gpu in GPUS), "here s", "here h")
_HEADS = ("data set", "method", "trainings", "steps", *_OF_STEP, *_HOURS)


def cost(params: Params) -> str:
    """The price of all trainings of a run, also of those that are trained already.

    Raises UserError for an invalid run, and for a training that this machine has too little memory for: its
    message contains the table.
    """
    import torch

    from unseen.training.export.model import device

    here = device()
    on_gpu = here.type == "cuda"
    memory = torch.cuda.get_device_properties(here).total_memory if on_gpu else memory_of_host()
    priced = list(prices(plan(params), Facts(FOLDER), here, memory))
    text = table(priced)
    for price in priced:
        needed = price.here.memory(price.images)
        if needed > memory:
            fitting = price.here.images(float(memory))
            raise UserError(
                f"{text}\n{price.method} on {price.dataset} needs {needed / _GB:.1f} GB for {price.images} "
                f"images, this machine has {memory / _GB:.1f} GB.",
                f"Set train.images_per_pass to {fitting}, or train on another machine.",
            )
    return text


def table(priced: Sequence[Price]) -> str:
    """The prices as text, and their sums."""
    trained, steps = sum(price.trainings for price in priced), sum(price.steps for price in priced)
    hours = {gpu.name: [price.hours(gpu) for price in priced] for gpu in GPUS}
    sums = [
        f"{name} {sum(filter(None, each)):,.1f} h{' (rows that fit)' if None in each else ''}"
        for name, each in hours.items()
    ]
    lines = [
        *aligned([_HEADS, *map(_row, priced)], right=range(2, len(_HEADS))),
        "",
        f"{counted(trained, 'training')} with {steps:,} steps at most; disk "
        f"{sum(price.disk for price in priced) / _GB:,.2f} GB without images",
        f"at least, by a roofline: {', '.join(sums)}",
        f"this machine, by a measured step: {sum(price.hours_here for price in priced):,.1f} h",
    ]
    if assumed := dict.fromkeys(price.dataset for price in priced if price.assumed):
        lines.append(
            f"The size of {listed([*assumed])} is known after stage ingest: priced as "
            f"{UNKNOWN.train_classes:,} classes with {UNKNOWN.train_images:,} images in training."
        )
    return "\n".join([*lines, ""])


def _row(price: Price) -> list[str]:
    step = price.on_gpu
    numbers = [f"{price.trainings:,}", f"{price.steps:,}", str(price.batch), f"{step.flops / 1e12:.3f}"]
    numbers += [f"{step.moved / _GB:.1f}", f"{step.memory(price.images) / _GB:.2f}"]
    hours = [(gpu, price.hours(gpu)) for gpu in GPUS]
    fits = [
        f"{step.images(gpu.memory)} images fit" if value is None else f"{value:,.2f}" for gpu, value in hours
    ]
    here = [f"{price.seconds:.2f}", f"{price.hours_here:,.1f}"]
    return [price.dataset, price.method, *numbers, f"{step.per_image / 1e6:.0f}", *fits, *here]
