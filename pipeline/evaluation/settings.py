"""The settings of evaluation and analysis: blocks `evaluate` and `analyze` of params.yaml."""

import operator
import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, SerializeAsAny, field_validator

from unseen.runtime.parts import Calls, PartSettings, opened
from unseen.runtime.setting_names import Name
from unseen.runtime.settings import Count, Seed, Strict

MAX_RESAMPLES = 100_000  # of an interval
# Of an interval: a comparison needs more sign flips than 1 / (1 - confidence), see evaluation/statistics
MAX_CONFIDENCE = 0.9999
Ranks = tuple[Count, ...]  # the K of Recall@K


class Reduce(Strict):
    """A linear reduction of the embeddings, learned from the embeddings of the train images by the same
    weights (pipeline/evaluation/reduction.py)."""

    dim: Count
    # none: PCA; pairs: supervised, by the data set's table of matching images
    whiten: Literal["none", "pca", "pairs"] = "none"


class Flat(Strict):
    """Full vectors, without any structure over them."""

    kind: Literal["flat"] = "flat"


class Cells(Strict):
    """The cells of an inverted file.

    `lists` None: 4 sqrt(N) cells (FAISS wiki, guidelines to choose an index), at most N / 39.
    """

    lists: Count | None = None
    probes: Count = 64  # cells that a query searches
    seed: Seed = 1234  # of k-means; FAISS's default
    build_threads: Count = 1  # more than 1: the index differs from build to build


class Ivf(Cells):
    """Inverted file over full vectors (pipeline/evaluation/index/kinds.py)."""

    kind: Literal["ivf"] = "ivf"


class IvfPq(Cells):
    """Inverted file of codes of m = `code_bytes` bytes, which must divide D. The codes use the same seed.

    The index compares the first max(`refine`, number of candidates) rows again by full vectors, which it then
    also stores. None: it stores codes only, and a row whose code is not among the first k + 5 is lost.
    """

    kind: Literal["ivf_pq"] = "ivf_pq"
    code_bytes: Count = 32
    refine: Count | None = 100


class Hnsw(Strict):
    """Navigable graph over full vectors. `neighbours` is FAISS's default."""

    kind: Literal["hnsw"] = "hnsw"
    neighbours: Annotated[int, Field(ge=2)] = 32
    build_width: Count = 100
    search_width: Count = 64
    build_threads: Count = 1


Setting = Flat | Ivf | IvfPq | Hnsw  # of an index
ApproximateIndex = Annotated[Ivf | IvfPq | Hnsw, Field(discriminator="kind")]


class OutsideMetric(PartSettings):
    """A metric of a user: `values()` of its class has a value for each query, whose mean is the metric.

    DEFINITION: its meaning in words, which the hash of the protocol contains.
    """

    given: ClassVar[tuple[str, ...]] = ("per_query",)
    required: ClassVar[tuple[str, ...]] = ("values", "DEFINITION")
    calls: ClassVar[Calls] = {"values": ()}
    DEFINITION: ClassVar[str]
    module: str


AnyMetric = SerializeAsAny[Annotated[OutsideMetric, opened(OutsideMetric)]]
# names and prefixes in metrics.json and in the files per query (evaluation/evaluate.py)
_TAKEN = re.compile(
    r"(recall_at|class_mean|last|untrained|features|reduced|approximate|best_on_test)_.*|.*_(low|high)|row_id|"
    r"label|relevant|r_precision|precision_at_1|ap|ap_at_r|map|map_at_r|nmi|first_positive|queries|classes|"
    r"lone_queries|gallery|protocol|training_protocol"
)


class EvaluateBlock(Strict):
    """Block `evaluate`."""

    recall_at: Ranks | None = None  # None: the published K of each data set
    confidence: Annotated[float, Field(gt=0, le=MAX_CONFIDENCE)] = 0.95
    seed: Seed = 0
    map: bool = True  # also mean average precision over the whole ranking
    nmi: bool = False  # agreement of a k-means clustering with the classes
    class_means: bool = False  # also each metric as a mean over classes instead of queries
    # also reduced embeddings of the selected model, as reduced_<metric> (IRT: PCA 128)
    reduce: Reduce | None = None
    # also an approximate index over the selected model's embeddings
    approximate: ApproximateIndex | None = None
    approximate_sample: Count = 1000  # queries on which the index is compared with exact search
    # metrics of a user (docs/extending.md), by their name
    metrics: dict[Name, AnyMetric] = Field(default={}, exclude_if=operator.not_)

    @field_validator("metrics")
    @classmethod
    def _free(cls, metrics: dict[str, OutsideMetric]) -> dict[str, OutsideMetric]:
        if taken := list(filter(_TAKEN.fullmatch, metrics)):
            raise ValueError(f"{taken[0]} is a name of the project: choose another one")
        return metrics


class EvaluateSettings(EvaluateBlock):
    """Block `evaluate` for one data set."""

    recall_at: Ranks = (1, 2, 4, 8)


class AnalyzeSettings(Strict):
    """Block `analyze`."""

    histogram_bins: Annotated[int, Field(ge=10, le=10_000)] = 100
    pairs: Count = 1_000_000  # sampled pairs of a similarity histogram; all pairs if there are fewer
    # splits of the classes into halves, for zero-shot transfer of attributes (GSP fig. 5)
    transfer_splits: Annotated[int, Field(ge=1, le=100_000)] = 1000
    transfer_classes: Count = 200  # largest number of classes in a split; of larger data sets a random subset
    bootstrap: Annotated[int, Field(ge=1, le=MAX_RESAMPLES)] = 1000  # class resamples of FNMR at FMR
    transfer_ridge: Annotated[float, Field(gt=0)] = 0.05  # GSP sec. 4.4
    reduce: Reduce | None = None  # also similarities of reduced embeddings (IRT fig. 5: PCA 256)
