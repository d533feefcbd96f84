"""Synchronised batch norm by torch's kernels equals its formulas. Two workers on a CPU and on the pretended
GPU, which have no such kernels, use float64 definitions of the kernels; on a GPU the kernels themselves are
compared."""

import inspect
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.device import pretended
from tests.device.fused_batch_norm import KERNELS
from tests.training.workers import run_workers
from unseen.networks import batch_norm
from unseen.networks.batch_norm import SynchronisedBatchNorm

WORLD, CHANNELS = 2, 4
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "no affine": {"affine": False},
    "no statistics": {"track_running_stats": False},
    "cumulative": {"momentum": None},
}


def _layer(options: dict[str, Any]) -> SynchronisedBatchNorm:
    torch.manual_seed(0)
    layer = SynchronisedBatchNorm(CHANNELS, **options)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def _steps(layer: SynchronisedBatchNorm, x: Tensor) -> dict[str, Tensor]:
    """Two steps, so that cumulative statistics have different weights."""
    results: dict[str, Tensor] = {}
    for step in range(2):
        points = (x * (1 + step)).detach().requires_grad_()
        y = layer(points)
        weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(step)).to(y)
        y.backward(weights)
        results |= {f"y {step}": y.detach(), f"x {step}": points.grad}
    results |= {f"gradient {name}": parameter.grad for name, parameter in layer.named_parameters()}
    return results | {f"state {name}": value.clone() for name, value in layer.state_dict().items()}


def _inputs(rank: int, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
    rows = 5 if rank == 0 else 3
    generator = torch.Generator().manual_seed(rank)
    images = torch.randn(rows, CHANNELS, 3, 2, generator=generator) * (1 + 2 * rank) + 5 * rank
    images = images.to(device, dtype)
    return {
        "images": images,
        "channels last": images.contiguous(memory_format=torch.channels_last),
        "rows": images[:, :, 0, 0],
        "sequences": images.flatten(2),
    }


def _recorded(patch: pytest.MonkeyPatch) -> list[str]:
    """The names of the exchanges from now on."""
    calls: list[str] = []
    for name in ("all_gather", "all_reduce"):

        def exchange(*arguments: Any, name: str = name, original: Any = getattr(dist, name)) -> Any:  # noqa: B008
            calls.append(name)
            return original(*arguments)

        patch.setattr(dist, name, exchange)
    return calls


def _compare(rank: int, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Results by the formulas and by the kernels, and the exchanges of the latter."""
    precision = torch.float64 if dtype == torch.float64 else torch.float32
    results: dict[str, Any] = {}
    for case, options in CASES.items():
        for shape, x in _inputs(rank, device, dtype).items():
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(batch_norm, "_has_kernels", lambda *tensors: False)
                formulas = _steps(_layer(options).to(device, precision), x)
                patch.setattr(batch_norm, "_has_kernels", lambda *tensors: True)
                calls = _recorded(patch)
                kernels = _steps(_layer(options).to(device, precision), x)
            results[f"{case}, {shape}"] = {"formulas": formulas, "kernels": kernels, "calls": calls}
    return results


def _on_cpu(rank: int, world: int) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name, kernel in KERNELS.items():
            patch.setattr(torch, name, kernel)
        double = _compare(rank, torch.device("cpu"), torch.float64)
        x = _inputs(rank, torch.device("cpu"), torch.bfloat16)["images"]
        patch.setattr(batch_norm, "_has_kernels", lambda *tensors: True)
        return {"double": double, "half": SynchronisedBatchNorm(CHANNELS)(x)}


def _on_gpu(rank: int, world: int) -> dict[str, Any]:
    device = torch.device("cuda", 0)
    layer = SynchronisedBatchNorm(CHANNELS).to(device)
    x = torch.zeros(2, CHANNELS, 1, 1, device=device)
    assert batch_norm._has_kernels(x.half(), layer.weight, layer.running_mean)
    results = {str(t): _compare(rank, device, t) for t in (torch.float32, torch.float16, torch.bfloat16)}
    return torch.utils._pytree.tree_map(lambda v: v.cpu() if isinstance(v, Tensor) else v, results)


def _assert_equal(workers: list[dict[str, Any]], relative: float, absolute: float) -> None:
    for name in workers[0]:
        for worker in workers:
            case = worker[name]
            assert case["calls"] == ["all_gather", "all_reduce"] * 2, name
            assert case["kernels"].keys() == case["formulas"].keys()
            for entry, expected in case["formulas"].items():
                actual = case["kernels"][entry]
                assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), f"{name}: {entry}"
                message = f"{name}: {entry}"
                torch.testing.assert_close(actual, expected, rtol=relative, atol=absolute, msg=message)
        first, second = (worker[name]["kernels"] for worker in workers)
        for entry in first:
            assert not entry.startswith("state") or torch.equal(first[entry], second[entry]), (
                f"{name}, {entry}"
            )


def test_two_workers_equal_the_formulas() -> None:
    workers = run_workers(_on_cpu, WORLD)
    _assert_equal([worker["double"] for worker in workers], 1e-9, 1e-9)
    values = torch.cat([worker["half"] for worker in workers])
    assert values.dtype == torch.bfloat16
    torch.testing.assert_close(values.float().mean((0, 2, 3)), torch.zeros(CHANNELS), atol=5e-3, rtol=0)


@pytest.mark.parametrize("name", KERNELS)
def test_the_definitions_have_the_signatures_of_the_kernels(name: str) -> None:
    schema = getattr(torch.ops.aten, name).default._schema
    assert [argument.name for argument in schema.arguments] == list(
        inspect.signature(KERNELS[name]).parameters
    )
    assert callable(getattr(torch, name))


def test_a_cpu_uses_the_formulas() -> None:
    assert not batch_norm._has_kernels(torch.zeros(2, 3), torch.zeros(3))


def assert_precisions_equal_the_formulas(workers: list[dict[str, Any]]) -> None:
    for precision, tolerance in ((torch.float32, 1e-4), (torch.float16, 1e-2), (torch.bfloat16, 5e-2)):
        _assert_equal([worker[str(precision)] for worker in workers], tolerance, tolerance)


def test_the_code_for_kernels_equals_the_formulas_on_the_pretended_gpu() -> None:
    assert_precisions_equal_the_formulas(pretended.run_two(_on_gpu, WORLD))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_kernels_on_a_gpu_equal_the_formulas() -> None:
    assert_precisions_equal_the_formulas(run_workers(_on_gpu, WORLD))
