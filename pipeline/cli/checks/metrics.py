"""The properties of metrics."""

import numpy as np

from unseen.cli.checks.common import require
from unseen.evaluation.evaluate import values_of
from unseen.evaluation.metrics import Rows, per_query
from unseen.evaluation.settings import OutsideMetric

_CLASSES, _IMAGES, _DIM = 6, 5, 8


def values(settings: OutsideMetric) -> None:
    """Each query has a value, which is finite if the query has a match, and two calls are equal."""
    first, second = (values_of("NAME", settings, per_query(*_sides())) for _ in range(2))
    require(np.array_equal(first, second, equal_nan=True), "Two calls differ.", "Draw nothing at random.")


def each_query(settings: OutsideMetric) -> None:
    """The value of a query does not depend on the other queries."""
    queries, gallery, recall_at = _sides()
    of_all = values_of("NAME", settings, per_query(queries, gallery, recall_at))
    part = Rows(*(column[::3] for column in queries))
    of_some = values_of("NAME", settings, per_query(part, gallery, recall_at))
    what = "The values of queries in two files differ."
    require(np.array_equal(of_all[::3], of_some, equal_nan=True), what, "Compute each row from its own row.")


def _sides() -> tuple[Rows, Rows, tuple[int, ...]]:
    """Vectors of classes of five images, and an image without another one of its class."""
    generator = np.random.default_rng(0)
    labels = np.append(np.repeat(np.arange(_CLASSES), _IMAGES), _CLASSES)
    centres = generator.normal(size=(_CLASSES + 1, _DIM))
    vectors = centres[labels] + generator.normal(size=(len(labels), _DIM))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    rows = Rows(np.arange(len(labels)), labels, vectors)
    return rows, rows, (1, 2)
