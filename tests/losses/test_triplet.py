"""The triplet loss against every triplet written out, against pytorch-metric-learning, and where there is no triplet."""

import pytest
import torch
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.miners import TripletMarginMiner
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.losses import triplet as module
from pipeline.losses.memory import CrossBatchMemory
from pipeline.losses.triplet import MININGS, Triplet
from tests.oracles import euclidean_losses as oracle


def batch(count: int, classes: int, dim: int = 6, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (count,), generator=generator)
    centres = torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    return normalize(centres[labels] + 0.8 * torch.randn(count, dim, generator=generator, dtype=torch.float64), dim=1), labels


@pytest.mark.parametrize("margin", [0.0451, 0.2, 1.5])
@pytest.mark.parametrize("mining", MININGS)
@pytest.mark.parametrize("elements", [1 << 18, 40])
def test_value_and_gradient_are_those_of_the_definition(margin: float, mining: str, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS", 1)
    monkeypatch.setattr(module, "_CPU_ELEMENTS", elements)  # 40: blocks of three anchors
    embeddings, labels = batch(12, 3)
    ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
    value = Triplet(margin, mining)(ours, labels)
    expected = oracle.triplet(theirs, labels.tolist(), margin=margin, mining=mining)
    value.backward()
    expected.backward()
    assert expected > 0
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("mining", MININGS)
@pytest.mark.parametrize("with_self", [True, False])
def test_references_receive_their_gradient_and_an_anchor_is_left_out_by_index(mining: str, with_self: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS", 1)
    monkeypatch.setattr(module, "_CPU_ELEMENTS", 80)
    embeddings, labels = batch(7, 3)
    references, reference_labels = batch(19, 5, seed=1)
    references = torch.cat([references[:12], embeddings, references[12:]])
    reference_labels = torch.cat([reference_labels[:12], labels, reference_labels[12:]])
    self_index = torch.arange(12, 19) if with_self else None
    ours = [embeddings.clone().requires_grad_(), references.clone().requires_grad_()]
    theirs = [embeddings.clone().requires_grad_(), references.clone().requires_grad_()]
    value = Triplet(0.3, mining)(ours[0], labels, ours[1], reference_labels, self_index)
    index = None if self_index is None else self_index.tolist()
    expected = oracle.triplet(theirs[0], labels.tolist(), theirs[1], reference_labels.tolist(), index, margin=0.3, mining=mining)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("mining", MININGS)
def test_gradcheck(mining: str) -> None:
    embeddings, labels = batch(9, 3, seed=2)
    references, reference_labels = batch(7, 3, seed=3)
    loss = Triplet(0.4, mining)
    assert torch.autograd.gradcheck(lambda e: loss(e, labels), embeddings.requires_grad_())
    assert torch.autograd.gradcheck(lambda e, r: loss(e, labels, r, reference_labels), (embeddings, references.requires_grad_()))


@pytest.mark.parametrize("mining", MININGS)
def test_pytorch_metric_learning_agrees(mining: str) -> None:
    embeddings, labels = batch(60, 12, dim=16, seed=4)
    references, reference_labels = batch(200, 30, dim=16, seed=5)
    peer, miner = TripletMarginLoss(margin=0.1), TripletMarginMiner(margin=0.1, type_of_triplets=mining)
    for memory in ({}, {"ref_emb": references, "ref_labels": reference_labels}):
        ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        value = Triplet(0.1, mining)(normalize(ours, dim=1), labels, *memory.values())
        expected = peer(theirs, labels, miner(theirs, labels, **memory), **memory)
        value.backward()
        expected.backward()
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-8)


def test_semihard_leaves_out_the_hard_triplet() -> None:
    """Anchor, positive at 1, negatives at 0.9 (hard), 1.1 (semihard) and 1.3 (easy) of a margin of 0.2."""
    anchor, references = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[1.0], [0.9], [1.1], [1.3]], dtype=torch.float64)
    labels, reference_labels = torch.tensor([0]), torch.tensor([0, 1, 1, 1])
    every, semihard = (Triplet(0.2, mining)(anchor, labels, references, reference_labels).item() for mining in MININGS)
    assert every == pytest.approx((0.3 + 0.1) / 2)
    assert semihard == pytest.approx(0.1)


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
    assert (single.grad - exact.grad).norm() < 1e-3 * exact.grad.norm()  # a triplet on the edge may fall on either side


