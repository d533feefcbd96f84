"""Gradients that are reduced during the backward pass have the bits of those that are averaged after it.
Workers with gloo on a CPU run the code for GPUs."""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import Parameter

from tests.device import pretended
from tests.methods.small import CLASSES, SAMPLES, batch, places
from tests.training.jobs import recipe
from tests.training.workers import run_workers
from unseen.data.loader import TrainBatch
from unseen.methods.build import initial_method
from unseen.methods.settings import Recipe
from unseen.networks.batch_norm import SynchronisedBatchNorm
from unseen.training import gather, overlap
from unseen.training.optimizer import build_optimizer
from unseen.training.step import Learner, train_step

WORLD = 3  # the sum of three depends on its order
LAYERS = 6
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
_FROZEN = {"backbone": {"batch_norm": "frozen"}}
_SGD = {"name": "sgd", "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 1e-3}
TRAININGS: dict[str, tuple[Recipe, int | None]] = {  # images per pass
    "proxies": (recipe("baseline", loss={"name": "proxy_anchor"}, optimizer=_SGD, **_FROZEN), None),
    "passes": (recipe("baseline", loss={"name": "proxy_anchor"}, optimizer=_SGD, **_FROZEN), 2),
    "new layers": (recipe("baseline", optimizer={**_SGD, "new_layers_only": 1}, **_FROZEN), None),
}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(4, 4, 3, padding=1) for _ in range(LAYERS)]
    return nn.Sequential(*convolutions).to(memory_format=torch.channels_last)


def _gradients(parameters: Iterable[Parameter]) -> list[Tensor | None]:
    return [None if p.grad is None else p.grad.clone() for p in parameters]


def _average_in_reverse(parameters: Sequence[Parameter]) -> None:
    gather.average_gradients(reversed(parameters))


def _backward(rank: int, absent: dict[int, int], average: Any, monkeypatch: Any) -> dict[str, Any]:
    """Gradients of a chain of convolutions. absent: the layer that a worker bypasses, by rank."""
    layers = network()
    parameters = [Parameter(torch.zeros(3)), *layers.parameters()]  # the first has no gradient on any worker
    x = torch.randn(2, 4, 5, 5, generator=torch.Generator().manual_seed(rank))
    for index, layer in enumerate(layers):
        x = x if absent.get(rank) == index else layer(x)
    events: list[str] = []
    layers[0].weight.register_post_accumulate_grad_hook(lambda _: events.append("backward ends"))
    original = dist.all_reduce

    def all_reduce(flat: Tensor, **options: Any) -> Any:
        events.append("all-reduce")
        return original(flat, **options)

    with monkeypatch.context() as patch:
        patch.setattr(dist, "all_reduce", all_reduce)
        with average(parameters):
            x.square().sum().backward(inputs=parameters)
    strides = [(p.stride(), p.grad.stride()) for p in parameters if p.grad is not None]
    return {"gradients": _gradients(parameters), "events": events, "strides": strides}


@contextlib.contextmanager
def _after_in_reverse(parameters: Sequence[Parameter]) -> Any:
    yield
    _average_in_reverse(parameters)


def _train(name: str, rank: int, world: int, device: torch.device = CPU) -> list[Any]:
    settings, images_per_pass = TRAININGS[name]
    method = initial_method(settings, CLASSES, SAMPLES, seed=0).to(device).train()
    optimizer = build_optimizer(settings.optimizer, method.parameter_groups(), device)
    learner = Learner(method, optimizer, settings, 0, rank, images_per_pass)
    rows = slice(rank * 12 // world, (rank + 1) * 12 // world)
    gradients = []
    for step in range(3):
        images, labels = batch(step)
        pixels = (128 + 40 * images).clamp(0, 255).to(torch.uint8)
        slice_ = TrainBatch(step, pixels[rows], labels[rows], places(labels)[rows])
        train_step(learner, slice_).result()
        gradients.append(_gradients(method.parameters()))
    return gradients


def _work(rank: int, world: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "BUCKET_ELEMENTS", 300)
        for case, absent in {"complete": {}, "missing": {0: 1, 2: 4}}.items():
            results[case] = {
                "during": _backward(rank, absent, overlap._during, patch),
                "after": _backward(rank, absent, _after_in_reverse, patch),
            }
        for name in TRAININGS:
            patch.setattr(overlap, "average_gradients", _average_in_reverse)
            after = _train(name, rank, world)
            patch.setattr(overlap, "overlaps", lambda method, device: True)
            patch.delattr(overlap, "average_gradients")
            results[name] = {"during": _train(name, rank, world), "after": after}
            patch.undo()
            patch.setattr(gather, "BUCKET_ELEMENTS", 300)
    parameters, refused = list(network().parameters()), False
    try:
        with overlap._during(parameters):
            for _ in range(2):
                sum(p.sum() for p in parameters).backward()
    except AssertionError:
        refused = True
    results["refused"] = refused
    return results


@pytest.fixture(scope="module")
def workers() -> list[dict[str, Any]]:
    return run_workers(_work, WORLD)


def assert_same_bits(actual: list[Tensor | None], expected: list[Tensor | None]) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)


