"""The blocks of params.yaml that belong to one stage each."""

import math
import operator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from unseen.evaluation.settings import Ranks
from unseen.runtime.parts import Calls, PartSettings, arguments_of, opened
from unseen.runtime.setting_names import Name
from unseen.runtime.settings import Count, Seed, Strict
from unseen.runtime.trackers import AnyTracker

MAX_TRIALS = 10_000  # of a sweep on one data set; also corners of a space that Optuna searches
MAX_COMBINATIONS = 1_000_000  # of the grids of a sweep, of which `total` draws
_MOST_GPUS = 4096  # the upper bound of train.workers: auto; the number of GPUs of the cluster is lower


class Axis(Strict):
    """An axis of a search space: exactly one of grid, choice, uniform and loguniform (docs/recipes.md)."""

    # every value, in every combination with the values of other grids
    grid: tuple[Any, ...] | None = Field(default=None, min_length=1)
    choice: tuple[Any, ...] | None = Field(default=None, min_length=1)  # one of the values, drawn per trial
    uniform: tuple[float, float] | None = None  # a value drawn uniformly between low and high
    loguniform: tuple[float, float] | None = None  # the same, uniform in the logarithm
    tied: tuple[str, ...] = ()  # further fields that get the same value

    @model_validator(mode="after")
    def _one_kind(self) -> "Axis":
        given = [
            kind for kind in ("grid", "choice", "uniform", "loguniform") if getattr(self, kind) is not None
        ]
        if len(given) != 1:
            raise ValueError(f"give exactly one of grid, choice, uniform and loguniform, got {given}")
        if self.bounds is not None and self.bounds[0] >= self.bounds[1]:
            raise ValueError(f"{given[0]}: [low, high] must ascend, got {list(self.bounds)}")
        if self.loguniform is not None and self.loguniform[0] <= 0:
            raise ValueError(f"loguniform starts at {self.loguniform[0]}: it must start above 0")
        return self

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Both ends of a range."""
        return self.uniform or self.loguniform

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values of a grid or a choice, or both ends of a range."""
        return self.grid or self.choice or self.bounds or ()


class Budget(Strict):
    """`run.budget`: the same search for every method of `run.sweeps`. It overrides these fields of every
    sweep."""

    total: Count  # trials of each method
    iterations: Count | None = None  # of the longest trial; None: the iterations of the recipe
    scheduler: Literal["asha", "none"] = "none"
    grace: Count = 1  # validations before a trial may be stopped
    seeds: tuple[Seed, ...] | None = Field(default=None, min_length=1)  # trainings of a trial; None: one
    searcher: Literal["optuna"] | None = None  # proposes the values of trials; None: drawn in advance


class RowSearch(Budget):
    """`search` of a study: the same search for every row. The trials depend on nothing else."""

    space: dict[str, Axis] = Field(default={})  # dotted recipe field -> its values; empty: that of the method
    seed: Seed = 0  # of the draws


class RowSweepBlock(Strict):
    """Block `sweep.<m>` of a row of a study with `search`: only what changes no result."""

    concurrent: Count = 1


class RunSettings(Strict):
    """Block `run`: the axes of the run. DVC expands them to one stage per combination."""

    datasets: tuple[Name, ...] = Field(min_length=1)
    methods: tuple[Name, ...] = Field(min_length=1)
    seeds: tuple[Seed, ...] = Field(min_length=1)
    sweeps: tuple[Name, ...] = ()  # methods to sweep, on the data sets that their sweep lists
    ensembles: tuple[Name, ...] = ()  # methods to evaluate also by the MLRC protocol, on every data set
    budget: Budget | None = None  # of every sweep of the run; None: each sweep has its own

    @field_validator("datasets", "methods", "seeds", "sweeps", "ensembles")
    @classmethod
    def _distinct(cls, values: tuple[object, ...]) -> tuple[object, ...]:
        if repeated := sorted({str(value) for value in values if values.count(value) > 1}):
            raise ValueError(f"{', '.join(repeated)}: list each name once")
        return values


