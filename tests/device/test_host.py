"""A buffer is read from its device only after other code changed it."""

import copy

import torch
from torch import nn

from tests.device.host_reads import HostReads
from unseen.runtime.device.host import HostValue


class Counter(nn.Module):
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.value = HostValue()

    def add(self) -> int:
        count = self.value.read(self.count) + 1
        self.value.write(self.count, count)
        return count


def test_a_buffer_is_read_once() -> None:
    counter = Counter()
    with HostReads() as reads:
        assert [counter.add() for _ in range(3)] == [1, 2, 3]
    assert int(counter.count) == 3
    assert reads.count == 1


def test_changes_by_other_code_are_read() -> None:
    counter = Counter()
    counter.add()
    counter.count.fill_(7)
    assert counter.add() == 8
    counter.load_state_dict({"count": torch.tensor(20)})
    assert counter.add() == 21
    copied = copy.deepcopy(counter)
    copied.count.fill_(3)
    assert copied.add() == 4
    counter.count = torch.tensor(40)
    assert counter.add() == 41


def test_counts_reads_of_values_and_of_sizes_and_copies_of_values() -> None:
    values = torch.arange(4.0, requires_grad=True)
    with HostReads() as reads:
        values.sum().item()
        bool(values.detach().any())
        values.tolist()
        values.detach().nonzero()
        values.detach()[values.detach() > 1]
        torch.unique(values.detach())
        torch.linalg.cholesky(torch.eye(2))
    assert reads.count == 7
    with HostReads() as reads:
        values.detach().new_tensor([1.0])
        torch.tensor([1.0], device=values.device)
        torch.as_tensor([1.0], device=values.device)
    assert reads.names == ["new_tensor", "tensor", "as_tensor"]
    with HostReads() as reads:
        (values * 2).sum().backward()
        values.detach().new_full((1,), 3.0)
        values.detach()[torch.tensor([1, 2])]
    assert reads.names == []
