"""Kernel launches, waits of the host and copied bytes of one training step of each method, on the pretended
GPU of tests/device/pretended.py.

    python benchmarks/launches.py [methods ...]

A launch: an operation of the step that reaches the dispatcher of torch with a tensor of the device, except
views and allocations. A GPU launches a kernel for most of them and several for some (sorts, reductions), so
the count is a stand-in. The optimizer is not counted: on a GPU it is fused. One wait is that for the numbers
of the step, which a GPU copies while the next step is queued. Bytes to the device: images (uint8), labels and
samples of the batch. Bytes to the host: the numbers of the step. The recipes are those of the built-in data
set, with 48 images in a batch.

BEFORE has the reads of commit ded8e3a, before most reads were removed.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from timing import Ratio, save

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the tests are not installed

from tests.device import pretended
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.layers import dotted
from unseen.config.place import Place
from unseen.data.loader import TrainBatch
from unseen.methods.build import initial_method
from unseen.training.optimizer import build_optimizer
from unseen.training.step import Learner, train_step
from unseen.training.transfer import moved

BEFORE = {  # method: reads
    "ms": 1,
    "contrastive": 3,
    "triplet": 4,
    "proxy_anchor": 3,
    "proxy_nca": 1,
    "nsoftmax": 1,
    "xbm": 7,
    "snca": 5,
    "crt": 1,
    "multihead": 3,
    "gsp": 5,
    "irt_l": 6,
    "irt_r": 6,
}
MOST_READS = 1
CLASSES, IMAGES, SAMPLES = 12, 4, 5864  # of a batch, of the set


class Counted(NamedTuple):
    launches: int
    reads: int
    to_device: int  # bytes
    to_host: int


def counted(name: str) -> Counted:
    """The counts of a step of a method, the third: prototypes and memories are initialised then."""
    params = Params(Path("params.yaml"))
    published = Definitions(params).layers("parts", name).recipe()
    overrides = {
        "batch.classes": CLASSES,
        "batch.images_per_class": IMAGES,
        "batch.sampling": "classes",
        "optimizer.new_layers_only": 0,
        "training.precision": "float32",
    }
    if getattr(published, "memory", None) is not None:
        overrides["memory.start"] = 0
    recipe = Definitions(params).layers("parts", name).plus(dotted(Place("benchmark"), overrides)).recipe()
    method = initial_method(recipe, 100, SAMPLES, seed=0).to(pretended.GPU).train()
    optimizer = build_optimizer(recipe.optimizer, method.parameter_groups(), pretended.GPU)
    optimizer.step = lambda: None
    learner = Learner(method, optimizer, recipe, seed=0)
    labels = torch.arange(CLASSES * IMAGES) // IMAGES
    samples = torch.arange(CLASSES * IMAGES)
    shape = (len(labels), 3, recipe.input.size, recipe.input.size)
    images = (torch.randint(0, 256, shape, dtype=torch.uint8) for _ in range(3))
    batches = moved(
        (TrainBatch(step, each, labels, samples) for step, each in enumerate(images)), pretended.GPU
    )
    for _ in range(3):
        with pretended.recorded() as record:
            train_step(learner, next(batches)).result()
    waits = len(record.waits) + record.awaited
    return Counted(record.launches.total(), waits, sum(record.pinned_to_device), sum(record.to_host))


def counted_on_the_device(names: list[str]) -> dict[str, Counted]:
    torch.manual_seed(0)
    return {name: counted(name) for name in names}


def counts_of(names: list[str]) -> dict[str, Counted]:
    counts: dict[str, Counted] = pretended.run(counted_on_the_device, names)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("methods", nargs="*", default=list(BEFORE))
    names = parser.parse_args().methods
    counts = counts_of(names)
    print(f"{'method':14s}{'launches':>10s}{'reads':>7s}{'before':>8s}", end="")
    print(f"{'B to device':>13s}{'B to host':>11s}")
    rows: dict[str, object] = {}
    ratios: dict[str, Ratio] = {}
    for name, (launches, reads, to_device, to_host) in counts.items():
        print(f"{name:14s}{launches:10d}{reads:7d}{BEFORE[name]:8d}", end="")
        print(f"{to_device:13d}{to_host:11d}", flush=True)
        rows[name] = counts[name]._asdict()
        ratios[f"{name}: reads"] = Ratio(reads, at_most=MOST_READS)
        ratios[f"{name}: reads before"] = Ratio(BEFORE[name])
        ratios[f"{name}: launches"] = Ratio(launches)
    save("launches", rows, ratios)
    return int(max(count.reads for count in counts.values()) > MOST_READS)


if __name__ == "__main__":
    sys.exit(main())