class TrainSettings(Strict):
    """Block `train`: the resources of a training. They do not change the loss. Equal settings give equal
    bytes."""

    # [1, 8]: between 1 and 8, as many as the cluster has, also if nodes leave and join during a training
    # auto: the largest divisor of the batch that is at most the number of GPUs; 1 on CPUs
    workers: Count | tuple[Count, Count] | Literal["auto"] = 1
    gpu: Literal["auto", "yes", "no"] = "auto"
    # of a worker; None: the cores of its machine divided by the workers there, at most 8
    loader_threads: Count | None = None
    checkpoint_every: Count = 100  # iterations
    trackers: tuple[AnyTracker, ...] = ()  # copies of the numbers for dashboards (runtime/trackers.py)
    # images of a worker whose activations are in memory at a time; None: its whole slice of the batch
    images_per_pass: Count | None = None
    # a directory on a disk of each node, to which its first worker copies the shards; None: no copy
    stage_shards: str | None = None

    @field_validator("workers")
    @classmethod
    def _ascending(cls, workers: int | tuple[int, int] | str) -> int | tuple[int, int] | str:
        if isinstance(workers, tuple) and workers[0] > workers[1]:
            raise ValueError(f"expected the smaller number first, got {list(workers)}")
        return workers

    @property
    def fewest_workers(self) -> int:
        return self._range[0]

    @property
    def most_workers(self) -> int:
        return self._range[1]

    @property
    def _range(self) -> tuple[int, int]:
        if self.workers == "auto":
            return (1, _MOST_GPUS)
        return (self.workers, self.workers) if isinstance(self.workers, int) else self.workers


class EnsembleBlock(Strict):
    """Block `ensemble`: the MLRC protocol. Each fold is trained with each seed; DVC expands both lists to
    cells. Additional seeds leave the existing members unchanged."""

    folds: tuple[Count, ...] = Field(default=(1, 2, 3, 4), min_length=2)  # MLRC
    # GSP code: three trainings of each fold, all 3^4 ensembles are averaged
    seeds: tuple[Seed, ...] = Field(default=(0, 1, 2), min_length=1)
    recall_at: Ranks | None = Field(default=None, min_length=1)  # None: the published K of each data set

    @field_validator("folds", "seeds", mode="before")
    @classmethod
    def _lists(cls, value: object) -> object:
        if not isinstance(value, list | tuple):
            raise ValueError("expected a list, such as [1, 2, 3, 4] for four folds")
        return tuple(value)

    @field_validator("folds")
    @classmethod
    def _consecutive(cls, folds: tuple[int, ...]) -> tuple[int, ...]:
        if folds != tuple(range(1, len(folds) + 1)):
            raise ValueError(f"expected every fold in order, such as [1, 2, 3, 4], got {list(folds)}")
        return folds

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"a seed occurs twice: {list(seeds)}")
        return seeds


class EnsembleSettings(EnsembleBlock):
    """Block `ensemble` for one data set."""

    recall_at: Ranks = (1, 2, 4, 8)


class ExportSettings(Strict):
    """Block `export`."""

    workers: Count = 1
    batch_size: Count = 256
    # of every image, one descriptor of them all (pipeline/training/export/scales.py)
    scales: tuple[Annotated[float, Field(gt=0, le=16)], ...] = Field(default=(1.0,), min_length=1)

    @field_validator("scales")
    @classmethod
    def _largest_first(cls, scales: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(scales)) < len(scales):
            raise ValueError("a scale occurs twice")
        return tuple(sorted(scales, reverse=True))  # the order does not change the result


class OutsideSection(PartSettings):
    """A section of a user, the module `package.module`: a function `content(dataset, ...)`, as in the modules
    of pipeline/report/sections, whose other arguments are the settings, and a template beside the module.

    CARD: the identifier of a card of the page (pipeline/report/page.py), or the heading of a new one.
    """

    whole: ClassVar[bool] = True
    given: ClassVar[tuple[str, ...]] = ("dataset",)
    calls: ClassVar[Calls] = {"content": ("dataset",)}
    CARD: ClassVar[str] = "Own sections"
    module: str

    @classmethod
    def fields_of(cls, part: Any, path: str) -> dict[str, Any]:
        """The arguments of `content`. Raises ValueError if the template is missing."""
        template = Path(part.__file__).with_suffix(".html")
        if not template.is_file():
            raise ValueError(f"its template {template.name} is not beside it")
        return arguments_of(part.content, cls.given)


