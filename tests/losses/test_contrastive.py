"""The contrastive loss against its definition, against a memory in blocks, and where a set of pairs is empty."""

from typing import Any

import pytest
import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.losses import ContrastiveLoss
from pytorch_metric_learning.reducers import SumReducer
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.losses import contrastive as module
from pipeline.losses.contrastive import Contrastive
from pipeline.losses.memory import CrossBatchMemory
from pipeline.losses.multi_similarity import MultiSimilarity
from tests.oracles import losses as oracle


def batch(count: int, classes: int, dim: int = 6, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (count,), generator=generator)
    return normalize(torch.randn(count, dim, generator=generator, dtype=torch.float64) + 0.5, dim=1), labels


@pytest.mark.parametrize("margin", [0.5, -0.2, 0.99])
@pytest.mark.parametrize("elements", [1 << 18, 40])
def test_value_and_gradient_are_those_of_the_definition(margin: float, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CPU_ELEMENTS", elements)  # 40: blocks of four references
    embeddings, labels = batch(10, 4)
    ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
    value = Contrastive(margin)(ours, labels)
    expected = oracle.contrastive(theirs, labels.tolist(), margin=margin)
    value.backward()
    expected.backward()
    assert expected > 0
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("elements", [1 << 18, 40, 1])
def test_a_memory_in_blocks_of_any_size(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CPU_ELEMENTS", elements)
    embeddings, labels = batch(8, 3)
    references, reference_labels = batch(37, 6, seed=1)
    references = torch.cat([references[:20], embeddings, references[20:]])
    reference_labels = torch.cat([reference_labels[:20], labels, reference_labels[20:]])
    self_index = torch.arange(20, 28)
    ours = [embeddings.clone().requires_grad_(), references.clone().requires_grad_()]
    theirs = [embeddings.clone().requires_grad_(), references.clone().requires_grad_()]
    value = Contrastive(0.4)(ours[0], labels, ours[1], reference_labels, self_index)
    expected = oracle.contrastive(theirs[0], labels.tolist(), theirs[1], reference_labels.tolist(), self_index.tolist(), margin=0.4)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-12, atol=1e-14)


def test_gradcheck() -> None:
    embeddings, labels = batch(9, 3, seed=2)
    references, reference_labels = batch(7, 3, seed=3)
    loss = Contrastive(0.5)
    assert torch.autograd.gradcheck(lambda e: loss(normalize(e, dim=1), labels), embeddings.requires_grad_())
    assert torch.autograd.gradcheck(lambda e, r: loss(e, labels, r, reference_labels), (embeddings, references.requires_grad_()))


def test_pytorch_metric_learning_agrees_on_a_memory() -> None:
    embeddings, labels = batch(20, 10, dim=32, seed=4)
    references, reference_labels = batch(3000, 50, dim=32, seed=5)
    ours, theirs = (embeddings.float().requires_grad_() for _ in range(2))
    value = Contrastive(0.5)(normalize(ours, dim=1), labels, references.float(), reference_labels)
    peer = ContrastiveLoss(pos_margin=1, neg_margin=0.5, distance=CosineSimilarity(), reducer=SumReducer())
    expected = peer(theirs, labels, ref_emb=references.float(), ref_labels=reference_labels) / 20
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)


class _Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation made."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.numel = max(self.numel, result.numel())
        return result


@pytest.mark.parametrize("loss", [Contrastive(0.5), MultiSimilarity(2.0, 40.0, 0.5, 0.1)])
def test_all_similarities_are_never_held_at_once(loss: torch.nn.Module) -> None:
    size = 20_000
    embeddings, labels = batch(180, 36, dim=8)
    references, reference_labels = batch(size, 50, dim=8)
    embeddings = embeddings.float().requires_grad_()
    with _Largest() as largest:
        loss(embeddings, labels, references.float(), reference_labels).backward()
    assert largest.numel <= max(1 << 18, size * 16) < 180 * size / 10


def test_the_batch_in_its_memory_is_the_batch_against_itself() -> None:
    embeddings, labels = batch(8, 3, seed=6)
    memory = CrossBatchMemory(8, 6).double()
    places = memory.enqueue(embeddings, labels)
    loss = Contrastive(0.5)
    torch.testing.assert_close(loss(embeddings, labels, *memory.valid(), places), loss(embeddings, labels))


def test_a_duplicate_costs_nothing_along_the_sphere() -> None:
    embeddings, labels = batch(1, 1, seed=7)
    raw = torch.cat([embeddings, embeddings]).requires_grad_()
    value = Contrastive(0.5)(normalize(raw, dim=1), torch.cat([labels, labels]))
    value.backward()
    assert abs(value.item()) < 1e-15
    torch.testing.assert_close(raw.grad, torch.zeros_like(raw), rtol=0, atol=1e-15)


@pytest.mark.parametrize("kind", ["no positives", "no negatives above the margin", "one image"])
def test_empty_sets_of_pairs(kind: str) -> None:
    if kind == "one image":
        embeddings, labels = torch.eye(3, dtype=torch.float64)[:1], torch.tensor([0])
    elif kind == "no positives":
        embeddings, labels = torch.eye(4, dtype=torch.float64), torch.arange(4)
    else:
        embeddings, labels = torch.eye(2, dtype=torch.float64).repeat_interleave(2, 0), torch.tensor([0, 0, 1, 1])
    embeddings.requires_grad_()
    value = Contrastive(0.5)(embeddings, labels)
    value.backward()
    assert value == 0
    assert embeddings.grad is not None
    assert embeddings.grad.isfinite().all()


def test_a_batch_half_of_one_class() -> None:
    embeddings, _ = batch(8, 4)
    labels = torch.tensor([0, 0, 0, 0, 1, 2, 3, 3])
    torch.testing.assert_close(Contrastive(0.5)(embeddings, labels), oracle.contrastive(embeddings, labels.tolist(), margin=0.5))


def test_references_of_unknown_classes_only() -> None:
    embeddings, labels = batch(5, 2)
    value = Contrastive(0.5)(embeddings, labels, -embeddings, labels + 10)
    assert value == oracle.contrastive(embeddings, labels.tolist(), -embeddings, (labels + 10).tolist(), margin=0.5)


def test_order_of_batch_and_memory_and_rotation_change_nothing() -> None:
    embeddings, labels = batch(12, 4, seed=8)
    references, reference_labels = batch(30, 4, seed=9)
    loss = Contrastive(0.5)
    value = loss(embeddings, labels, references, reference_labels)
    generator = torch.Generator().manual_seed(0)
    order, other = torch.randperm(12, generator=generator), torch.randperm(30, generator=generator)
    rotation = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64, generator=generator)).Q
    torch.testing.assert_close(loss(embeddings[order], labels[order], references[other], reference_labels[other]), value)
    torch.testing.assert_close(loss(embeddings @ rotation, labels, references @ rotation, reference_labels), value)
