"""The gather rule equals one process on the complete batch: parameters before the gather, after it, and on
both sides."""

from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import Parameter

from tests.device import pretended
from tests.training.workers import run_workers
from unseen.training import gather

B, WORLD = 12, 3


@dataclass
class Rows:
    embedding: Tensor
    count: Tensor
    extra: Tensor | None = None


def _model() -> dict[str, Parameter]:
    generator = torch.Generator().manual_seed(1)
    return {
        name: Parameter(torch.randn(4, 4, generator=generator, dtype=torch.float64))
        for name in ("before", "after", "both", "unused", "sometimes")
    }


def _inputs() -> Tensor:
    generator = torch.Generator().manual_seed(2)
    # all slices differ
    return torch.randn(B, 4, generator=generator, dtype=torch.float64) * torch.arange(1, B + 1)[:, None]


def _embed(p: dict[str, Parameter], x: Tensor) -> Tensor:
    return torch.tanh(x @ p["before"]) @ p["both"]


def _loss(p: dict[str, Parameter], z: Tensor) -> Tensor:
    """Not a sum over rows: every pair contributes, so that a gradient that stays on its worker has a wrong
    direction and size."""
    pairs = (z @ p["both"].T) @ p["after"] @ z.T / len(z)
    return torch.logsumexp(pairs, dim=1).sum() + (pairs**2).mean()


def _work(rank: int, world: int) -> dict[str, Any]:
    parameters, rows = _model(), slice(rank * B // world, (rank + 1) * B // world)
    outputs = Rows(_embed(parameters, _inputs()[rows]), torch.arange(B)[rows])
    assert gather.world_size() == world
    gathered = gather.gather_outputs(outputs)
    assert gathered.extra is None
    loss = _loss(parameters, gathered.embedding)
    if rank == 1:
        loss = loss + world * parameters["sometimes"].sum()  # a gradient on one worker only
    loss.backward()
    own_gradient = {name: None if p.grad is None else p.grad.clone() for name, p in parameters.items()}
    buckets, reductions = [], []
    for size in (1, 20, gather.BUCKET_ELEMENTS):
        gather.BUCKET_ELEMENTS = size
        for name, p in parameters.items():
            p.grad = None if own_gradient[name] is None else own_gradient[name].clone()
        with mock.patch.object(dist, "all_reduce", wraps=dist.all_reduce) as all_reduce:
            gather.average_gradients(parameters.values())
        reductions.append(all_reduce.call_count)
        buckets.append({name: None if p.grad is None else p.grad.clone() for name, p in parameters.items()})
    strides = _strides_and_gradients(rank)
    with torch.no_grad():
        gathered_rows = gather.gather_rows(outputs.embedding)

    module = nn.BatchNorm1d(3)  # float parameters, float and integer buffers
    gather.assert_same_on_all_workers(module)
    module.num_batches_tracked += 1 if rank == 1 else 0
    try:
        gather.assert_same_on_all_workers(module)
        drift = ""
    except RuntimeError as error:
        drift = str(error)
    return {
        "loss": loss.detach(),
        "rows": gathered.count,
        "own": own_gradient,
        "buckets": buckets,
        "reductions": reductions,
        "strides": strides,
        "same": torch.equal(gathered_rows, gathered.embedding),
        "drift": drift,
    }


def _strides_and_gradients(rank: int) -> list[tuple[tuple[int, ...], tuple[int, ...], Tensor]]:
    """Of channels-last convolutions, and of a matrix that is stored by columns. Before the mean, the
    gradients are channels-last, contiguous and, on one worker, missing."""
    weights = [nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last).weight for _ in range(3)]
    weights.append(Parameter(torch.randn(3, 2).T))
    for index, weight in enumerate(weights):
        values = torch.arange(float(weight.numel())).view(weight.shape) * (rank + index)
        weight.grad = values.contiguous() if index == 1 else torch.empty_like(weight).copy_(values)
    weights[2].grad = None if rank == 1 else weights[2].grad
    gather.average_gradients(weights)
    return [(weight.stride(), weight.grad.stride(), weight.grad) for weight in weights]


@pytest.fixture(scope="module")
def workers() -> list[dict[str, Any]]:
    return run_workers(_work, WORLD)


@pytest.fixture(scope="module")
def truth() -> dict[str, Any]:
    parameters = _model()
    loss = _loss(parameters, _embed(parameters, _inputs()))
    loss.backward()
    return {"loss": loss.detach(), **{name: p.grad for name, p in parameters.items()}}


