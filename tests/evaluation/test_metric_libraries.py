"""Other libraries with the same definition agree on rankings without ties: pytorch-metric-learning,
torchmetrics, scikit-learn, FAISS."""

import numpy as np
import pytest

from tests.vectors import unit
from unseen.evaluation.index.exact import exact_search
from unseen.evaluation.metrics import PerQuery, Rows, per_query, quick_metrics


def clusters(count: int, classes: int, dim: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(dim)
    labels = generator.integers(0, classes, count)
    labels[:4] = np.arange(500, 504)  # classes of one image
    return unit(np.eye(dim)[labels % dim] + noise * generator.standard_normal((count, dim))), labels


def per_query_of(embeddings: np.ndarray, labels: np.ndarray) -> PerQuery:
    table = Rows(np.arange(len(labels)), labels, embeddings)
    return per_query(table, table, (1, 4), full_ranking=True)


def scores_without_self(embeddings: np.ndarray, query: int) -> np.ndarray:
    return np.delete(embeddings.astype(np.float64) @ embeddings[query].astype(np.float64), query)


@pytest.mark.parametrize("dim", [3, 16, 64])
def test_pytorch_metric_learning(dim: int) -> None:
    """Precision at 1, R-precision and MAP@R; both exclude lone queries."""
    import torch
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    embeddings, labels = clusters(900, 120, dim, 0.5)
    calculator = AccuracyCalculator(
        include=("precision_at_1", "r_precision", "mean_average_precision_at_r"),
        k="max_bin_count",
        device=torch.device("cpu"),
    )
    pml_accuracy = calculator.get_accuracy(
        torch.from_numpy(embeddings), torch.from_numpy(labels), ref_includes_query=True
    )
    metrics = quick_metrics(embeddings, labels)
    assert metrics["recall_at_1"] == pytest.approx(pml_accuracy["precision_at_1"], abs=1e-9)
    assert metrics["r_precision"] == pytest.approx(pml_accuracy["r_precision"], abs=1e-6)
    assert metrics["map_at_r"] == pytest.approx(pml_accuracy["mean_average_precision_at_r"], abs=1e-6)


def test_scikit_learn_average_precision() -> None:
    from sklearn.metrics import average_precision_score

    embeddings, labels = clusters(300, 40, 24, 0.5)
    result = per_query_of(embeddings, labels)
    assert result.ap is not None
    for query in range(4, 300, 5):
        relevant = np.delete(labels == labels[query], query)
        assert result.relevant[query] == relevant.sum()
        if relevant.any():
            sklearn_score = average_precision_score(relevant, scores_without_self(embeddings, query))
            assert result.ap[query] == pytest.approx(sklearn_score, abs=1e-9)


@pytest.mark.slow
def test_torchmetrics_one_query_at_a_time() -> None:
    """Average precision, R-precision and hit rate of positive scores: torchmetrics treats rows with scores of
    at most 0 as irrelevant."""
    import torch

    from unseen.networks.torchvision_guard import ensure_torchvision

    ensure_torchvision()  # torchmetrics imports it
    from torchmetrics.functional.retrieval import (
        retrieval_average_precision,
        retrieval_hit_rate,
        retrieval_r_precision,
    )

    embeddings, labels = clusters(200, 30, 24, 0.5)
    result = per_query_of(embeddings, labels)
    assert result.ap is not None
    lowered = 0
    for query in range(4, 200, 7):
        relevant = torch.from_numpy(np.delete(labels == labels[query], query))
        if not relevant.any():
            continue
        cosine = torch.from_numpy(scores_without_self(embeddings, query))
        assert result.ap[query] == pytest.approx(
            float(retrieval_average_precision(cosine + 2, relevant)), abs=1e-6
        )
        assert result.r_precision[query] == pytest.approx(
            float(retrieval_r_precision(cosine + 2, relevant)), abs=1e-6
        )
        assert result.recall[query].tolist() == [
            float(retrieval_hit_rate(cosine + 2, relevant, top_k=k)) for k in (1, 4)
        ]
        lowered += abs(float(retrieval_average_precision(cosine, relevant)) - result.ap[query]) > 1e-3
    assert lowered > 0  # negative cosines change the result


def test_faiss_contrib_agrees_with_the_lists_up_to_ties() -> None:
    from faiss.contrib.evaluation import check_ref_knn_with_draws

    generator = np.random.default_rng(0)
    gallery, queries = (
        unit(np.sign(generator.standard_normal((400, 9)))),
        unit(np.sign(generator.standard_normal((50, 9)))),
    )
    neighbours, similarities = exact_search(queries, np.arange(1000, 1050), gallery, np.arange(400), 12)
    products = queries.astype(np.float64) @ gallery.T.astype(np.float64)
    reference = np.argsort(-products, axis=1, kind="stable")[:, :12]
    check_ref_knn_with_draws(
        np.take_along_axis(products, reference, axis=1).astype(np.float32),
        reference,
        similarities,
        neighbours,
    )