@pytest.mark.parametrize("case", ["complete", "missing"])
def test_bits_equal_those_of_the_mean_after_the_backward_pass(
    case: str, workers: list[dict[str, Any]]
) -> None:
    first = workers[0][case]["after"]["gradients"]
    assert first[0] is None
    assert all(gradient is not None and gradient.any() for gradient in first[1:])
    for worker in workers:
        assert_same_bits(worker[case]["during"]["gradients"], worker[case]["after"]["gradients"])
        assert_same_bits(worker[case]["during"]["gradients"], first)
        assert all(
            of_gradient == of_parameter for of_parameter, of_gradient in worker[case]["during"]["strides"]
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAININGS)
def test_trainings_have_the_same_bits(name: str, workers: list[dict[str, Any]]) -> None:
    for worker in workers:
        steps = zip(
            *(worker[name][path] for path in ("during", "after")), workers[0][name]["after"], strict=True
        )
        for during, after, of_first_worker in steps:
            assert_same_bits(during, after)
            assert_same_bits(during, of_first_worker)  # nothing is added after the mean
            assert any(gradient is not None and gradient.any() for gradient in during)


def test_buckets_are_reduced_before_the_backward_pass_ends(workers: list[dict[str, Any]]) -> None:
    for rank, worker in enumerate(workers):
        for case in ("complete", "missing"):
            during, after = (worker[case][path]["events"] for path in ("during", "after"))
            assert sorted(during) == sorted(after)
            assert after[0] == "backward ends"
            # Layer 4 is in the first bucket. Without its gradient here, no bucket begins.
            assert (during[0] == "all-reduce") == (case == "complete" or rank != 2)
        assert worker["complete"]["during"]["events"][:2] == ["all-reduce"] * 2


def test_refuses_a_second_backward_pass(workers: list[dict[str, Any]]) -> None:
    assert all(worker["refused"] for worker in workers)


def test_one_worker_cpus_and_synchronised_batch_norm_average_after_the_backward_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpu, gpu, layers = torch.device("cpu"), torch.device("cuda"), nn.Sequential(SynchronisedBatchNorm(4))
    assert not overlap.overlaps(nn.Linear(2, 2), gpu)
    monkeypatch.setattr(overlap, "world_size", lambda: 2)
    assert overlap.overlaps(nn.Linear(2, 2), gpu)
    assert not overlap.overlaps(nn.Linear(2, 2), cpu)
    assert not overlap.overlaps(layers, gpu)
    assert overlap.overlaps(layers.eval(), gpu)


def _on_gpu(rank: int, world: int) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "BUCKET_ELEMENTS", 300)
        return {
            name: {"cpu": _train(name, rank, world), "gpu": _on_host(_train(name, rank, world, GPU))}
            for name in TRAININGS
        }


def _on_pretended_gpu(rank: int) -> dict[str, Any]:
    """Trainings whose reductions overlap, those that reduce afterwards, and those on the CPU."""
    results: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "BUCKET_ELEMENTS", 300)
        during, started = overlap._during, []
        for name in TRAININGS:
            patch.setattr(overlap, "_during", lambda p: (started.append(0), during(p))[1])
            with pretended.recorded() as record:
                overlapped = _train(name, rank, 2, GPU)
            assert record.refused == []
            patch.setattr(overlap, "overlaps", lambda method, device: False)
            patch.setattr(overlap, "average_gradients", _average_in_reverse)
            afterwards = _train(name, rank, 2, GPU)
            on_cpu = _train(name, rank, 2, CPU)
            patch.undo()
            patch.setattr(gather, "BUCKET_ELEMENTS", 300)
            results[name] = {"during": _on_host(overlapped), "after": _on_host(afterwards), "cpu": on_cpu}
    return results | {"started": len(started)}


def _on_host(steps: list[list[Tensor | None]]) -> list[list[Tensor | None]]:
    return [[None if gradient is None else gradient.cpu() for gradient in step] for step in steps]


@pytest.mark.slow
def test_overlapped_trainings_on_a_gpu_have_the_same_bits() -> None:
    """On the pretended GPU. The first gradients are those of the CPU; later ones are rounded differently."""
    for worker in pretended.run_two(_on_pretended_gpu):
        assert worker["started"] == 3 * len(TRAININGS)  # steps
        for name in TRAININGS:
            for during, after in zip(worker[name]["during"], worker[name]["after"], strict=True):
                assert_same_bits(during, after)
            assert_same_bits(worker[name]["during"][0], worker[name]["cpu"][0])
            for on_gpu, on_cpu in zip(worker[name]["during"][2], worker[name]["cpu"][2], strict=True):
                torch.testing.assert_close(on_gpu, on_cpu, rtol=1e-3, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_two_workers_train_on_one_gpu() -> None:
    """With the fused optimizer. The gradients of the first step are those of a CPU, to rounding."""
    for worker in run_workers(_on_gpu, 2):
        for training in worker.values():
            for on_gpu, on_cpu in zip(training["gpu"][0], training["cpu"][0], strict=True):
                assert (on_gpu is None) == (on_cpu is None)
                if on_gpu is not None:
                    size = float(on_cpu.abs().max())
                    torch.testing.assert_close(on_gpu, on_cpu, rtol=0, atol=1e-2 * size + 1e-6)
