"""The Euclidean contrastive loss against pytorch-metric-learning, and on duplicates; its definition is in
test_pair_losses.py."""

import pytest
import torch
from pytorch_metric_learning.losses import ContrastiveLoss
from torch.nn.functional import normalize

from pipeline.losses.euclidean_contrastive import EuclideanContrastive
from tests.losses.batches import batch

MARGINS = [(0.2652, 0.9), (0.0, 1.4), (0.0, 0.2), (0.9, 2.5)]


@pytest.mark.parametrize(("positive_margin", "negative_margin"), MARGINS)
def test_pytorch_metric_learning_agrees(positive_margin: float, negative_margin: float) -> None:
    embeddings, labels = batch(60, 12, dim=16, seed=4)
    references, reference_labels = batch(300, 30, dim=16, seed=5)
    peer = ContrastiveLoss(pos_margin=positive_margin, neg_margin=negative_margin)
    loss = EuclideanContrastive(positive_margin, negative_margin)
    for memory in ((), (references, reference_labels)):
        ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        value = loss(normalize(ours, dim=1), labels, *memory)
        expected = peer(
            theirs, labels, ref_emb=memory[0] if memory else None, ref_labels=memory[1] if memory else None
        )
        value.backward()
        expected.backward()
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_duplicates_are_at_no_distance_and_have_no_gradient(dtype: torch.dtype) -> None:
    """As positives they are no term, as negatives they cost the whole margin; never a NaN."""
    picture = normalize(
        torch.randn(1, 100, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), dim=1
    ).to(dtype)
    copies = picture.repeat(4, 1).requires_grad_()
    value = EuclideanContrastive(0.0, 0.5)(copies, torch.tensor([0, 0, 1, 1]))
    value.backward()
    assert value == 0.5
    assert copies.grad is not None
    assert copies.grad.count_nonzero() == 0
