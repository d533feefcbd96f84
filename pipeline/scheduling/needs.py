"""What the stages need of a machine or cluster, from the blocks of params.yaml that set resources."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.config import EnsembleBlock, ExportSettings, Params, TrainSettings, settings, sweep_settings
from pipeline.runtime.cores import usable_cores
from pipeline.runtime.errors import UserError

_AXES = ("datasets", "methods", "seeds", "sweeps", "ensembles")


@dataclass(frozen=True)
class Needs:
    """The processes of Ray that one stage has at a time: 0 for a stage without Ray."""

    train: int
    export: int
    sweep: int
    ensemble: int

    def of(self, stage: str) -> int:
        """The processes of a stage such as `train@parts-ms-0`."""
        return int(getattr(self, stage.partition("@")[0], 0))

    @property
    def highest(self) -> int:
        return max(self.train, self.export, self.sweep, self.ensemble)


def needs(params: Params, gpus: int) -> Needs:
    """The needs of parallel stages on a machine with `gpus` GPUs.

    Where the machine has GPUs, Ray also starts trainings on one worker: it gives each a GPU of its own.
    Raises UserError for a mistake in a block.
    """
    train = settings(params, "train", TrainSettings)
    export = settings(params, "export", ExportSettings)
    ensemble = settings(params, "ensemble", EnsembleBlock)
    on_gpus = gpus > 0 and train.gpu != "no"
    names = params.read("run.sweeps")
    return Needs(
        train=train.most_workers if train.most_workers > 1 or on_gpus else 0,
        export=export.workers if export.workers > 1 else 0,
        sweep=max((sweep_settings(params, name).concurrent for name in names), default=0),
        ensemble=0 if ensemble.concurrent == 1 else ensemble.concurrent or max(gpus, usable_cores()),
    )


def slots(params: Params, cpus: int, gpus: int) -> int:
    """How many trainings a cluster with `cpus` CPUs and `gpus` GPUs runs at the same time, at least 1."""
    train = settings(params, "train", TrainSettings)
    if gpus and train.gpu != "no":
        return max(1, gpus // train.most_workers)
    threads = train.cpus_per_worker or max(1, usable_cores() // train.most_workers)
    return max(1, cpus // (train.most_workers * threads))


def gpus_of_this_machine() -> int:
    """GPUs of NVIDIA. Their device files are counted, because torch takes seconds to import."""
    return sum(path.name.removeprefix("nvidia").isdigit() for path in Path("/dev").glob("nvidia*"))


def require_lists(params: Params) -> None:
    """Raises UserError for an axis in block `run` that is a single value. DVC's message for it does not name
    the axis: 'Value' object is not iterable."""
    for axis in _AXES:
        value = params.block("run").get(axis)
        if value is not None and not isinstance(value, list):
            raise UserError(
                f"{params.label}:{params.line(f'run.{axis}')}: run.{axis} is {value}, which is not a list.",
                f"Write it as a list: {axis}: [{value}].",
            )
