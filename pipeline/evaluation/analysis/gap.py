"""The train-test gap: the difference in retrieval between training classes and unseen classes.

    gap(metric) = metric(train classes) - metric(test classes)

Each metric is retrieval within one set, with the same exact search and the same definitions. A set with fewer
classes or images is easier, so the gap compares methods on one data set; between data sets it also depends on
their sizes. The train set includes the validation classes (a share `training.validation_share`), on which no
gradient was computed. So the gap relative to the classes with gradients is a little wider.
"""

import numpy as np
from jaxtyping import Float, Int

from unseen.evaluation.counted_gallery import tile_counter
from unseen.evaluation.metrics import quick_metrics

METRICS = ("recall_at_1", "map_at_r", "r_precision")
PROGRESS_FROM = 20_000  # images; fewer take less than several seconds on one core


def train_test_gap(
    train: tuple[Float[np.ndarray, "N D"], Int[np.ndarray, " N"]],
    test: tuple[Float[np.ndarray, "M D"], Int[np.ndarray, " M"]],
) -> dict[str, float]:
    """train_<metric>, test_<metric> and <metric>_gap of (embeddings, labels) pairs."""
    result = retrieved("train", *train) | retrieved("test", *test)
    return result | {f"{name}_gap": result[f"train_{name}"] - result[f"test_{name}"] for name in METRICS}


def retrieved(
    side: str, embeddings: Float[np.ndarray, "N D"], labels: Int[np.ndarray, " N"]
) -> dict[str, float]:
    """<side>_<metric> with every image as a query in all other images. Shows progress for many images."""
    label = f"analyze: retrieval, {side} classes" if len(labels) > PROGRESS_FROM else None
    values = quick_metrics(embeddings, labels, label=label, counter=tile_counter())
    return {f"{side}_{name}": values[name] for name in METRICS}