def test_triplets_are_never_written_down() -> None:
    """Half of the batch is of one class: 64 positives an anchor, 524,288 triplets."""

    class Largest(TorchDispatchMode):
        numel = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                self.numel = max(self.numel, result.numel())
            return result

    embeddings, _ = batch(128, 2)
    embeddings.requires_grad_()
    labels = torch.cat([torch.zeros(64, dtype=torch.int64), torch.arange(1, 65)])
    with Largest() as largest:
        Triplet(0.2, "all")(embeddings, labels).backward()
    assert largest.numel <= 128 * 128


def test_the_batch_in_its_memory_is_the_batch_against_itself() -> None:
    embeddings, labels = batch(8, 3, seed=6)
    memory = CrossBatchMemory(8, 6).double()
    places = memory.enqueue(embeddings, labels)
    loss = Triplet(0.5, "semihard")
    torch.testing.assert_close(loss(embeddings, labels, *memory.valid(), places), loss(embeddings, labels))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_duplicates_are_at_no_distance_and_have_no_gradient(dtype: torch.dtype) -> None:
    picture = normalize(torch.randn(1, 100, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), dim=1).to(dtype)
    copies = picture.repeat(4, 1).requires_grad_()
    value = Triplet(0.25, "all")(copies, torch.tensor([0, 0, 1, 1]))
    value.backward()
    assert value == 0.25
    assert copies.grad is not None
    assert copies.grad.count_nonzero() == 0
    assert Triplet(0.25, "semihard")(copies, torch.tensor([0, 0, 1, 1])) == 0


def degenerate(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    embeddings, _ = batch(8, 2, seed=7)
    if kind == "no positives":
        return embeddings, torch.arange(8)
    if kind == "one class, so no negatives":
        return embeddings, torch.zeros(8, dtype=torch.int64)
    if kind == "one image":
        return embeddings[:1], torch.tensor([3])
    if kind == "half of the batch of one class":
        return embeddings, torch.tensor([0, 0, 0, 0, 1, 2, 3, 3])
    return torch.eye(8, dtype=torch.float64)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1])  # every positive at 0, every negative far


@pytest.mark.parametrize("mining", MININGS)
@pytest.mark.parametrize(
    "kind", ["no positives", "one class, so no negatives", "one image", "half of the batch of one class", "nothing costs anything"]
)
def test_degenerate_batches(kind: str, mining: str) -> None:
    embeddings, labels = degenerate(kind)
    embeddings = embeddings.clone().requires_grad_()
    value = Triplet(0.4, mining)(embeddings, labels)
    value.backward()
    expected = oracle.triplet(embeddings.detach(), labels.tolist(), margin=0.4, mining=mining)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    assert embeddings.grad is not None
    assert embeddings.grad.isfinite().all()
    if kind != "half of the batch of one class":
        assert value == 0
        assert embeddings.grad.count_nonzero() == 0


def test_an_empty_memory_costs_nothing() -> None:
    embeddings, labels = batch(4, 2)
    assert Triplet(0.2, "all")(embeddings, labels, embeddings[:0], labels[:0]) == 0


def test_order_of_batch_and_memory_and_rotation_change_nothing() -> None:
    embeddings, labels = batch(12, 4, seed=8)
    references, reference_labels = batch(30, 4, seed=9)
    loss = Triplet(0.3, "semihard")
    value = loss(embeddings, labels, references, reference_labels)
    generator = torch.Generator().manual_seed(0)
    order, other = torch.randperm(12, generator=generator), torch.randperm(30, generator=generator)
    rotation = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64, generator=generator)).Q
    torch.testing.assert_close(loss(embeddings[order], labels[order], references[other], reference_labels[other]), value)
    torch.testing.assert_close(loss(embeddings @ rotation, labels, references @ rotation, reference_labels), value)


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="all, semihard"):
        Triplet(0.1, "hard")
    with pytest.raises(ValueError, match="positive margin"):
        Triplet(0.0, "semihard")
