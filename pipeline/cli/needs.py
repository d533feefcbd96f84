"""What the stages need of a machine or cluster, from the blocks of params.yaml that set resources."""

import itertools
from dataclasses import dataclass
from pathlib import Path

from unseen.config.document import Params
from unseen.config.resolve import settings, sweep_settings
from unseen.config.stages import ExportSettings, TrainSettings
from unseen.experiments.catalogue import definitions
from unseen.runtime.errors import UserError

_RUN = ("datasets", "methods", "seeds", "sweeps", "ensembles")
_AXES = (*(f"run.{axis}" for axis in _RUN), "ensemble.folds", "ensemble.seeds")


@dataclass(frozen=True)
class Needs:
    """The processes of Ray that one stage has at a time: 0 for a stage without Ray."""

    train: int
    export: int
    sweep: int

    def of(self, stage: str) -> int:
        """The processes of a stage such as `train@parts-ms-0` or `train_fold@parts-ms-1-0`."""
        return int(getattr(self, stage.partition("@")[0].removesuffix("_fold"), 0))

    @property
    def highest(self) -> int:
        return max(self.train, self.export, self.sweep)


def needs(params: Params, gpus: int) -> Needs:
    """The needs of parallel stages on a machine with `gpus` GPUs.

    Where the machine has GPUs, Ray also starts trainings, sweeps and exports of one process: it gives each a
    GPU of its own.
    Raises UserError for a mistake in a block.
    """
    train = settings(params, "train", TrainSettings)
    export = settings(params, "export", ExportSettings)
    on_gpus = gpus > 0 and train.gpu != "no"
    names = params.read("run.sweeps")
    trials = max((sweep_settings(definitions(params), name).concurrent for name in names), default=0)
    return Needs(
        train=train.most_workers if train.most_workers > 1 or on_gpus else 0,
        export=export.workers if export.workers > 1 or gpus > 0 else 0,
        sweep=trials if trials > 1 or on_gpus else 0,
    )


def slots(params: Params, cpus: int, gpus: int) -> int:
    """How many trainings a cluster with `cpus` CPUs and `gpus` GPUs runs at the same time, at least 1.

    On CPUs, those with the largest training.threads of the recipes of the run.
    """
    train = settings(params, "train", TrainSettings)
    if gpus and train.gpu != "no":
        return max(1, gpus // train.most_workers)
    cells = itertools.product(params.read("run.datasets"), params.read("run.methods"))
    known = definitions(params)
    threads = max(known.layers(*cell).recipe().training.threads for cell in cells)
    return max(1, cpus // (train.most_workers * threads))


def gpus_of_this_machine() -> int:
    """GPUs of NVIDIA. Their device files are counted, because torch takes seconds to import."""
    return sum(path.name.removeprefix("nvidia").isdigit() for path in Path("/dev").glob("nvidia*"))


def require_lists(params: Params) -> None:
    """Raises UserError for an axis of the graph that is a single value. DVC's message for it does not name
    the axis: 'Value' object is not iterable."""
    for axis in _AXES:
        block, _, name = axis.partition(".")
        value = params.block(block).get(name)
        if value is not None and not isinstance(value, list):
            raise UserError(
                f"{params.label}:{params.line(axis)}: {axis} is {value}, which is not a list.",
                f"Write it as a list: {name}: [{value}].",
            )
