"""SNCA equals its definition over several steps of a memory, also for memories without candidates."""

import pytest
import torch
from torch.nn.functional import normalize

from tests.losses.batches import Largest
from tests.oracles import softmax_losses as oracle
from unseen.losses import snca as module
from unseen.losses.snca import Snca

SAMPLES, DIM, CLASSES = 23, 6, 4


def points(count: int, seed: int) -> torch.Tensor:
    return normalize(
        torch.randn(count, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)), dim=1
    )


def filled_memory(temperature: float = 0.05, unseen: int = 3) -> Snca:
    """A memory that has all but the last few images; image j is of class j % CLASSES."""
    loss = Snca(SAMPLES, DIM, temperature, 0.8).double()
    seen_count = SAMPLES - unseen
    loss.memory[:seen_count] = points(seen_count, 0)
    loss.labels[:seen_count] = torch.arange(seen_count) % CLASSES
    return loss


def memory_contents(loss: Snca) -> dict[int, tuple[torch.Tensor, int]]:
    return {j: (loss.memory[j].clone(), label) for j, label in enumerate(loss.labels.tolist()) if label >= 0}


@pytest.mark.parametrize("temperature", [0.05, 0.1, 1 / 700])
@pytest.mark.parametrize("elements", [1 << 18, 35, 1])
def test_value_and_gradient_equal_the_definition(
    temperature: float, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CPU_ELEMENTS", elements)  # 35: five images at a time
    samples = torch.tensor([5, 0, 19, 21, 8, 13, 9])
    loss = filled_memory(temperature).eval()
    batch_points, oracle_points = points(7, 1).requires_grad_(), points(7, 1).requires_grad_()
    value = loss(batch_points, samples % CLASSES, samples)
    expected = oracle.snca(
        oracle_points,
        (samples % CLASSES).tolist(),
        samples.tolist(),
        memory_contents(loss),
        temperature=temperature,
    )
    value.backward()
    expected.backward()
    assert expected > 0
    torch.testing.assert_close(value, expected, rtol=1e-11, atol=0)
    torch.testing.assert_close(batch_points.grad, oracle_points.grad, rtol=1e-9, atol=1e-12)


def test_a_training_from_an_empty_memory_equals_the_definition() -> None:
    loss, memory = Snca(SAMPLES, DIM, 0.05, 0.8).double(), {}
    generator = torch.Generator().manual_seed(0)
    for turn in range(8):
        samples = torch.randperm(SAMPLES, generator=generator)[:6]
        embeddings, labels = points(6, turn + 1), (samples % CLASSES)
        value = loss(embeddings, labels, samples)
        torch.testing.assert_close(
            value, oracle.snca(embeddings, labels.tolist(), samples.tolist(), memory, temperature=0.05)
        )
        memory = oracle.snca_update(list(embeddings), labels.tolist(), samples.tolist(), memory, momentum=0.8)
        assert memory_contents(loss).keys() == memory.keys()
        for sample, (vector, label) in memory_contents(loss).items():
            torch.testing.assert_close(vector, memory[sample][0])
            assert label == memory[sample][1]


def test_the_memory_is_updated_only_in_training_and_after_the_loss() -> None:
    samples = torch.tensor([1, 2, 7])
    loss = filled_memory()
    memory_before = loss.memory.clone()
    judged = loss.eval()(points(3, 1), samples % CLASSES, samples)
    assert torch.equal(loss.memory, memory_before)
    trained = loss.train()(points(3, 1), samples % CLASSES, samples)
    assert trained == judged
    changed = (loss.memory != memory_before).any(1).nonzero().squeeze(1)
    assert changed.tolist() == samples.tolist()
    torch.testing.assert_close(loss.memory[samples].norm(dim=1), torch.ones(3, dtype=torch.float64))


def test_duplicates_update_their_image_once_in_any_order() -> None:
    samples = torch.tensor([4, 2, 4])
    first, second = filled_memory(), filled_memory()
    embeddings = points(3, 2)
    memory = oracle.snca_update(
        list(embeddings), (samples % CLASSES).tolist(), samples.tolist(), memory_contents(first), momentum=0.8
    )
    first(embeddings, samples % CLASSES, samples)
    second(embeddings.flip(0), (samples % CLASSES).flip(0), samples.flip(0))
    torch.testing.assert_close(first.memory[4], memory[4][0])
    torch.testing.assert_close(first.memory, second.memory)


@pytest.mark.parametrize(
    "kind", ["nothing seen", "no positives", "no negatives", "one image, itself alone in the memory"]
)
def test_degenerate_memories(kind: str) -> None:
    loss = filled_memory().eval()
    samples = torch.tensor([5, 0, 8, 13])
    labels = samples % CLASSES
    if kind == "nothing seen":
        loss.labels.fill_(-1)
    elif kind == "no positives":
        loss.labels.add_(10 * (loss.labels >= 0))
    elif kind == "no negatives":
        loss.labels.clamp_(max=0)
        labels = torch.zeros_like(labels)
    else:
        samples, labels = samples[:1], labels[:1]
        loss.labels.fill_(-1)
        loss.labels[samples] = labels
    embeddings = points(len(samples), 4).requires_grad_()
    value = loss(embeddings, labels, samples)
    value.backward()
    torch.testing.assert_close(value, torch.zeros_like(value), rtol=0, atol=1e-14)
    assert embeddings.grad is not None
    torch.testing.assert_close(embeddings.grad, torch.zeros_like(embeddings.grad), rtol=0, atol=1e-13)


def test_a_batch_half_of_one_class() -> None:
    loss, samples = filled_memory().eval(), torch.tensor([0, 4, 8, 12, 1, 2, 3, 5])
    expected = oracle.snca(
        points(8, 5), (samples % CLASSES).tolist(), samples.tolist(), memory_contents(loss), temperature=0.05
    )
    torch.testing.assert_close(loss(points(8, 5), samples % CLASSES, samples), expected)


def test_does_not_depend_on_order_of_the_batch_and_rotation() -> None:
    loss, samples = filled_memory().eval(), torch.tensor([5, 0, 19, 21, 8, 13, 9])
    embeddings = points(7, 6)
    value = loss(embeddings, samples % CLASSES, samples)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(loss(embeddings[order], samples[order] % CLASSES, samples[order]), value)
    rotation = torch.linalg.qr(
        torch.randn(DIM, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ).Q
    loss.memory.copy_(loss.memory @ rotation)
    torch.testing.assert_close(loss(embeddings @ rotation, samples % CLASSES, samples), value)


def test_never_stores_all_similarities() -> None:
    loss = Snca(20_000, DIM, 0.05, 0.8).eval()
    loss.labels.copy_(torch.arange(20_000) % 100)
    loss.memory.normal_()
    embeddings, samples = points(180, 7).float().requires_grad_(), torch.arange(180)
    with Largest() as largest:
        loss(embeddings, samples % 100, samples).backward()
    assert largest.numel <= 1 << 18 < 180 * 20_000 / 10


def test_half_precision_and_autocast_compute_in_single() -> None:
    loss, samples = filled_memory().float(), torch.tensor([5, 0, 19, 21, 8, 13, 9])
    exact = filled_memory().eval()
    half_precision = points(7, 8).bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(half_precision, samples % CLASSES, samples)
    value.backward()
    assert value.dtype == loss.memory.dtype == torch.float32
    torch.testing.assert_close(
        value.double(), exact(half_precision.detach().double(), samples % CLASSES, samples), rtol=1e-5, atol=0
    )
    assert half_precision.grad is not None
    assert half_precision.grad.dtype == torch.bfloat16


def test_a_restored_memory_continues() -> None:
    loss, restored = filled_memory(), Snca(SAMPLES, DIM, 0.05, 0.8).double()
    restored.load_state_dict(loss.state_dict())
    samples = torch.tensor([5, 0, 19])
    assert restored(points(3, 9), samples % CLASSES, samples) == loss(
        points(3, 9), samples % CLASSES, samples
    )
    assert torch.equal(restored.memory, loss.memory)


def test_refuses_invalid_settings() -> None:
    with pytest.raises(ValueError, match="temperature"):
        Snca(5, 6, 0.0, 0.8)
    with pytest.raises(ValueError, match="momentum"):
        Snca(5, 6, 0.05, 1.0)
    with pytest.raises(IndexError):
        Snca(5, DIM, 0.05, 0.8).double()(points(1, 0), torch.tensor([0]), torch.tensor([5]))
