"""The train-test gap: how much better images of training classes are retrieved than images of classes never seen.

    gap(metric) = metric(train classes) - metric(test classes)

Each side is retrieval within its own set, by the same exact search and the same definitions. A set with fewer classes or images is easier,
so a gap compares methods on one data set; between data sets it also carries their sizes. The train side holds the validation classes too,
which no gradient has seen: a share `training.validation_share` of its classes, so the gap to classes that were trained on is a little wider
still.
"""

import numpy as np
from jaxtyping import Float, Int

from pipeline.evaluation.metrics import Rows, averages, per_query

METRICS = ("recall_at_1", "map_at_r", "r_precision")
SHOWN = 20_000  # images: several seconds on one core


def train_test_gap(
    train: tuple[Float[np.ndarray, "N D"], Int[np.ndarray, " N"]], test: tuple[Float[np.ndarray, "M D"], Int[np.ndarray, " M"]]
) -> dict[str, float]:
    """train_<metric>, test_<metric> and <metric>_gap of (embeddings, labels) pairs."""
    result = retrieved("train", *train) | retrieved("test", *test)
    return result | {f"{name}_gap": result[f"train_{name}"] - result[f"test_{name}"] for name in METRICS}


def retrieved(side: str, embeddings: Float[np.ndarray, "N D"], labels: Int[np.ndarray, " N"]) -> dict[str, float]:
    """<side>_<metric> of every image searched among all others. Shows its progress where there are many images."""
    rows = Rows(np.arange(len(labels), dtype=np.int64), labels, embeddings)
    found = averages(per_query(rows, rows, (1,), label=f"analyze: retrieval, {side} classes" if len(labels) > SHOWN else None))
    return {f"{side}_{name}": found[name] for name in METRICS}
