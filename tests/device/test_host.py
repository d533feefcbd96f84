"""A buffer is read from its device only after other code changed it."""

import copy

import torch
from torch import nn

from tests.device import pretended
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


def _read_once() -> None:
    counter = Counter().to(pretended.GPU)
    with pretended.recorded() as record:
        assert [counter.add() for _ in range(3)] == [1, 2, 3]
    assert len(record.waits) == 1
    assert int(counter.count) == 3


def test_a_buffer_is_read_once() -> None:
    pretended.run(_read_once)


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
