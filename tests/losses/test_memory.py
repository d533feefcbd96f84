"""The cross-batch memory as a ring: what it holds, where it writes, and that a restored one goes on."""

import pytest
import torch

from pipeline.losses.memory import CrossBatchMemory


def rows(start: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples numbered from `start`: the number stands in the embedding and is the label."""
    numbers = torch.arange(start, start + count)
    return torch.stack([numbers.float(), -numbers.float()], 1), numbers


def test_an_empty_memory_has_nothing_valid_and_no_class_by_accident() -> None:
    memory = CrossBatchMemory(5, 2)
    embeddings, labels = memory.valid()
    assert len(embeddings) == len(labels) == 0
    assert memory.labels.tolist() == [-1] * 5


def test_it_holds_the_latest_samples_and_says_where_each_stands() -> None:
    memory, written = CrossBatchMemory(7, 2), 0
    for count in [3, 3, 3, 7, 1, 5, 2, 7, 7]:
        embeddings, labels = rows(written, count)
        places = memory.enqueue(embeddings, labels)
        written += count
        held, held_labels = memory.valid()
        assert torch.equal(held[places], embeddings)
        assert torch.equal(held_labels[places], labels)
        assert sorted(held_labels.tolist()) == list(range(max(0, written - 7), written))
        assert torch.equal(held[:, 0], held_labels.float())


def test_class_zero_counts_as_a_class() -> None:
    memory = CrossBatchMemory(4, 2)
    memory.enqueue(torch.ones(4, 2), torch.zeros(4, dtype=torch.int64))
    assert len(memory.valid()[1]) == 4


def test_a_restored_memory_goes_on_where_it_stopped() -> None:
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


def test_gradients_do_not_enter() -> None:
    memory = CrossBatchMemory(4, 2)
    embeddings = torch.ones(2, 2, requires_grad=True)
    memory.enqueue(embeddings * 2, torch.tensor([0, 1]))
    assert not memory.valid()[0].requires_grad


def test_low_precision_is_stored_in_the_memorys_own() -> None:
    memory = CrossBatchMemory(4, 2)
    memory.enqueue(torch.ones(2, 2, dtype=torch.bfloat16), torch.tensor([0, 1]))
    assert memory.valid()[0].dtype == torch.float32


def test_a_batch_that_does_not_fit_is_refused() -> None:
    memory = CrossBatchMemory(3, 2)
    with pytest.raises(ValueError, match="a batch of 4 does not fit a cross-batch memory of 3 places"):
        memory.enqueue(*rows(0, 4))
    assert len(memory.valid()[0]) == 0
    with pytest.raises(ValueError, match="at least one place"):
        CrossBatchMemory(0, 2)
