"""Copies between host and device: order, errors and the end of an iterator; on a GPU equal values and no
wait of the host."""

from collections.abc import Iterator

import pytest
import torch

from unseen.runtime.device.transfer import DeviceToHost, HostToDevice, one_late

CPU = torch.device("cpu")


class Broken(Exception):
    """Replaces the error of an image that cannot be decoded."""


def test_items_keep_their_order_and_each_is_used_after_the_next_is_drawn() -> None:
    events: list[tuple[str, int]] = []

    def drawn() -> Iterator[int]:
        for item in range(3):
            events.append(("drawn", item))
            yield item

    for item in one_late(drawn()):
        events.append(("used", item))
    assert events == [("drawn", 0), ("drawn", 1), ("used", 0), ("drawn", 2), ("used", 1), ("used", 2)]
    assert list(one_late([])) == []
    assert list(one_late([7])) == [7]


def test_an_error_of_an_item_is_raised_when_it_is_drawn() -> None:
    def drawn() -> Iterator[int]:
        yield from (0, 1)
        raise Broken

    used: list[int] = []
    with pytest.raises(Broken):
        used.extend(one_late(drawn()))
    assert used == [0]


def test_an_iterator_that_is_left_ends_what_it_draws_from() -> None:
    ended: list[bool] = []

    def drawn() -> Iterator[int]:
        try:
            yield from range(9)
        finally:
            ended.append(True)

    items = one_late(drawn())
    assert next(items) == 0
    assert not ended
    del items
    assert ended == [True]


def test_on_a_cpu_nothing_is_copied() -> None:
    values = torch.arange(6.0, requires_grad=True)
    (same,) = HostToDevice(CPU)(values)
    assert same is values
    on_host = DeviceToHost(values).wait()
    assert on_host.data_ptr() == values.data_ptr()
    assert not on_host.requires_grad


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_has_equal_values_and_the_host_does_not_wait() -> None:
    device = torch.device("cuda", 0)
    copied = HostToDevice(device)
    batches = [torch.full((64, 3, 32, 32), value, dtype=torch.uint8) for value in range(8)]

    def doubled() -> Iterator[DeviceToHost]:
        for batch in batches:
            (images,) = copied(batch)
            assert images.device == device
            yield DeviceToHost(images.int() * 2)

    list(map(DeviceToHost.wait, one_late(doubled())))  # allocates the memory
    torch.cuda.set_sync_debug_mode("error")
    try:
        results = [result.wait().clone() for result in one_late(doubled())]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for batch, result in zip(batches, results, strict=True):
        assert torch.equal(result, batch.int() * 2)
