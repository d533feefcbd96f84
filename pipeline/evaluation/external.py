"""Metrics of vectors of any tool, and the paired comparison of two of them.

The metrics are those of stage `evaluate` (evaluate.py), to the bit, and the protocol has the same hash for
the same settings. The comparison is that of the report (statistics/better.py).
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unseen.evaluation.counted_gallery import tile_counter
from unseen.evaluation.evaluate import Extent, evaluate
from unseen.evaluation.metrics import PerQuery
from unseen.evaluation.protocol import Protocol
from unseen.evaluation.settings import MAX_CONFIDENCE
from unseen.evaluation.sides import Sides
from unseen.evaluation.statistics.better import Comparison, compare, flips_of, holm
from unseen.evaluation.statistics.table import of_queries
from unseen.evaluation.tables import SELECTED
from unseen.evaluation.vectors import Vectors, read_vectors, sides_of
from unseen.runtime.errors import UserError

MAX_RANK = 2**31 - 1  # of Recall@K
Metrics = dict[str, float | int | str]
_NORMALISED = "vectors were divided by their length in float64, then rounded to float32"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The defaults are those of block `evaluate` in params.yaml. Raises UserError for a value out of its
    range."""

    recall_at: tuple[int, ...] = (1, 2, 4, 8)
    confidence: float = 0.95
    seed: int = 0
    class_means: bool = False  # also each metric as a mean over classes
    normalize: bool = False

    def __post_init__(self) -> None:
        ranks = self.recall_at
        valid = len(ranks) > 0 and min(ranks) >= 1 and max(ranks) <= MAX_RANK
        _require(valid, "recall_at", ", ".join(map(str, ranks)) or "empty", f"ranks of 1 to {MAX_RANK:,}")
        valid = 0 < self.confidence <= MAX_CONFIDENCE
        _require(valid, "confidence", self.confidence, f"above 0 and at most {MAX_CONFIDENCE}")
        _require(self.seed >= 0, "seed", self.seed, "0 or more")

    def protocol(self) -> Protocol:
        protocol = Protocol(
            "test",
            self.recall_at,
            self.confidence,
            self.seed,
            training_protocol="unknown",  # the vectors are from any tool
        )
        return dataclasses.replace(protocol, normalisation=_NORMALISED) if self.normalize else protocol


def _require(valid: bool, name: str, value: object, expected: str) -> None:
    if not valid:
        raise UserError(f"{name} is {value}, expected {expected}.", f"Correct {name}.")


class Difference(NamedTuple):
    """The second file minus the first in one metric."""

    comparison: Comparison
    adjusted: float  # the p value by Holm's method over the metrics


class Result(NamedTuple):
    """The metrics of each file, and with two files their differences by metric."""

    metrics: list[Metrics]
    differences: dict[str, Difference]


def evaluate_files(
    paths: Sequence[Path],
    labels: Path | None = None,
    settings: Settings = Settings(),
    galleries: Sequence[Path] = (),
    gallery_labels: Path | None = None,
) -> Result:
    """Evaluates one file of vectors, or two files with the same rows. `labels`: of .npy files. `galleries`:
    the file in which each of them searches, by default itself.

    Raises UserError as `read_vectors`, `sides_of` and `evaluate` do, if two files have other rows, or if the
    numbers of files and galleries differ.
    """
    if galleries and len(galleries) != len(paths):
        raise UserError(
            f"{len(paths)} files of vectors, but {len(galleries)} galleries.",
            "Name one gallery for each, written by the same model.",
        )
    searched: Sequence[Path | None] = galleries or [None] * len(paths)
    sides = [
        sides_of(
            read_vectors(path, labels),
            settings.normalize,
            None if gallery is None else read_vectors(gallery, gallery_labels),
        )
        for path, gallery in zip(paths, searched, strict=True)
    ]
    for path, other in zip(paths[1:], sides[1:], strict=True):
        if not other.has_rows_of(sides[0]):
            raise UserError(
                f"{path} does not contain the same rows as {paths[0]}: row ids or labels differ.",
                "Write both files from the same images in the same order, or evaluate each alone.",
            )
    return _evaluated(sides, settings)


def evaluate_vectors(
    embeddings: np.ndarray,
    labels: Sequence[Any] | np.ndarray,
    *,
    gallery: np.ndarray | None = None,
    gallery_labels: Sequence[Any] | np.ndarray | None = None,
    is_query: Sequence[bool] | np.ndarray | None = None,
    is_gallery: Sequence[bool] | np.ndarray | None = None,
    recall_at: Sequence[int] = (1, 2, 4, 8),
    normalize: bool = False,
    confidence: float = 0.95,
    seed: int = 0,
    progress: bool = False,
) -> Metrics:
    """Exact retrieval metrics of (N, D) unit vectors with N labels (integers or text); each row searches all
    other rows.

    `gallery`: (M, D) vectors of other images with M `gallery_labels`, in which every row searches instead.
    `is_query`, `is_gallery`: (N,) bool, the rows of the embeddings that search and that are searched.
    `progress` shows a line of progress.

    Keys: recall_at_<K>, r_precision, map_at_r, map, each with `_low` and `_high` (statistics/intervals.py),
    queries, lone_queries (of classes with one row, excluded from the averages), gallery, classes, protocol (a
    hash) and training_protocol (unknown). `normalize` divides each vector by its length first. Raises
    UserError as `Settings` and `sides_of` do, and if no query has a match.
    """
    settings = Settings(tuple(recall_at), confidence, seed, normalize=normalize)
    if (gallery is None) != (gallery_labels is None) or (gallery is not None and is_gallery is not None):
        raise UserError(
            "A gallery needs gallery_labels, and excludes is_gallery.", "Give both, or neither of them."
        )
    flags = [None if side is None else np.asarray(side, bool) for side in (is_query, is_gallery)]
    vectors = Vectors(np.asarray(embeddings), np.asarray(labels), None, flags[0], flags[1])
    others = None
    if gallery is not None:
        others = Vectors(np.asarray(gallery), np.asarray(gallery_labels), where="the gallery")
    return _evaluated([sides_of(vectors, normalize, others)], settings, progress).metrics[0]


def _evaluated(sides: Sequence[Sides], settings: Settings, progress: bool = True) -> Result:
    protocol, extent = settings.protocol(), Extent(class_means=settings.class_means)
    counter = tile_counter()
    metrics: list[Metrics] = []
    results: list[PerQuery] = []
    for side in sides:
        of_side, by_network = evaluate(side, {}, protocol, extent, counter, progress)
        metrics.append(of_side)
        results.append(by_network[SELECTED])
    return Result(metrics, _differences(results[0], results[1], settings) if len(results) == 2 else {})


def _differences(first: PerQuery, second: PerQuery, settings: Settings) -> dict[str, Difference]:
    columns, others = first.columns(), second.columns()
    flips = flips_of(len(columns), settings.confidence)
    comparisons = {
        name: compare(
            of_queries([values[None], others[name][None]], first.label),
            [(0, 1)],
            flips,
            settings.confidence,
            settings.seed,
        )[0]
        for name, values in columns.items()
    }
    adjusted = holm(np.array([comparison.p_value for comparison in comparisons.values()])).tolist()
    return {
        name: Difference(comparison, p_value)
        for (name, comparison), p_value in zip(comparisons.items(), adjusted, strict=True)
    }
