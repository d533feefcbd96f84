"""Multi-similarity agrees with pytorch-metric-learning, and is correct for duplicates and steep slopes;
test_pair_losses.py tests its definition."""

import pytest
import torch
from pytorch_metric_learning.losses import MultiSimilarityLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner
from torch.nn.functional import normalize

from tests.losses.batches import batch
from tests.oracles import losses as oracle
from unseen.losses.multi_similarity import MultiSimilarity

PUBLISHED = {"alpha": 2.0, "beta": 40.0, "threshold": 0.5, "mining_margin": 0.1}
STEEP = {
    "alpha": 300.0,
    "beta": 500.0,
    "threshold": -0.3,
    "mining_margin": 0.05,
}  # e^400 would overflow any precision


@pytest.mark.parametrize("size", [40, 180])
def test_pytorch_metric_learning_agrees(size: int) -> None:
    embeddings, labels = batch(size, size // 5, dim=32, spread=2.5)
    points, pml_points = (embeddings.float().requires_grad_() for _ in range(2))
    value = MultiSimilarity(**PUBLISHED)(normalize(points, dim=1), labels)
    peer = MultiSimilarityLoss(alpha=2, beta=40, base=0.5)
    expected = peer(pml_points, labels, MultiSimilarityMiner(epsilon=0.1)(pml_points, labels))
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(points.grad, pml_points.grad, rtol=1e-4, atol=1e-6)


def test_one_positive_and_one_negative_give_two_softplus_terms() -> None:
    angle = torch.tensor([0.0, 0.7, 1.3], dtype=torch.float64)
    embeddings = torch.stack([angle.cos(), angle.sin()], 1)
    loss = MultiSimilarity(2.0, 40.0, 0.5, None)(
        embeddings[:1], torch.tensor([0]), embeddings[1:], torch.tensor([0, 1])
    )
    softplus = torch.nn.functional.softplus
    expected = softplus(-2 * (angle[1].cos() - 0.5)) / 2 + softplus(40 * (angle[2].cos() - 0.5)) / 40
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("margin", [0.1, None])
def test_duplicates_are_not_positives(margin: float | None) -> None:
    embeddings, labels = batch(6, 2, seed=4)
    embeddings = torch.cat([embeddings, embeddings[:1]])
    labels = torch.cat([labels, labels[:1]])
    setting = {**PUBLISHED, "mining_margin": margin}
    value = MultiSimilarity(**setting)(embeddings, labels)
    torch.testing.assert_close(
        value, oracle.multi_similarity(embeddings, labels.tolist(), **setting), rtol=1e-12, atol=0
    )
    # a picture and its copy: no positive, no negative
    only = MultiSimilarity(**setting)(embeddings[[0, 6]], labels[[0, 6]])
    assert only == 0


def test_steep_slopes_do_not_overflow_single_precision() -> None:
    embeddings, labels = batch(14, 4)
    value = MultiSimilarity(**STEEP)(embeddings.float(), labels)
    torch.testing.assert_close(
        value.double(), oracle.multi_similarity(embeddings, labels.tolist(), **STEEP), rtol=1e-5, atol=0
    )