AnySection = SerializeAsAny[Annotated[OutsideSection, opened(OutsideSection)]]


class ReportSettings(Strict):
    """Block `report`."""

    title: str = "unseen: retrieval on classes never seen in training"
    queries: Count = 12  # of each gallery
    neighbours: Count = 8  # shown per query
    thumbnail: Annotated[int, Field(ge=1, le=4096)] = 144  # pixels of the longer side; a click enlarges it
    # sections of a user (docs/extending.md), by a name
    sections: dict[Name, AnySection] = Field(default={}, exclude_if=operator.not_)
    control: Name | None = None  # the method that all others are compared with; None: all pairs


class SweepSettings(Strict):
    """Block `sweep.<m>`: a search over recipe fields of method `m`, evaluated only on held-out train
    classes."""

    seed: Seed = 0
    datasets: tuple[Name, ...] | None = None  # data sets to search on; None: every data set of the run
    space: dict[str, Axis] = Field(min_length=1)  # dotted recipe field -> its values
    trials: Count = 8  # draws from the axes that are not a grid, for each point of the grid
    total: Count | None = None  # number of all trials; None: every point of the grid
    seeds: tuple[Seed, ...] | None = Field(default=None, min_length=1)  # trainings of a trial; None: `seed`
    iterations: Count | None = None  # of the longest trial; None: the iterations of the recipe
    concurrent: Count = 1
    scheduler: Literal["asha", "none"] = "asha"
    grace: Count = 1  # validations before a trial may be stopped
    searcher: Literal["optuna"] | None = None  # proposes the values of trials; None: drawn in advance

    @model_validator(mode="after")
    def _each_field_once(self) -> "SweepSettings":
        fields = [name for field, axis in self.space.items() for name in (field, *axis.tied)]
        if repeated := sorted({name for name in fields if fields.count(name) > 1}):
            raise ValueError(f"{', '.join(repeated)}: a field belongs to one axis of the space")
        return self

    @model_validator(mode="after")
    def _comparable(self) -> "SweepSettings":
        seeds = self.seeds or ()
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds: {list(seeds)} contains a seed twice")
        if self.scheduler == "asha" and (len(seeds) > 1 or self.searcher is not None):
            raise ValueError(
                "scheduler: asha stops single trainings early, so the seeds of a trial, or the trials that "
                "optuna compares, would have different lengths; several seeds need scheduler none, and so "
                "does searcher optuna"
            )
        points = math.prod(len(axis.grid) for axis in self.space.values() if axis.grid is not None)
        is_grid = all(axis.grid for axis in self.space.values())
        corners = 0 if self.searcher is None else math.prod(len(axis.ends) for axis in self.space.values())
        for number, name in ((self.count, "trials"), (corners, "corners of its space")):
            if number > MAX_TRIALS:
                raise ValueError(f"the sweep has {number:,} {name}, at most {MAX_TRIALS:,} are possible")
        if points > MAX_COMBINATIONS:
            raise ValueError(
                f"the grids of the space have {points:,} combinations, at most {MAX_COMBINATIONS:,} are "
                "possible; draw some of their values with choice"
            )
        if self.total is not None and self.total > points and is_grid:
            raise ValueError(
                f"total: {self.total} trials, but the grids of the space have {points} combinations; "
                "lower it or add values"
            )
        return self

    @property
    def count(self) -> int:
        """The number of trials, each with `seeds` trainings."""
        grids = [len(axis.grid) for axis in self.space.values() if axis.grid is not None]
        return self.total or math.prod(grids) * (1 if len(grids) == len(self.space) else self.trials)


class Search(SweepSettings):
    """A sweep with the length of its longest trial filled in."""

    iterations: Count