def test_rows_are_in_rank_order_and_the_loss_is_that_of_the_batch(
    workers: list[dict[str, Any]], truth: dict[str, Any]
) -> None:
    for rank, worker in enumerate(workers):
        assert worker["rows"].tolist() == list(range(B))
        assert worker["same"]
        extra = WORLD * _model()["sometimes"].sum().detach() if rank == 1 else 0.0
        torch.testing.assert_close(worker["loss"] - extra, truth["loss"], rtol=1e-13, atol=0)


@pytest.mark.parametrize("name", ["before", "after", "both"])
def test_the_averaged_gradient_equals_that_of_one_process(
    workers: list[dict[str, Any]], truth: dict[str, Any], name: str
) -> None:
    for worker in workers:
        for bucket in worker["buckets"]:
            torch.testing.assert_close(
                bucket[name], truth[name], rtol=1e-12, atol=1e-12 * float(truth[name].abs().max())
            )
    if name != "after":  # check of the test: no single worker has the expected gradient
        assert all(
            (worker["own"][name] - truth[name]).norm() > 0.1 * truth[name].norm() for worker in workers
        )


def test_a_gradient_is_reduced_once(workers: list[dict[str, Any]]) -> None:
    parameters = len(_model())
    for worker in workers:
        assert worker["reductions"] == [
            parameters,
            parameters,
            1,
        ]  # two have more elements than a bucket of 20


def _waits(rank: int) -> dict[str, list[str]]:
    """On a GPU, of the mean of complete gradients, and of one to which `unused` adds nothing on all workers,
    where each gradient is a bucket and where all are one."""
    parameters = {name: Parameter(value.to(pretended.GPU)) for name, value in _model().items()}
    names = ("before", "after", "both")
    waits = {}
    for case, elements in {"complete": 1 << 20, "missing": 1 << 20, "missing, each a bucket": 1}.items():
        gather.BUCKET_ELEMENTS = elements
        for name in names:
            parameters[name].grad = torch.ones_like(parameters[name])
        averaged = [parameters[name] for name in (*names, *["unused"] * (case != "complete"))]
        with pretended.recorded() as record:
            gather.average_gradients(averaged)
        waits[case] = record.waits
        assert record.refused == []
        assert parameters["unused"].grad is None
        assert record.launches["_foreach_copy_"] == (1 if elements > 1 else 3)  # one for a bucket
        assert record.launches["copy_"] == 0
    return waits


def test_the_host_waits_once_for_all_missing_gradients_and_never_for_complete_ones() -> None:
    for waits in pretended.run_two(_waits):
        assert waits["complete"] == []
        for case in ("missing", "missing, each a bucket"):
            assert [wait.partition(",")[0] for wait in waits[case]] == ["tolist"]


def test_a_gradient_missing_on_some_workers_counts_as_zeros_and_on_all_stays_none(
    workers: list[dict[str, Any]],
) -> None:
    for worker in workers:
        for bucket in worker["buckets"]:
            assert bucket["unused"] is None
            torch.testing.assert_close(bucket["sometimes"], torch.ones(4, 4, dtype=torch.float64))


def test_averaged_gradients_have_the_strides_of_the_parameters(workers: list[dict[str, Any]]) -> None:
    """Fused optimizers refuse other strides."""
    for worker in workers:
        for index, (of_parameter, of_gradient, gradient) in enumerate(worker["strides"]):
            assert of_gradient == of_parameter
            total = sum(rank + index for rank in range(WORLD) if (rank, index) != (1, 2))
            values = torch.arange(float(gradient.numel())).view(gradient.shape)
            torch.testing.assert_close(gradient, values * total / WORLD)


def test_detects_workers_with_different_state(workers: list[dict[str, Any]]) -> None:
    assert all(worker["drift"].startswith("num_batches_tracked differ between workers") for worker in workers)


def test_one_worker_needs_no_process_group() -> None:
    rows = torch.randn(3, 2, requires_grad=True)
    assert gather.gather_rows(rows) is rows
    outputs = gather.gather_outputs(Rows(rows, torch.arange(3)))
    assert outputs.embedding is rows
    parameter = Parameter(torch.ones(2))
    gather.average_gradients([parameter])
    assert parameter.grad is None
    gather.assert_same_on_all_workers(nn.Linear(2, 2))


def test_refuses_outputs_with_another_number_of_rows() -> None:
    with pytest.raises(AssertionError, match="one row per image"):
        gather.gather_outputs(Rows(torch.zeros(3, 2), torch.zeros(2)))
