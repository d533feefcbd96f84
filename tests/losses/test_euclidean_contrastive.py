"""The Euclidean contrastive loss against its definition, against a memory in blocks, and where a set of pairs is empty."""

import pytest
import torch
from pytorch_metric_learning.losses import ContrastiveLoss
from torch.nn.functional import normalize

from pipeline.losses import euclidean_contrastive as module
from pipeline.losses.euclidean_contrastive import EuclideanContrastive
from pipeline.losses.memory import CrossBatchMemory
from tests.oracles import euclidean_losses as oracle

MARGINS = [(0.2652, 0.9), (0.0, 1.4), (0.0, 0.2), (0.9, 2.5)]


def batch(count: int, classes: int, dim: int = 6, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (count,), generator=generator)
    centres = torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    return normalize(centres[labels] + 0.8 * torch.randn(count, dim, generator=generator, dtype=torch.float64), dim=1), labels


@pytest.mark.parametrize(("positive_margin", "negative_margin"), MARGINS)
@pytest.mark.parametrize("elements", [1 << 18, 40])
def test_value_and_gradient_are_those_of_the_definition(
    positive_margin: float, negative_margin: float, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CPU_ELEMENTS", elements)  # 40: blocks of four references
    embeddings, labels = batch(10, 4)
    ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
    value = EuclideanContrastive(positive_margin, negative_margin)(ours, labels)
    expected = oracle.contrastive(theirs, labels.tolist(), positive_margin=positive_margin, negative_margin=negative_margin)
    value.backward()
    expected.backward()
    assert expected > 0
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("elements", [1 << 18, 40, 1])
@pytest.mark.parametrize("with_self", [True, False])
def test_a_memory_in_blocks_of_any_size(elements: int, with_self: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CPU_ELEMENTS", elements)
    embeddings, labels = batch(7, 3)
    references, reference_labels = batch(25, 6, seed=1)
    references = torch.cat([references[:12], embeddings, references[12:]])
    reference_labels = torch.cat([reference_labels[:12], labels, reference_labels[12:]])
    self_index = torch.arange(12, 19) if with_self else None
    ours = [embeddings.clone().requires_grad_(), references.clone().requires_grad_()]
    theirs = [embeddings.clone().requires_grad_(), references.clone().requires_grad_()]
    value = EuclideanContrastive(0.1, 1.2)(ours[0], labels, ours[1], reference_labels, self_index)
    index = None if self_index is None else self_index.tolist()
    expected = oracle.contrastive(theirs[0], labels.tolist(), theirs[1], reference_labels.tolist(), index, positive_margin=0.1, negative_margin=1.2)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-10, atol=1e-13)


def test_gradcheck() -> None:
    embeddings, labels = batch(9, 3, seed=2)
    references, reference_labels = batch(7, 3, seed=3)
    loss = EuclideanContrastive(0.3, 1.1)
    assert torch.autograd.gradcheck(lambda e: loss(e, labels), embeddings.requires_grad_())
    assert torch.autograd.gradcheck(lambda e, r: loss(e, labels, r, reference_labels), (embeddings, references.requires_grad_()))


@pytest.mark.parametrize(("positive_margin", "negative_margin"), MARGINS)
def test_pytorch_metric_learning_agrees(positive_margin: float, negative_margin: float) -> None:
    embeddings, labels = batch(60, 12, dim=16, seed=4)
    references, reference_labels = batch(300, 30, dim=16, seed=5)
    peer = ContrastiveLoss(pos_margin=positive_margin, neg_margin=negative_margin)
    loss = EuclideanContrastive(positive_margin, negative_margin)
    for memory in ((), (references, reference_labels)):
        ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        value = loss(normalize(ours, dim=1), labels, *memory)
        expected = peer(theirs, labels, ref_emb=memory[0] if memory else None, ref_labels=memory[1] if memory else None)
        value.backward()
        expected.backward()
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-8)


def test_the_batch_in_its_memory_is_the_batch_against_itself() -> None:
    embeddings, labels = batch(8, 3, seed=6)
    memory = CrossBatchMemory(8, 6).double()
    places = memory.enqueue(embeddings, labels)
    loss = EuclideanContrastive(0.0, 1.2)
    torch.testing.assert_close(loss(embeddings, labels, *memory.valid(), places), loss(embeddings, labels))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_duplicates_are_at_no_distance_and_have_no_gradient(dtype: torch.dtype) -> None:
    """As positives they are no term, as negatives they cost the whole margin; never a NaN."""
    picture = normalize(torch.randn(1, 100, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), dim=1).to(dtype)
    copies = picture.repeat(4, 1).requires_grad_()
    value = EuclideanContrastive(0.0, 0.5)(copies, torch.tensor([0, 0, 1, 1]))
    value.backward()
    assert value == 0.5
    assert copies.grad is not None
    assert copies.grad.count_nonzero() == 0


def lonely(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    embeddings, _ = batch(8, 2, seed=7)
    if kind == "no positives":
        return embeddings, torch.arange(8)
    if kind == "one class, so no negatives":
        return embeddings, torch.zeros(8, dtype=torch.int64)
    if kind == "one image":
        return embeddings[:1], torch.tensor([3])
    if kind == "half of the batch of one class":
        return embeddings, torch.tensor([0, 0, 0, 0, 1, 2, 3, 3])
    return torch.eye(8, dtype=torch.float64)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1])  # no pair inside its margin


KINDS = ["no positives", "one class, so no negatives", "one image", "half of the batch of one class", "nothing costs anything"]


@pytest.mark.parametrize("kind", KINDS)
def test_degenerate_batches(kind: str) -> None:
    embeddings, labels = lonely(kind)
    embeddings = embeddings.clone().requires_grad_()
    value = EuclideanContrastive(0.1, 1.3)(embeddings, labels)
    value.backward()
    expected = oracle.contrastive(embeddings.detach(), labels.tolist(), positive_margin=0.1, negative_margin=1.3)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    assert embeddings.grad is not None
    assert embeddings.grad.isfinite().all()
    if kind in ("one image", "nothing costs anything"):
        assert value == 0
        assert embeddings.grad.count_nonzero() == 0


def test_an_empty_memory_costs_nothing() -> None:
    embeddings, labels = batch(4, 2)
    assert EuclideanContrastive(0.0, 1.0)(embeddings, labels, embeddings[:0], labels[:0]) == 0


def test_order_of_batch_and_memory_and_rotation_change_nothing() -> None:
    embeddings, labels = batch(12, 4, seed=8)
    references, reference_labels = batch(30, 4, seed=9)
    loss = EuclideanContrastive(0.1, 1.2)
    value = loss(embeddings, labels, references, reference_labels)
    generator = torch.Generator().manual_seed(0)
    order, other = torch.randperm(12, generator=generator), torch.randperm(30, generator=generator)
    rotation = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64, generator=generator)).Q
    torch.testing.assert_close(loss(embeddings[order], labels[order], references[other], reference_labels[other]), value)
    torch.testing.assert_close(loss(embeddings @ rotation, labels, references @ rotation, reference_labels), value)
