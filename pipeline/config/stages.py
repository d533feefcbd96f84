"""The blocks of params.yaml that belong to one stage each."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from pipeline.config.parts import Count, Positive
from pipeline.config.strict import Strict


class RunSettings(Strict):
    """Block `run`: the axes of the matrix."""

    datasets: tuple[str, ...] = Field(min_length=1)
    methods: tuple[str, ...] = Field(min_length=1)
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
    sweeps: tuple[str, ...] = ()  # methods to sweep; each has a block `sweep.<m>`
    ensembles: tuple[str, ...] = ()  # methods judged by the MLRC protocol too, on every data set of the run


class TrainSettings(Strict):
    """Block `train`: the machine a training takes. Nothing here changes the loss; bytes are equal for equal settings."""

    workers: Count = 1
    gpu: Literal["auto", "yes", "no"] = "auto"
    cpus_per_worker: Count | None = None  # None: the cores of this machine shared among the workers
    loader_threads: Count = 2


class EnsembleSettings(Strict):
    """Block `ensemble`: the MLRC protocol, folds x repeats trainings of a method. Members stay what they are when repeats are added."""

    folds: Annotated[int, Field(ge=2)] = 4  # MLRC
    repeats: Count = 3  # GSP code: all 3^4 ensembles are averaged
    seed: Annotated[int, Field(ge=0)] = 0  # of the first member; the others count on from it
    recall_at: tuple[Count, ...] = Field(default=(1, 2, 4, 8), min_length=1)
    concurrent: Count | None = None  # members trained side by side; None: one per GPU, or on CPUs as many as find `train.cpus_per_worker` (1) free


class ExportSettings(Strict):
    """Block `export`."""

    workers: Count = 1
    batch_size: Count = 256
    scales: tuple[Positive, ...] = Field(default=(1.0,), min_length=1)  # of every image, one descriptor of them all (pipeline/export/scales.py)

    @field_validator("scales")
    @classmethod
    def _largest_first(cls, scales: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(scales)) < len(scales):
            raise ValueError("each scale counts once")
        return tuple(sorted(scales, reverse=True))  # their order says nothing, and changes nothing


class Reduce(Strict):
    """A linear reduction of the embeddings, learned on those of the train images by the same weights (pipeline/evaluation/reduction.py)."""

    dim: Count
    whiten: Literal["none", "pca", "pairs"] = "none"  # none: PCA; pairs: supervised, by the data set's table of matching images


class _Cells(Strict):
    lists: Count | None = None  # cells; None: 4 sqrt(N)
    probes: Count = 64  # cells that a query looks into
    seed: Annotated[int, Field(ge=0)] = 1234
    build_threads: Count = 1  # more: another index each time


class IvfSettings(_Cells):
    """Inverted file (pipeline/index/kinds.py)."""

    kind: Literal["ivf"] = "ivf"


class IvfPqSettings(_Cells):
    """Inverted file of product-quantised codes (pipeline/index/kinds.py)."""

    kind: Literal["ivf_pq"] = "ivf_pq"
    code_bytes: Count = 32  # a divisor of the dimensions
    refine: Count | None = 100  # rows ranked anew by their full vectors, which the index then holds; None: it holds codes alone


class HnswSettings(Strict):
    """Navigable graph (pipeline/index/kinds.py)."""

    kind: Literal["hnsw"] = "hnsw"
    neighbours: Annotated[int, Field(ge=2)] = 32
    build_width: Count = 100
    search_width: Count = 64
    build_threads: Count = 1


ApproximateIndex = Annotated[IvfSettings | IvfPqSettings | HnswSettings, Field(discriminator="kind")]


class EvaluateSettings(Strict):
    """Block `evaluate`."""

    recall_at: tuple[Count, ...] = (1, 2, 4, 8)
    bootstrap: Count = 1000  # class resamples of an interval
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    seed: Annotated[int, Field(ge=0)] = 0
    map: bool = True  # mean average precision over the whole ranking, beside MAP@R; always counted on the CPU
    nmi: bool = False  # agreement of a k-means clustering with the classes
    class_means: bool = False  # each metric again as a mean over classes instead of queries
    reduce: Reduce | None = None  # the selected model again, reduced, as reduced_<metric> (IRT: PCA to 128)
    approximate: ApproximateIndex | None = None  # the selected model again, by an approximate index
    approximate_sample: Count = 1000  # queries on which the index is compared with exact search


class AnalyzeSettings(Strict):
    """Block `analyze`."""

    histogram_bins: Annotated[int, Field(ge=10)] = 100
    pairs: Count = 1_000_000  # sampled pairs of a similarity histogram; all of them where there are fewer
    transfer_splits: Count = 1000  # of the classes into halves, for zero-shot transfer of attributes (GSP fig. 5)
    transfer_classes: Count = 200  # most classes of a split; larger data sets are drawn from
    transfer_ridge: Annotated[float, Field(gt=0)] = 0.05  # GSP sec. 4.4


class ReportSettings(Strict):
    """Block `report`."""

    title: str = "unseen: retrieval on classes never seen in training"
    queries: Count = 12  # of each gallery
    neighbours: Count = 8  # shown per query
    thumbnail: Count = 96  # pixels


class SweepSettings(Strict):
    """Block `sweep.<m>`: a search over recipe fields of method `m`, on every data set of the run, judged on validation classes alone."""

    seed: Annotated[int, Field(ge=0)] = 0
    space: dict[str, dict[str, Any]] = Field(
        min_length=1
    )  # dotted recipe field -> {grid: [...]} | {uniform: [a, b]} | {loguniform: [a, b]} | {choice: [...]}
    trials: Count = 8  # drawn from what is not a grid; a grid is taken whole
    iterations: Count  # of the longest trial
    concurrent: Count = 1
    scheduler: Literal["asha", "none"] = "asha"
    grace: Count = 1  # validations before a trial may be stopped

    @model_validator(mode="after")
    def _known(self) -> "SweepSettings":
        for field, domain in self.space.items():
            if len(domain) != 1 or next(iter(domain)) not in ("grid", "choice", "uniform", "loguniform"):
                raise ValueError(f"{field}: say one of grid, choice, uniform, loguniform, got {sorted(domain)}")
            kind, values = next(iter(domain.items()))
            if not isinstance(values, list) or not values or (kind in ("uniform", "loguniform") and (len(values) != 2 or values[0] >= values[1])):
                raise ValueError(f"{field}.{kind}: a list of values, or [low, high] for a range, got {values!r}")
        return self
