"""The pretended GPU itself: it refuses what CUDA refuses and records what the host waits for."""

import pytest
import torch

from tests.device import pretended
from tests.device.pretended import CPU, GPU, recorded


def _mixed() -> None:
    there, here = torch.ones(3, device=GPU), torch.ones(3)
    with recorded() as record:
        for mixed in (
            lambda: there + here,
            lambda: here * there,
            lambda: torch.cat([there, here]),
            lambda: there @ here,
            lambda: here[torch.zeros(1, dtype=torch.int64, device=GPU)],
            lambda: there.index_put((torch.zeros(1, dtype=torch.int64),), here[:1]),
        ):
            with pytest.raises(RuntimeError, match="same device"):
                mixed()
    assert len(record.refused) == 6
    with recorded() as record:
        assert (there + torch.tensor(1.0)).device == GPU  # a number
        assert there[torch.tensor([0, 2])].shape == (2,)
    assert not record.refused
    assert record.pageable_to_device == [16]  # the indices
    with pytest.raises(TypeError, match="numpy"):
        there.numpy()


def test_refuses_an_operation_that_mixes_devices() -> None:
    pretended.run(_mixed)


def _waits() -> None:
    values = torch.arange(4.0, device=GPU)
    for read in (
        lambda: values.sum().item(),
        lambda: bool(values.any()),
        values.tolist,
        values.nonzero,
        lambda: values[values > 1],
        lambda: torch.unique(values),
        lambda: torch.linalg.cholesky(torch.eye(2, device=GPU)),
        lambda: values.repeat_interleave(torch.ones(4, dtype=torch.int64, device=GPU)),
        values.cpu,
        lambda: torch.tensor([1.0], device=GPU),
        lambda: values.new_tensor([1.0]),
        lambda: torch.as_tensor([1.0], device=GPU),
        lambda: values.copy_(torch.ones(4)),
        torch.cuda.synchronize,
    ):
        with recorded() as record:
            read()
        assert len(record.waits) == 1, (record.waits, read)
    with recorded() as record:
        (values.requires_grad_() * 2).sum().backward()
        values.detach().new_full((1,), 3.0)
        values.detach()[torch.tensor([1, 2], device="cpu").pin_memory().to(GPU, non_blocking=True)]
        torch.full((), 2.0).tolist()
    assert record.waits == []


def test_records_reads_of_values_and_of_sizes_and_copies_of_values() -> None:
    pretended.run(_waits)


def _copies() -> None:
    here = torch.ones(8)
    with recorded() as record:
        there = here.to(GPU)
        here.pin_memory().to(GPU, non_blocking=True)
        torch.empty(2, pin_memory=True).view(1, 2)[0].to(GPU, non_blocking=True)
        there.to("cpu", non_blocking=True)
        there.to(torch.float64)
    assert record.pageable_to_device == [32]
    assert record.pinned_to_device == [32, 8]
    assert record.pinned == [32]
    assert record.to_host == [32]
    assert len(record.waits) == 1
    assert record.launches == {"_to_copy": 1}


def test_records_copies_and_whether_their_memory_is_pinned() -> None:
    pretended.run(_copies)


def _launches() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 3, generator=generator)
    gradients = []
    for device in (CPU, GPU):
        there = x.clone().to(device).requires_grad_()
        with recorded() as record:
            (there.view(15) * there.flatten().exp()).sum().backward()
        launched = record.launches if device == GPU else record.on_host
        assert launched["exp"] == 1
        assert launched["mul"] >= 3  # forward pass and backward pass
        assert launched["view"] == 0
        assert not (record.on_host if device == GPU else record.launches)
        assert there.grad is not None
        assert there.grad.device == device
        gradients.append(there.grad.cpu())
    return gradients[0], gradients[1]


def test_records_launches_and_computes_the_bits_of_the_cpu() -> None:
    of_cpu, of_gpu = pretended.run(_launches)
    assert torch.equal(of_cpu, of_gpu)
    assert of_cpu.abs().sum() > 0


def test_torch_of_this_process_has_no_gpu() -> None:
    pretended.run(_copies)
    assert not torch.cuda.is_available()
