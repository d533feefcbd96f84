"""The record of a run against the metrics of its vectors."""

import time

import numpy as np
import pytest

from tests.vectors import unit
from unseen.evaluation.analysis.density import embedding_density
from unseen.evaluation.class_means import record_of
from unseen.evaluation.external import evaluate_vectors


def test_a_record_has_the_means_of_classes_to_six_digits() -> None:
    random, labels = np.random.default_rng(0), np.repeat([2, 0, 1, 3], [5, 3, 4, 1])
    vectors = unit(np.eye(4)[labels] + 0.6 * random.standard_normal((len(labels), 4))).astype(np.float32)
    names = ["a", "b", "c", "alone"]
    record = record_of({"seed": 1}, vectors, labels, names, {"loss": 0.1234567}, time.process_time())
    assert record.settings == {"seed": 1}
    assert record.images == {"a": 3, "b": 4, "c": 5}
    assert record.training["loss"] == 0.123457
    density = embedding_density(vectors, labels).ratio
    assert record.training["embedding_density"] == pytest.approx(density, abs=1e-6)
    metrics = evaluate_vectors(vectors, labels, recall_at=(1,))
    for metric in ("map_at_r", "recall_at_1"):
        assert record.mean(metric) == pytest.approx(metrics[metric], abs=1e-6)
    of_class = {}
    for name, label in (("a", 0), ("b", 1), ("c", 2)):
        own = np.flatnonzero(labels == label)
        similarities = vectors @ vectors.T - 2 * np.eye(len(labels))
        nearest = np.argsort(-similarities[own], axis=1)[:, : len(own) - 1]
        right = labels[nearest] == label
        precision = np.cumsum(right, 1) / np.arange(1, len(own))
        of_class[name] = (precision * right).sum(1).mean() / (len(own) - 1)
    assert record.classes["map_at_r"] == pytest.approx(of_class, abs=1e-6)
    assert 0 < min(of_class.values()) < max(of_class.values()) < 1
