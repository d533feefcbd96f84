"""The Euclidean contrastive loss agrees with pytorch-metric-learning, and is correct for duplicates;
test_pair_losses.py tests its definition."""

import pytest
import torch
from pytorch_metric_learning.losses import ContrastiveLoss
from torch.nn.functional import normalize

from tests.losses.batches import batch, duplicates
from unseen.losses.euclidean_contrastive import EuclideanContrastive

MARGINS = [(0.2652, 0.9), (0.0, 1.4), (0.0, 0.2), (0.9, 2.5)]


@pytest.mark.parametrize(("positive_margin", "negative_margin"), MARGINS)
def test_pytorch_metric_learning_agrees(positive_margin: float, negative_margin: float) -> None:
    embeddings, labels = batch(60, 12, dim=16, seed=4)
    references, reference_labels = batch(300, 30, dim=16, seed=5)
    peer = ContrastiveLoss(pos_margin=positive_margin, neg_margin=negative_margin)
    loss = EuclideanContrastive(positive_margin, negative_margin)
    for memory in ((), (references, reference_labels)):
        points, pml_points = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        value = loss(normalize(points, dim=1), labels, *memory)
        expected = peer(
            pml_points,
            labels,
            ref_emb=memory[0] if memory else None,
            ref_labels=memory[1] if memory else None,
        )
        value.backward()
        expected.backward()
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
        torch.testing.assert_close(points.grad, pml_points.grad, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_duplicates_have_distance_zero_and_no_gradient(dtype: torch.dtype) -> None:
    """As positives they add no term, as negatives they add the complete margin. The loss is never NaN."""
    copies = duplicates(4, dtype)
    value = EuclideanContrastive(0.0, 0.5)(copies, torch.tensor([0, 0, 1, 1]))
    value.backward()
    assert value == 0.5
    assert copies.grad is not None
    assert copies.grad.count_nonzero() == 0
