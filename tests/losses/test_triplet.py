"""The triplet loss agrees with pytorch-metric-learning, needs little memory, and is correct for duplicates;
test_pair_losses.py tests its definition."""

import pytest
import torch
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.miners import TripletMarginMiner
from torch.nn.functional import normalize

from tests.losses.batches import Largest, batch, duplicates
from unseen.losses.triplet import MININGS, Triplet


@pytest.mark.parametrize("mining", MININGS)
def test_pytorch_metric_learning_agrees(mining: str) -> None:
    embeddings, labels = batch(60, 12, dim=16, seed=4)
    references, reference_labels = batch(200, 30, dim=16, seed=5)
    peer, miner = TripletMarginLoss(margin=0.1), TripletMarginMiner(margin=0.1, type_of_triplets=mining)
    for memory in ({}, {"ref_emb": references, "ref_labels": reference_labels}):
        points, pml_points = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        value = Triplet(0.1, mining)(normalize(points, dim=1), labels, *memory.values())
        expected = peer(pml_points, labels, miner(pml_points, labels, **memory), **memory)
        value.backward()
        expected.backward()
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
        torch.testing.assert_close(points.grad, pml_points.grad, rtol=1e-5, atol=1e-8)


def test_semihard_omits_the_hard_triplet() -> None:
    """Anchor, positive at 1, negatives at 0.9 (hard), 1.1 (semihard) and 1.3 (easy), with a margin of 0.2."""
    anchor, references = (
        torch.zeros(1, 1, dtype=torch.float64),
        torch.tensor([[1.0], [0.9], [1.1], [1.3]], dtype=torch.float64),
    )
    labels, reference_labels = torch.tensor([0]), torch.tensor([0, 1, 1, 1])
    all_loss, semihard_loss = (
        Triplet(0.2, mining)(anchor, labels, references, reference_labels).item() for mining in MININGS
    )
    assert all_loss == pytest.approx((0.3 + 0.1) / 2)
    assert semihard_loss == pytest.approx(0.1)


def test_single_precision_is_close_to_double() -> None:
    embeddings, labels = batch(200, 20, dim=32, seed=6)
    exact, single = embeddings.clone().requires_grad_(), embeddings.float().requires_grad_()
    loss = Triplet(0.1, "all")
    expected, value = loss(exact, labels), loss(single, labels)
    expected.backward()
    value.backward()
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=0)
    assert single.grad is not None
    assert exact.grad is not None
    # rounding may move a triplet across the margin
    assert (single.grad - exact.grad).norm() < 1e-3 * exact.grad.norm()


def test_never_stores_all_triplets() -> None:
    """Half of the batch is of one class: 64 positives per anchor, 524,288 triplets."""

    embeddings, _ = batch(128, 2)
    embeddings.requires_grad_()
    labels = torch.cat([torch.zeros(64, dtype=torch.int64), torch.arange(1, 65)])
    with Largest() as largest:
        Triplet(0.2, "all")(embeddings, labels).backward()
    assert largest.numel <= 128 * 128


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_duplicates_have_distance_zero_and_no_gradient(dtype: torch.dtype) -> None:
    copies = duplicates(4, dtype)
    value = Triplet(0.25, "all")(copies, torch.tensor([0, 0, 1, 1]))
    value.backward()
    assert value == 0.25
    assert copies.grad is not None
    assert copies.grad.count_nonzero() == 0
    assert Triplet(0.25, "semihard")(copies, torch.tensor([0, 0, 1, 1])) == 0


def test_refuses_invalid_settings() -> None:
    with pytest.raises(ValueError, match="all, semihard"):
        Triplet(0.1, "hard")
    with pytest.raises(ValueError, match="positive margin"):
        Triplet(0.0, "semihard")
