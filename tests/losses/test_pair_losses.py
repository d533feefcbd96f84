"""Every pair loss against its definition: within a batch, against a memory in blocks, and where a set of
pairs is empty.

tests/methods/test_every_part.py tests the properties of every loss (gradcheck, order, rotation, precision).
"""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.losses.batches import Largest, batch
from tests.oracles import euclidean_losses, losses
from unseen.losses import contrastive, euclidean_contrastive, multi_similarity, triplet
from unseen.losses.pairs import PairLoss

Oracle = Callable[..., Tensor]
COSINE = [{"margin": 0.5}, {"margin": -0.2}, {"margin": 0.99}]
EUCLIDEAN = [
    {"positive_margin": low, "negative_margin": high}
    for low, high in ((0.2652, 0.9), (0.0, 1.4), (0.0, 0.2), (0.9, 2.5))
]
TRIPLET = [
    {"margin": margin, "mining": mining} for margin in (0.0451, 0.2, 1.5) for mining in triplet.MININGS
]
MULTI_SIMILARITY = [
    {"alpha": 2.0, "beta": 40.0, "threshold": 0.5, "mining_margin": 0.1},
    {"alpha": 2.0, "beta": 40.0, "threshold": 0.5, "mining_margin": None},
    {"alpha": 14.35, "beta": 75.83, "threshold": 0.66, "mining_margin": 0.1},
    {"alpha": 2.0, "beta": 50.0, "threshold": 1.0, "mining_margin": None},
    {
        "alpha": 300.0,
        "beta": 500.0,
        "threshold": -0.3,
        "mining_margin": 0.05,
    },  # e^400 would overflow any precision
]
FAMILIES: list[tuple[ModuleType, type[PairLoss], Oracle, list[dict[str, Any]]]] = [
    (contrastive, contrastive.Contrastive, losses.contrastive, COSINE),
    (
        euclidean_contrastive,
        euclidean_contrastive.EuclideanContrastive,
        euclidean_losses.contrastive,
        EUCLIDEAN,
    ),
    (triplet, triplet.Triplet, euclidean_losses.triplet, TRIPLET),
    (multi_similarity, multi_similarity.MultiSimilarity, losses.multi_similarity, MULTI_SIMILARITY),
]
CASES = [
    pytest.param(
        module,
        build(**setting),
        partial(oracle, **setting),
        id=f"{build.__name__}-{'-'.join(map(str, setting.values()))}",
    )
    for module, build, oracle, settings in FAMILIES
    for setting in settings
]
every_loss = pytest.mark.parametrize(("module", "loss", "oracle"), CASES)


def in_blocks(monkeypatch: pytest.MonkeyPatch, module: ModuleType, elements: int) -> None:
    """Limits blocks to `elements` similarities or distances, or to a single row or column."""
    monkeypatch.setattr(module, "_CPU_ELEMENTS", elements)
    if hasattr(module, "_ROWS"):
        monkeypatch.setattr(module, "_ROWS", 1)


def assert_same(
    loss: PairLoss, oracle: Oracle, embeddings: Tensor, labels: Tensor, *memory: Tensor
) -> Tensor:
    """The loss and its gradients to both sides equal the oracle's. Returns the value."""
    sides, oracle_sides = (
        [side.clone().requires_grad_() for side in (embeddings, *memory[:1])] for _ in range(2)
    )
    value = loss(sides[0], labels, *sides[1:], *memory[1:])
    expected = oracle(
        oracle_sides[0], labels.tolist(), *oracle_sides[1:], *(integers.tolist() for integers in memory[1:])
    )
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-15)
    for leaf, oracle_leaf in zip(sides, oracle_sides, strict=True):
        torch.testing.assert_close(leaf.grad, oracle_leaf.grad, rtol=1e-10, atol=1e-13)
    return value.detach()


