"""Batch norm over workers: torch's own with one worker, statistics and gradients of the complete batch with
several, frozen statistics."""

import multiprocessing
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from tests.oracles import models as oracle
from unseen.networks.backbone import timm
from unseen.networks.batch_norm import SynchronisedBatchNorm, freeze, synchronise

multiprocessing.set_forkserver_preload(["unseen.networks.batch_norm"])
ROWS = (5, 3)  # uneven slices: the means of the workers need weights
CALLS = ("all_gather", "all_reduce", "broadcast", "all_gather_into_tensor", "reduce_scatter_tensor")


def network(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """A parameter before, between and after two norms."""
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(2, 3, 1),
        SynchronisedBatchNorm(3),
        nn.GELU(),
        nn.Conv2d(3, 4, 1),
        SynchronisedBatchNorm(4, momentum=None),
        nn.Flatten(),
        nn.Linear(16, 2),
    )
    for norm in (layers[1], layers[4]):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    return layers.to(dtype)


def batch() -> tuple[Tensor, Tensor]:
    """Images whose statistics differ between the slices, and a weight per output, so that every row has
    another gradient."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(sum(ROWS), 2, 2, 2, generator=generator, dtype=torch.float64)
    images[ROWS[0] :] = images[ROWS[0] :] * 3 + 5
    return images, torch.randn(sum(ROWS), 2, generator=generator, dtype=torch.float64)


def test_one_worker_equals_torch_to_the_byte() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 5, 5)
    torch_norm = nn.BatchNorm2d(3, momentum=0.3)
    norm = SynchronisedBatchNorm.of(nn.BatchNorm2d(3, momentum=0.3))
    for mode in (True, False):
        torch_norm.train(mode)
        norm.train(mode)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, z = torch_norm(a), norm(b)
        y.pow(3).sum().backward()
        z.pow(3).sum().backward()
        assert torch.equal(y, z)
        assert torch.equal(a.grad, b.grad)
    assert all(torch.equal(torch_norm.state_dict()[name], value) for name, value in norm.state_dict().items())


def test_replacing_keeps_parameters_names_and_the_fused_activation() -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 4, 1), timm.layers.BatchNormAct2d(4), nn.Sequential(nn.BatchNorm2d(4, eps=0.1))
    )
    x = torch.randn(2, 3, 4, 4)
    expected, parameters, names = (
        module.eval()(x),
        set(map(id, module.parameters())),
        list(module.state_dict()),
    )
    replaced = synchronise(module)
    assert isinstance(replaced[1], SynchronisedBatchNorm)
    assert isinstance(replaced[2][0], SynchronisedBatchNorm)
    assert set(map(id, replaced.parameters())) == parameters
    assert list(replaced.state_dict()) == names
    assert torch.equal(replaced(x), expected)
    assert float(replaced[1](torch.randn(2, 4, 3, 3)).min()) == 0  # its ReLU


def test_frozen_statistics_stay_and_scale_and_shift_learn() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    freeze(module.train())
    mean_before = module[1].running_mean.clone()
    module(torch.randn(4, 3, 2, 2) + 3).square().sum().backward()
    assert not module[1].training
    assert torch.equal(module[1].running_mean, mean_before)
    assert module[1].weight.grad is not None


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Tensor]]:
    directory = tmp_path_factory.mktemp("workers")
    mp.start_processes(_work, (str(directory),), nprocs=2, start_method="forkserver")
    return [torch.load(directory / f"{rank}.pt") for rank in range(2)]


def _work(rank: int, directory: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2)
    try:
        images, weights = batch()
        rows = slice(0, ROWS[0]) if rank == 0 else slice(ROWS[0], None)
        layers, slice_of_images = network(), images[rows].requires_grad_()
        with ExitStack() as stack:
            collectives = [
                stack.enter_context(mock.patch.object(dist, n, wraps=getattr(dist, n))) for n in CALLS
            ]
            y = layers(slice_of_images)
            # The gather before a loss returns to each worker its rows of the gradient, times the workers.
            y.backward(2 * weights[rows])
        results = {
            "calls": torch.tensor([collective.call_count for collective in collectives]),
            "y": y.detach(),
            "images": slice_of_images.grad,
            **{name: p.grad for name, p in layers.named_parameters()},
        }
        single = SynchronisedBatchNorm(2, affine=False).to(torch.bfloat16)
        results["half"] = single(images[rows].bfloat16()).float()
        layers.eval()
        results["eval"] = layers(images[:1]).detach()
        torch.save(
            results | {f"state {name}": value for name, value in layers.state_dict().items()},
            Path(directory) / f"{rank}.pt",
        )
    finally:
        dist.destroy_process_group()


def test_two_workers_equal_one(two_workers: list[dict[str, Tensor]]) -> None:
    images, weights = batch()
    images.requires_grad_()
    layers = network()
    y = layers(images)
    y.backward(weights)
    torch.testing.assert_close(
        torch.cat([results["y"] for results in two_workers]), y.detach(), rtol=1e-12, atol=1e-12
    )
    torch.testing.assert_close(
        torch.cat([results["images"] for results in two_workers]) / 2, images.grad, rtol=1e-10, atol=1e-12
    )
    for name, parameter in layers.named_parameters():
        average = (two_workers[0][name] + two_workers[1][name]) / 2
        torch.testing.assert_close(
            average, parameter.grad, rtol=1e-10, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}"
        )
    for name, value in layers.state_dict().items():
        torch.testing.assert_close(two_workers[0][f"state {name}"], value, rtol=1e-12, atol=1e-12)


def test_a_layer_communicates_once_forwards_and_once_backwards(two_workers: list[dict[str, Tensor]]) -> None:
    layers = sum(isinstance(layer, SynchronisedBatchNorm) for layer in network())
    for results in two_workers:
        assert results["calls"].tolist() == [layers, layers, 0, 0, 0]


def test_workers_have_equal_running_statistics(two_workers: list[dict[str, Tensor]]) -> None:
    for name in two_workers[0]:
        if name.startswith("state "):
            assert torch.equal(two_workers[0][name], two_workers[1][name]), name
    assert torch.equal(two_workers[0]["eval"], two_workers[1]["eval"])


def test_statistics_equal_the_definition(two_workers: list[dict[str, Tensor]]) -> None:
    images, _ = batch()
    layers = network()
    x = layers[0](images).detach().numpy()
    _, mean, variance = oracle.batch_norm(x, np.ones(3), np.zeros(3), 1e-5)
    np.testing.assert_allclose(two_workers[0]["state 1.running_mean"].numpy(), 0.1 * mean, rtol=1e-12)
    np.testing.assert_allclose(
        two_workers[0]["state 1.running_var"].numpy(), 0.9 + 0.1 * variance, rtol=1e-12
    )


def test_half_precision_is_normalised_in_single(two_workers: list[dict[str, Tensor]]) -> None:
    values = torch.cat([results["half"] for results in two_workers])
    torch.testing.assert_close(values.mean((0, 2, 3)), torch.zeros(2), atol=5e-3, rtol=0)
    torch.testing.assert_close(values.std((0, 2, 3), correction=0), torch.ones(2), atol=5e-3, rtol=0)
