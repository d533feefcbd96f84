"""The record of a run from the embeddings of its test images."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from unseen.evaluation.analysis.density import embedding_density
from unseen.evaluation.analysis.spectrum import spectral_decay, spectrum
from unseen.evaluation.counted_gallery import tile_counter
from unseen.evaluation.metrics import Rows, per_query
from unseen.evaluation.record import Record


def record_of(
    settings: dict[str, Any],
    vectors: Float32[np.ndarray, "N D"],
    labels: Int64[np.ndarray, "N"],
    names: Sequence[str],
    of_training: Mapping[str, float],
    begin: float,
) -> Record:
    """The record of N embedded test images: each is a query against all others. names: of the classes, by
    label. of_training: numbers that the embeddings do not determine. begin: of the training, in seconds of
    time.process_time. Numbers are rounded to 6 digits."""
    rows = Rows(np.arange(len(labels), dtype=np.int64), labels, vectors)
    values = per_query(rows, rows, (1,), counter=tile_counter())
    present = [int(label) for label in np.unique(labels) if (labels == label).sum() > 1]
    of_images = {"map_at_r": values.ap_at_r, "recall_at_1": values.recall[:, 0]}
    numbers = {
        "embedding_density": embedding_density(vectors, labels).ratio,
        "spectral_decay": spectral_decay(spectrum(vectors).values),
        **of_training,
    }
    return Record(
        settings=settings,
        images={names[label]: int((labels == label).sum()) for label in present},
        classes={
            metric: {names[label]: round(float(each[labels == label].mean()), 6) for label in present}
            for metric, each in of_images.items()
        },
        training={metric: round(float(value), 6) for metric, value in numbers.items()},
        cpu_seconds=round(time.process_time() - begin, 2),
    )
