"""The cross-batch memory as a ring: its contents, the written positions, and continuation after a restore."""

import pytest
import torch

from unseen.losses.memory import CrossBatchMemory


def rows(start: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples numbered from `start`: the number is in the embedding and is the label."""
    numbers = torch.arange(start, start + count)
    return torch.stack([numbers.float(), -numbers.float()], 1), numbers


def test_an_empty_memory_has_no_valid_row_and_no_class() -> None:
    memory = CrossBatchMemory(5, 2)
    embeddings, labels = memory.valid()
    assert len(embeddings) == len(labels) == 0
    assert memory.labels.tolist() == [-1] * 5


def test_keeps_the_latest_samples_and_returns_their_positions() -> None:
    memory, written_count = CrossBatchMemory(7, 2), 0
    for count in [3, 3, 3, 7, 1, 5, 2, 7, 7]:
        embeddings, labels = rows(written_count, count)
        places = memory.enqueue(embeddings, labels)
        written_count += count
        valid_embeddings, valid_labels = memory.valid()
        assert torch.equal(valid_embeddings[places], embeddings)
        assert torch.equal(valid_labels[places], labels)
        assert sorted(valid_labels.tolist()) == list(range(max(0, written_count - 7), written_count))
        assert torch.equal(valid_embeddings[:, 0], valid_labels.float())


def test_class_zero_counts_as_a_class() -> None:
    memory = CrossBatchMemory(4, 2)
    memory.enqueue(torch.ones(4, 2), torch.zeros(4, dtype=torch.int64))
    assert len(memory.valid()[1]) == 4


def test_a_restored_memory_continues() -> None:
    memory = CrossBatchMemory(7, 2)
    for start in (0, 3, 6):
        memory.enqueue(*rows(start, 3))
    restored = CrossBatchMemory(7, 2)
    restored.load_state_dict({name: value.clone() for name, value in memory.state_dict().items()})
    for twin in (memory, restored):
        assert twin.enqueue(*rows(9, 4)).tolist() == [2, 3, 4, 5]
    assert set(memory.state_dict()) == {"embeddings", "labels", "pointer", "filled"}
    for name, value in memory.state_dict().items():
        assert torch.equal(value, restored.state_dict()[name])


def test_stores_no_gradients() -> None:
    memory = CrossBatchMemory(4, 2)
    embeddings = torch.ones(2, 2, requires_grad=True)
    memory.enqueue(embeddings * 2, torch.tensor([0, 1]))
    assert not memory.valid()[0].requires_grad


def test_low_precision_is_stored_in_the_precision_of_the_memory() -> None:
    memory = CrossBatchMemory(4, 2)
    memory.enqueue(torch.ones(2, 2, dtype=torch.bfloat16), torch.tensor([0, 1]))
    assert memory.valid()[0].dtype == torch.float32


def test_refuses_a_batch_larger_than_the_memory() -> None:
    memory = CrossBatchMemory(3, 2)
    with pytest.raises(ValueError, match="a batch of 4 does not fit a cross-batch memory of 3 places"):
        memory.enqueue(*rows(0, 4))
    assert len(memory.valid()[0]) == 0
    with pytest.raises(ValueError, match="at least one place"):
        CrossBatchMemory(0, 2)
