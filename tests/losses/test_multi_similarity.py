"""Multi-similarity against its definition, against pytorch-metric-learning, and where a set of pairs is empty."""

import pytest
import torch
from pytorch_metric_learning.losses import MultiSimilarityLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner
from torch.nn.functional import normalize

from pipeline.losses import multi_similarity as module
from pipeline.losses.multi_similarity import MultiSimilarity
from tests.oracles import losses as oracle

PUBLISHED = {"alpha": 2.0, "beta": 40.0, "threshold": 0.5, "mining_margin": 0.1}
SETTINGS = [
    PUBLISHED,
    {**PUBLISHED, "mining_margin": None},
    {"alpha": 14.35, "beta": 75.83, "threshold": 0.66, "mining_margin": 0.1},
    {"alpha": 2.0, "beta": 50.0, "threshold": 1.0, "mining_margin": None},
    {"alpha": 300.0, "beta": 500.0, "threshold": -0.3, "mining_margin": 0.05},  # e^400 would overflow any precision
]


def batch(count: int, classes: int, dim: int = 8, spread: float = 1.5, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Unit vectors around class centres, wide enough that positives and negatives mix, and labels in no order."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (count,), generator=generator)
    centres = torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    points = centres[labels] + spread * torch.randn(count, dim, generator=generator, dtype=torch.float64)
    return normalize(points, dim=1), labels


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("elements", [1 << 18, 40])
def test_value_and_gradient_are_those_of_the_definition(setting: dict, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS", 1)
    monkeypatch.setattr(module, "_CPU_ELEMENTS", elements)  # 40: blocks of three anchors
    embeddings, labels = batch(14, 4)
    ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
    value = MultiSimilarity(**setting)(ours, labels)
    expected = oracle.multi_similarity(theirs, labels.tolist(), **setting)
    value.backward()
    expected.backward()
    assert expected > 0
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("setting", SETTINGS)
def test_references_receive_their_gradient_and_an_anchor_is_left_out_by_index(setting: dict) -> None:
    embeddings, labels = batch(6, 3)
    references, reference_labels = batch(17, 3, seed=1)
    references = torch.cat([references, 0.9 * embeddings])  # no unit vectors: only the index can tell that these are the anchors
    reference_labels = torch.cat([reference_labels, labels])
    self_index = torch.arange(17, 23)
    ours = [embeddings.clone().requires_grad_(), references.clone().requires_grad_()]
    theirs = [embeddings.clone().requires_grad_(), references.clone().requires_grad_()]
    value = MultiSimilarity(**setting)(ours[0], labels, ours[1], reference_labels, self_index)
    expected = oracle.multi_similarity(theirs[0], labels.tolist(), theirs[1], reference_labels.tolist(), self_index.tolist(), **setting)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("setting", SETTINGS[:2])
def test_gradcheck(setting: dict) -> None:
    embeddings, labels = batch(9, 3, seed=2)
    references, reference_labels = batch(7, 3, seed=3)
    loss = MultiSimilarity(**setting)
    assert torch.autograd.gradcheck(lambda e: loss(normalize(e, dim=1), labels), embeddings.requires_grad_())
    assert torch.autograd.gradcheck(lambda e, r: loss(e, labels, r, reference_labels), (embeddings, references.requires_grad_()))


@pytest.mark.parametrize("size", [40, 180])
def test_pytorch_metric_learning_agrees(size: int) -> None:
    embeddings, labels = batch(size, size // 5, dim=32, spread=2.5)
    ours, theirs = (embeddings.float().requires_grad_() for _ in range(2))
    value = MultiSimilarity(**PUBLISHED)(normalize(ours, dim=1), labels)
    peer = MultiSimilarityLoss(alpha=2, beta=40, base=0.5)
    expected = peer(theirs, labels, MultiSimilarityMiner(epsilon=0.1)(theirs, labels))
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def test_one_positive_and_one_negative_are_two_softplus() -> None:
    angle = torch.tensor([0.0, 0.7, 1.3], dtype=torch.float64)
    embeddings = torch.stack([angle.cos(), angle.sin()], 1)
    loss = MultiSimilarity(2.0, 40.0, 0.5, None)(embeddings[:1], torch.tensor([0]), embeddings[1:], torch.tensor([0, 1]))
    softplus = torch.nn.functional.softplus
    expected = softplus(-2 * (angle[1].cos() - 0.5)) / 2 + softplus(40 * (angle[2].cos() - 0.5)) / 40
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("margin", [0.1, None])
def test_duplicates_are_no_positives(margin: float | None) -> None:
    embeddings, labels = batch(6, 2, seed=4)
    embeddings = torch.cat([embeddings, embeddings[:1]])
    labels = torch.cat([labels, labels[:1]])
    setting = {**PUBLISHED, "mining_margin": margin}
    value = MultiSimilarity(**setting)(embeddings, labels)
    torch.testing.assert_close(value, oracle.multi_similarity(embeddings, labels.tolist(), **setting), rtol=1e-12, atol=0)
    only = MultiSimilarity(**setting)(embeddings[[0, 6]], labels[[0, 6]])  # a picture and its copy: no positive, no negative
    assert only == 0


def lonely(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    embeddings, labels = batch(5, 2, seed=5)
    if kind == "no positives":
        return embeddings, torch.arange(5)
    if kind == "no negatives":
        return embeddings, torch.zeros(5, dtype=torch.int64)
    if kind == "one image":
        return embeddings[:1], labels[:1]
    if kind == "half of the batch of one class":
        return batch(8, 4, seed=5)[0], torch.tensor([0, 0, 0, 0, 1, 2, 3, 3])
    return torch.eye(5, dtype=torch.float64), torch.tensor([0, 0, 1, 1, 2])  # all similarities equal


@pytest.mark.parametrize("kind", ["no positives", "no negatives", "one image", "half of the batch of one class", "all similarities equal"])
@pytest.mark.parametrize("setting", [SETTINGS[0], SETTINGS[1], SETTINGS[4]])
def test_empty_sets_of_pairs(kind: str, setting: dict) -> None:
    embeddings, labels = lonely(kind)
    embeddings.requires_grad_()
    value = MultiSimilarity(**setting)(embeddings, labels)
    value.backward()
    expected = oracle.multi_similarity(embeddings, labels.tolist(), **setting)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-15)
    assert embeddings.grad is not None
    assert embeddings.grad.isfinite().all()
    if kind in ("no positives", "no negatives", "one image") and setting["mining_margin"] is not None:
        assert value == 0


def test_steep_slopes_do_not_overflow_single_precision() -> None:
    embeddings, labels = batch(14, 4)
    value = MultiSimilarity(**SETTINGS[4])(embeddings.float(), labels)
    torch.testing.assert_close(value.double(), oracle.multi_similarity(embeddings, labels.tolist(), **SETTINGS[4]), rtol=1e-5, atol=0)


def test_an_empty_memory_costs_nothing() -> None:
    embeddings, labels = batch(4, 2)
    assert MultiSimilarity(**PUBLISHED)(embeddings, labels, embeddings[:0], labels[:0]) == 0


def test_order_of_the_batch_and_rotation_change_nothing() -> None:
    embeddings, labels = batch(20, 5, seed=6)
    loss = MultiSimilarity(**PUBLISHED)
    value = loss(embeddings, labels)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    rotation = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))).Q
    torch.testing.assert_close(loss(embeddings[order], labels[order]), value, rtol=1e-12, atol=0)
    torch.testing.assert_close(loss(embeddings @ rotation, labels), value, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast_compute_in_single(dtype: torch.dtype) -> None:
    embeddings, labels = batch(12, 3, seed=7)
    low = embeddings.to(dtype).requires_grad_()
    loss = MultiSimilarity(**PUBLISHED)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(low, labels)
    value.backward()
    expected = loss(low.detach().float(), labels)
    assert value.dtype == torch.float32
    assert value == expected
    assert low.grad is not None
    assert low.grad.dtype == dtype


def test_references_and_labels_go_together() -> None:
    embeddings, labels = batch(4, 2)
    loss = MultiSimilarity(**PUBLISHED)
    with pytest.raises(ValueError, match="go together"):
        loss(embeddings, labels, references=embeddings)
    with pytest.raises(ValueError, match="self_index"):
        loss(embeddings, labels, self_index=labels)
