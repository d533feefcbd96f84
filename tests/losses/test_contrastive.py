"""The contrastive loss agrees with pytorch-metric-learning, and is correct for duplicates;
test_pair_losses.py tests its definition."""

import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.losses import ContrastiveLoss
from pytorch_metric_learning.reducers import SumReducer
from torch.nn.functional import normalize

from tests.losses.batches import batch
from unseen.losses.contrastive import Contrastive


def test_pytorch_metric_learning_agrees_on_a_memory() -> None:
    embeddings, labels = batch(20, 10, dim=32, seed=4)
    references, reference_labels = batch(3000, 50, dim=32, seed=5)
    points, pml_points = (embeddings.float().requires_grad_() for _ in range(2))
    value = Contrastive(0.5)(normalize(points, dim=1), labels, references.float(), reference_labels)
    peer = ContrastiveLoss(pos_margin=1, neg_margin=0.5, distance=CosineSimilarity(), reducer=SumReducer())
    expected = peer(pml_points, labels, ref_emb=references.float(), ref_labels=reference_labels) / 20
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(points.grad, pml_points.grad, rtol=1e-4, atol=1e-5)


def test_a_duplicate_has_no_gradient_along_the_sphere() -> None:
    embeddings, labels = batch(1, 1, seed=7)
    raw = torch.cat([embeddings, embeddings]).requires_grad_()
    value = Contrastive(0.5)(normalize(raw, dim=1), torch.cat([labels, labels]))
    value.backward()
    assert abs(value.item()) < 1e-15
    torch.testing.assert_close(raw.grad, torch.zeros_like(raw), rtol=0, atol=1e-15)
