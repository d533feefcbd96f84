"""Other libraries where they define the same thing, on rankings without ties: pytorch-metric-learning,
torchmetrics, scikit-learn, FAISS."""

import numpy as np
import pytest

from pipeline.evaluation.metrics import PerQuery, Rows, per_query, quick_metrics
from pipeline.index.exact import exact_search


def unit(x: np.ndarray) -> np.ndarray:
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def clusters(count: int, classes: int, dim: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(dim)
    labels = generator.integers(0, classes, count)
    labels[:4] = np.arange(500, 504)  # alone
    return unit(np.eye(dim)[labels % dim] + noise * generator.standard_normal((count, dim))), labels


def whole(embeddings: np.ndarray, labels: np.ndarray) -> PerQuery:
    table = Rows(np.arange(len(labels)), labels, embeddings)
    return per_query(table, table, (1, 4), full_ranking=True)


def scores_without_self(embeddings: np.ndarray, query: int) -> np.ndarray:
    return np.delete(embeddings.astype(np.float64) @ embeddings[query].astype(np.float64), query)


@pytest.mark.parametrize("dim", [3, 16, 64])
def test_pytorch_metric_learning(dim: int) -> None:
    """Precision at 1, R-precision, MAP@R; lone queries are left out there too."""
    import torch
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    embeddings, labels = clusters(900, 120, dim, 0.5)
    calculator = AccuracyCalculator(
        include=("precision_at_1", "r_precision", "mean_average_precision_at_r"),
        k="max_bin_count",
        device=torch.device("cpu"),
    )
    theirs = calculator.get_accuracy(
        torch.from_numpy(embeddings), torch.from_numpy(labels), ref_includes_query=True
    )
    ours = quick_metrics(embeddings, labels)
    assert ours["recall_at_1"] == pytest.approx(theirs["precision_at_1"], abs=1e-9)
    assert ours["r_precision"] == pytest.approx(theirs["r_precision"], abs=1e-6)
    assert ours["map_at_r"] == pytest.approx(theirs["mean_average_precision_at_r"], abs=1e-6)


def test_scikit_learn_average_precision() -> None:
    from sklearn.metrics import average_precision_score

    embeddings, labels = clusters(300, 40, 24, 0.5)
    result = whole(embeddings, labels)
    assert result.ap is not None
    for query in range(4, 300, 5):
        relevant = np.delete(labels == labels[query], query)
        assert result.relevant[query] == relevant.sum()
        if relevant.any():
            theirs = average_precision_score(relevant, scores_without_self(embeddings, query))
            assert result.ap[query] == pytest.approx(theirs, abs=1e-9)


def test_torchmetrics_one_query_at_a_time() -> None:
    """Average precision, R-precision and hit rate, of scores made positive: it takes whatever scores 0 or
    less for irrelevant."""
    import torch

    from pipeline.models.torchvision_guard import ensure_torchvision

    ensure_torchvision()  # which torchmetrics imports
    from torchmetrics.functional.retrieval import (
        retrieval_average_precision,
        retrieval_hit_rate,
        retrieval_r_precision,
    )

    embeddings, labels = clusters(200, 30, 24, 0.5)
    result = whole(embeddings, labels)
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
    assert lowered > 0  # cosines as they are give another number


def test_faiss_contrib_takes_the_lists_up_to_draws() -> None:
    from faiss.contrib.evaluation import check_ref_knn_with_draws

    generator = np.random.default_rng(0)
    gallery, queries = (
        unit(np.sign(generator.standard_normal((400, 9)))),
        unit(np.sign(generator.standard_normal((50, 9)))),
    )
    found, similarities = exact_search(queries, np.arange(1000, 1050), gallery, np.arange(400), 12)
    products = queries.astype(np.float64) @ gallery.T.astype(np.float64)
    reference = np.argsort(-products, axis=1, kind="stable")[:, :12]
    check_ref_knn_with_draws(
        np.take_along_axis(products, reference, axis=1).astype(np.float32), reference, similarities, found
    )
