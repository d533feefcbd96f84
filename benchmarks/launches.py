"""Kernel launches, host reads and copied bytes of one training step of each method, counted on a CPU.

    python benchmarks/launches.py [methods ...]

A launch: an operation of forward pass, loss, backward pass or clipping that reaches the dispatcher of torch,
except views and allocations. A GPU launches a kernel for most of them and several for some (sorts,
reductions), so the count is a stand-in. The optimizer is not counted: on a GPU it is fused. A read: a value
or a data-dependent size that the host waits for (tests/device/host_reads.py). The code is that for GPUs; one
read is that of the numbers of the step, which a GPU copies while the next step is queued. Bytes to the
device: images (uint8), labels and samples of the batch. Bytes to the host: the numbers of the step. The
recipes are those of the built-in data set, with 48 images in a batch.

BEFORE has the reads and launches of commit ded8e3a, before most reads were removed.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from timing import Ratio, save
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the tests are not installed

from tests.device.host_reads import HostReads, pretend_gpu
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.layers import dotted
from unseen.config.place import Place
from unseen.data.loader import TrainBatch
from unseen.methods.build import initial_method
from unseen.runtime.device.transfer import DeviceToHost
from unseen.training import step as training_step
from unseen.training.optimizer import build_optimizer
from unseen.training.step import Learner, train_step

BEFORE = {  # method: launches, reads
    "ms": (311, 1),
    "contrastive": (328, 3),
    "triplet": (324, 4),
    "proxy_anchor": (320, 3),
    "proxy_nca": (302, 1),
    "nsoftmax": (301, 1),
    "xbm": (355, 7),
    "snca": (355, 5),
    "crt": (546, 1),
    "multihead": (504, 3),
    "gsp": (498, 5),
    "irt_l": (467, 6),
    "irt_r": (492, 6),
}
MOST_READS = 1
CLASSES, IMAGES, SAMPLES = 12, 4, 5864  # of a batch, of the set
WITHOUT_KERNEL = {
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "slice", "select", "unsqueeze",
    "squeeze", "detach", "alias", "as_strided", "split", "split_with_sizes", "unbind", "empty", "empty_like",
    "empty_strided", "new_empty", "new_empty_strided", "resize_", "diagonal", "unfold", "_reshape_alias",
    "lift_fresh", "set_", "_local_scalar_dense",
}  # fmt: skip


class Launches(TorchDispatchMode):
    """Counts operations, as described above."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += operation.overloadpacket.__name__ not in WITHOUT_KERNEL
        return operation(*args, **(kwargs or {}))


class Counted(NamedTuple):
    launches: int
    reads: int
    to_device: int  # bytes
    to_host: int


class Recorded(DeviceToHost):
    """Records the bytes of each copy to the host."""

    nbytes: ClassVar[list[int]] = []

    def __init__(self, values: torch.Tensor) -> None:
        super().__init__(values)
        self.nbytes.append(values.nbytes)


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
    method = initial_method(recipe, 100, SAMPLES, seed=0).train()
    optimizer = build_optimizer(recipe.optimizer, method.parameter_groups(), torch.device("cpu"))
    # Its counters of steps are on the CPU, also where the parameters are on a GPU.
    optimizer.step = lambda: None
    learner = Learner(method, optimizer, recipe, seed=0)
    labels = torch.arange(CLASSES * IMAGES) // IMAGES
    samples = torch.arange(CLASSES * IMAGES)
    shape = (len(labels), 3, recipe.input.size, recipe.input.size)
    for step in range(3):
        images = torch.randint(0, 256, shape, dtype=torch.uint8)
        Recorded.nbytes.clear()
        with HostReads() as reads, Launches() as launches:
            train_step(learner, TrainBatch(step, images, labels, samples))
    to_device = images.nbytes + labels.nbytes + samples.nbytes
    return Counted(launches.count, len(reads.names), to_device, sum(Recorded.nbytes))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("methods", nargs="*", default=list(BEFORE))
    names = parser.parse_args().methods
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        pretend_gpu(patch)
        patch.setattr(training_step, "DeviceToHost", Recorded)
        counts = {name: counted(name) for name in names}
    print(f"{'method':14s}{'launches':>10s}{'before':>8s}{'reads':>7s}{'before':>8s}", end="")
    print(f"{'B to device':>13s}{'B to host':>11s}")
    rows: dict[str, object] = {}
    ratios: dict[str, Ratio] = {}
    for name, (launches, reads, to_device, to_host) in counts.items():
        launches_before, reads_before = BEFORE[name]
        print(f"{name:14s}{launches:10d}{launches_before:8d}{reads:7d}{reads_before:8d}", end="")
        print(f"{to_device:13d}{to_host:11d}", flush=True)
        rows[name] = counts[name]._asdict()
        ratios[f"{name}: reads"] = Ratio(reads, at_most=MOST_READS)
        ratios[f"{name}: reads before"] = Ratio(reads_before)
        ratios[f"{name}: launches / before"] = Ratio(launches / launches_before)
    save("launches", rows, ratios)
    return int(max(count.reads for count in counts.values()) > MOST_READS)


if __name__ == "__main__":
    sys.exit(main())