@pytest.mark.slow
@every_loss
@pytest.mark.parametrize("elements", [1 << 18, 40])
def test_value_and_gradient_equal_the_definition(
    module: ModuleType, loss: PairLoss, oracle: Oracle, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_blocks(monkeypatch, module, elements)
    assert assert_same(loss, oracle, *batch(14, 4)) > 0


@every_loss
@pytest.mark.parametrize("elements", [1 << 18, 40, 1])
@pytest.mark.parametrize("with_self", [True, False])
def test_blocks_of_any_size_give_the_definition(
    module: ModuleType,
    loss: PairLoss,
    oracle: Oracle,
    elements: int,
    with_self: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_blocks(monkeypatch, module, elements)
    embeddings, labels = batch(6, 3)
    negatives, negative_labels = batch(17, 5, seed=1)
    # without unit length: only the index identifies the anchors
    references = torch.cat([negatives[:9], 0.9 * embeddings, negatives[9:]])
    reference_labels = torch.cat([negative_labels[:9], labels, negative_labels[9:]])
    self_index = [torch.arange(9, 15)] if with_self else []
    assert assert_same(loss, oracle, embeddings, labels, references, reference_labels, *self_index) > 0


_ANY, _APART = batch(8, 2, seed=7)[0], torch.eye(8, dtype=torch.float64)
DEGENERATE = {
    "no positives": (_ANY, torch.arange(8)),
    "one class, so no negatives": (_ANY, torch.zeros(8, dtype=torch.int64)),
    "one image": (_ANY[:1], torch.tensor([3])),
    "half of the batch of one class": (_ANY, torch.tensor([0, 0, 0, 0, 1, 2, 3, 3])),
    "all similarities equal": (_APART[:5], torch.tensor([0, 0, 1, 1, 2])),
    "every positive at 0, every negative far": (_APART[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1])),
}


@every_loss
@pytest.mark.parametrize("kind", list(DEGENERATE))
def test_degenerate_batches(module: ModuleType, loss: PairLoss, oracle: Oracle, kind: str) -> None:
    value = assert_same(loss, oracle, *DEGENERATE[kind])
    if kind == "one image":
        assert value == 0


@every_loss
def test_an_empty_memory_gives_no_loss(module: ModuleType, loss: PairLoss, oracle: Oracle) -> None:
    embeddings, labels = batch(4, 2)
    assert loss(embeddings, labels, embeddings[:0], labels[:0]) == 0


@every_loss
def test_references_of_unknown_classes_only(module: ModuleType, loss: PairLoss, oracle: Oracle) -> None:
    embeddings, labels = batch(5, 2)
    assert_same(loss, oracle, embeddings, labels, -embeddings, labels + 10)


@pytest.mark.parametrize(
    "loss", [contrastive.Contrastive(0.5), euclidean_contrastive.EuclideanContrastive(0.1, 1.0)]
)
def test_blocks_of_references_stay_within_their_limit(loss: PairLoss) -> None:
    # the block, or the references themselves
    assert largest_against_a_memory(loss) <= max(1 << 18, 20_000 * 8)


@pytest.mark.parametrize(
    "loss", [multi_similarity.MultiSimilarity(**MULTI_SIMILARITY[0]), triplet.Triplet(0.1, "all")]
)
def test_blocks_of_anchors_stay_within_their_limit(loss: PairLoss) -> None:
    assert largest_against_a_memory(loss) <= 20_000 * 16


def largest_against_a_memory(loss: PairLoss) -> int:
    """The largest tensor for 180 anchors and 20,000 references, which have 3,600,000 similarities."""
    embeddings, labels = batch(180, 36, dim=8)
    references, reference_labels = batch(20_000, 5000, dim=8, seed=1)
    with Largest() as largest:
        loss(embeddings.float().requires_grad_(), labels, references.float(), reference_labels).backward()
    return largest.numel


def test_refuses_references_without_labels() -> None:
    embeddings, labels = batch(4, 2)
    loss = contrastive.Contrastive(0.5)
    with pytest.raises(ValueError, match="must be given together"):
        loss(embeddings, labels, references=embeddings)
    with pytest.raises(ValueError, match="self_index"):
        loss(embeddings, labels, self_index=labels)
