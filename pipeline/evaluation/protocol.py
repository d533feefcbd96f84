"""The declaration of an evaluation protocol.

Two metrics files are comparable only if the hashes are equal.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping

INTERVAL = (
    "Student's t with the CR2 variance of class means and 1 / sum w^2 - 1 degrees of freedom, joined with "
    "the same after Hall's correction of skewness, within 0 and 1; none for fewer than 8 classes"
)


class Declared:
    """A declaration in words and numbers. Subclasses are frozen dataclasses."""

    def declaration(self) -> dict[str, object]:
        """The values that JSON contains."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    def hash(self) -> str:
        """sha256 of the canonical JSON text, in hex."""
        text = json.dumps(
            self.declaration(), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return hashlib.sha256(text.encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class Protocol(Declared):
    """The protocol of retrieval. Each word is part of the hash: edit a word only if the meaning changes."""

    split: str
    recall_at: tuple[int, ...]
    confidence: float
    seed: int
    reduction: str = "none"
    training_protocol: str = "selected"  # training.protocol of the recipe
    queries: str = "every image of the split that its data set does not keep out of the queries"
    gallery: str = "every image of the split that its data set does not keep out of the gallery"
    self_match: str = "removed by row id"
    normalisation: str = "embeddings are stored as unit vectors in float32"
    similarity: str = "inner product, accumulated in float64, rounded to float32"
    ties: str = "equal similarities in ascending order of row id"
    search: str = "exact, all gallery rows"
    relevant: str = "R = images of the query's class in the gallery, the query left out"
    lone_queries: str = "queries with R = 0 are left out of every average and counted"
    recall_at_k: str = "1 if any of the first K neighbours is relevant, else 0"
    precision_at_1: str = "the same as recall_at_1"
    r_precision: str = "share of relevant images among the first R neighbours"
    map_at_r: str = "(1/R) sum over the relevant ranks j <= R of the precision at j"
    map: str = "(1/R) sum over all relevant ranks j of the precision at j, whole ranking, not interpolated"
    nmi: str = (
        "2 I / (H + H) of labels and k-means clusters of all rows, as many as classes, 20 iterations, seeded"
    )
    average: str = "arithmetic mean over queries"
    class_mean: str = "arithmetic mean over classes of the means over their queries"
    interval: str = f"of the average over classes: {INTERVAL}"
    # of each metric of a user: its definition and its settings
    metrics: Mapping[str, Mapping[str, object]] = dataclasses.field(default_factory=dict)

    def declaration(self) -> dict[str, object]:
        declared = {**super().declaration(), "recall_at": sorted(set(self.recall_at))}
        return declared if self.metrics else {key: declared[key] for key in declared if key != "metrics"}
