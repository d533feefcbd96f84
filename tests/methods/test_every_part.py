"""Properties of every loss and every pooling of the library. A part that is added (docs/extending.md) is
tested without further code."""

import inspect
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from tests.device.host_reads import HostReads, pretend_gpu
from tests.methods.small import CLASSES, SAMPLES, SIDE, batch, parts_of, places, recipe
from tools.docs.library import members
from unseen.data.loader import TrainBatch
from unseen.losses import settings as losses
from unseen.losses.memory import CrossBatchMemory
from unseen.methods import modules
from unseen.methods.build import initial_method
from unseen.networks.backbone import Backbone
from unseen.networks.batch_norm import SynchronisedBatchNorm
from unseen.poolings import settings as poolings
from unseen.training.optimizer import build_optimizer
from unseen.training.step import Learner, train_step

DIM = 8
PAIRS, PROXIES, MAPS = (
    parts_of(union) for union in (losses.AnyPairLoss, losses.AnyProxyLoss, poolings.AnyMapPooling)
)
OF_A_KIND = {
    poolings.SecondOrderPooling,
    poolings.GsopPooling,
}  # built without settings: one needs an attention, one the number of positions
NO_MODULE = {losses.HybridLoss, poolings.ClsPooling}
SMALL: dict[str, dict[str, Any]] = {
    "gsop": {"attention_dim": 4},
    "netvlad": {"centers": 4},
    "optimal_transport": {"prototypes": 4},
}
pairs, proxies, maps = (pytest.mark.parametrize("name", names) for names in (PAIRS, PROXIES, MAPS))


@pytest.mark.parametrize(
    ("union", "build_arguments"),
    [
        (losses.AnyPairLoss, ()),
        (losses.AnyProxyLoss, ("classes", "dim")),
        (poolings.AnyMapPooling, ("channels", "dim")),
        (poolings.AnyAttributePooling, ("channels", "dim")),
    ],
)
def test_the_fields_of_every_part_are_the_arguments_of_its_module(
    union: Any, build_arguments: tuple[str, ...]
) -> None:
    for settings in set(get_args(union)) - OF_A_KIND:
        arguments = inspect.signature(modules.load(settings.module)).parameters
        if not any(argument.kind == argument.VAR_KEYWORD for argument in arguments.values()):
            assert set(arguments) - set(build_arguments) == set(settings.model_fields) - {"name"}, (
                settings.__name__
            )
            if union is poolings.AnyMapPooling:
                assert ("dim" in arguments) is settings.projects, settings.__name__


@pytest.mark.parametrize("settings", members(losses.Loss, poolings.Pooling, poolings.AttributePooling))
def test_the_settings_state_what_the_module_states(settings: Any) -> None:
    stated = "inputs" if issubclass(settings, losses.LossSettings) else "projects"
    if settings not in NO_MODULE:
        assert getattr(modules.load(settings.module), stated) == getattr(settings, stated)


def loss_of(name: str) -> nn.Module:
    """A pair loss, or a proxy loss of 4 classes, in float64."""
    torch.manual_seed(0)
    return modules.loss((PAIRS | PROXIES)[name](), classes=4, dim=DIM).double().train()


def vectors(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, DIM, dtype=torch.float64, generator=generator) + 0.5
    return normalize(rows, dim=1), torch.randint(0, 4, (count,), generator=generator)


@pytest.mark.parametrize("name", [*PAIRS, *PROXIES])
def test_a_loss_is_positive_and_its_gradient_equals_finite_differences(name: str) -> None:
    loss, (embeddings, labels) = loss_of(name), vectors(9, 1)
    assert loss(embeddings, labels) > 0
    assert torch.autograd.gradcheck(
        lambda rows: loss(normalize(rows, dim=1), labels), embeddings.requires_grad_()
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PAIRS, *PROXIES])
def test_the_code_for_gpus_is_equal_and_reads_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loss, batch, memory = loss_of(name), vectors(9, 1), vectors(14, 3)
    positions = torch.arange(9)
    memory[0][positions], memory[1][positions] = batch
    cases = [batch] if name in PROXIES else [batch, (*batch, *memory, positions)]
    for case in cases:
        results = []
        for gpu in (False, True):
            with monkeypatch.context() as patched, HostReads() as reads:
                if gpu:
                    pretend_gpu(patched)
                inputs = [value.clone() for value in case]
                value = loss(inputs[0].requires_grad_(), *inputs[1:])
                value.backward()
                results.append((value.detach(), inputs[0].grad, reads.names))
        torch.testing.assert_close(results[1][:2], results[0][:2])
        assert results[1][2] == []


@pytest.mark.slow
@pairs
def test_gradients_to_references_equal_finite_differences(name: str) -> None:
    loss, (embeddings, labels), (references, reference_labels) = loss_of(name), vectors(6, 2), vectors(11, 3)
    positions = torch.tensor([4, 0, 1, 2, 9, 7])
    references[positions], reference_labels[positions] = embeddings, labels
    inputs = (embeddings.requires_grad_(), references.clone().requires_grad_())
    assert torch.autograd.gradcheck(
        lambda rows, beside: loss(
            normalize(rows, dim=1), labels, normalize(beside, dim=1), reference_labels, positions
        ),
        inputs,
    )


@pytest.mark.parametrize("name", [*PAIRS, *PROXIES])
def test_a_loss_does_not_depend_on_the_order_of_a_batch(name: str) -> None:
    loss, (embeddings, labels) = loss_of(name), vectors(12, 4)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(loss(embeddings[order], labels[order]), loss(embeddings, labels))


@pairs
def test_a_loss_does_not_depend_on_order_of_references_and_rotation(name: str) -> None:
    loss, (embeddings, labels), (references, reference_labels) = loss_of(name), vectors(12, 5), vectors(30, 6)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    turn = torch.linalg.qr(
        torch.randn(DIM, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ).Q
    expected = loss(embeddings, labels, references, reference_labels)
    torch.testing.assert_close(loss(embeddings, labels, references[order], reference_labels[order]), expected)
    torch.testing.assert_close(loss(embeddings @ turn, labels, references @ turn, reference_labels), expected)


@pairs
def test_a_batch_in_its_memory_equals_the_batch_without_memory(name: str) -> None:
    loss, (embeddings, labels) = loss_of(name), vectors(10, 7)
    memory = CrossBatchMemory(13, DIM).double()
    memory.enqueue(*vectors(8, 8))
    memory.pointer.zero_()
    memory.filled.zero_()
    positions = memory.enqueue(embeddings, labels)
    torch.testing.assert_close(loss(embeddings, labels, *memory.valid(), positions), loss(embeddings, labels))


@pairs
@pytest.mark.parametrize(
    "kind",
    [
        "no positives",
        "no negatives",
        "one image",
        "references of other classes alone",
        "all the same picture",
    ],
)
def test_value_and_gradient_are_finite_without_pairs(name: str, kind: str) -> None:
    embeddings, _ = vectors(1 if kind == "one image" else 4, 9)
    if kind == "all the same picture":
        embeddings = embeddings[:1].repeat(4, 1)
    labels = torch.tensor([0, 0, 1, 1]) if kind == "all the same picture" else torch.arange(len(embeddings))
    if kind == "no negatives":
        labels = torch.zeros(4, dtype=torch.int64)
    references = (vectors(6, 10)[0], torch.full((6,), 99)) if kind.startswith("references") else ()
    value = loss_of(name)(embeddings.requires_grad_(), labels, *references)
    value.backward()
    assert value.isfinite()
    assert value >= -1e-12
    assert embeddings.grad is not None
    assert embeddings.grad.isfinite().all()


@pytest.mark.parametrize("name", [*PAIRS, *PROXIES])
def test_a_loss_computes_in_single_precision(name: str) -> None:
    loss, (embeddings, labels) = loss_of(name).float(), vectors(10, 11)
    half_precision = embeddings.bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(half_precision, labels)
    value.backward()
    assert value.dtype == torch.float32
    assert value == loss(half_precision.detach().float(), labels)
    assert half_precision.grad is not None
    assert half_precision.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("name", [*PAIRS, *PROXIES])
def test_a_loss_depends_only_on_arguments_and_parameters(name: str) -> None:
    """Every worker computes the loss of the complete batch. Random numbers or hidden state would make the
    workers differ."""
    loss, (embeddings, labels) = loss_of(name), vectors(10, 12)
    state_before = {key: value.clone() for key, value in loss.state_dict().items()}
    torch.manual_seed(1)
    first = loss(embeddings, labels)
    torch.manual_seed(2)
    assert torch.equal(loss(embeddings, labels), first)
    assert all(torch.equal(state_before[key], value) for key, value in loss.state_dict().items())


def pooling_of(name: str) -> tuple[nn.Module, Tensor]:
    """A pooling of maps of 4 x 4, and six such maps."""
    torch.manual_seed(0)
    network = Backbone("test_resnet", arguments={"output_stride": 8})
    built = modules.map_pooling(MAPS[name](**SMALL.get(name, {})), network, DIM, SIDE)
    return built.train(), torch.randn(
        6, network.channels[-1], 4, 4, generator=torch.Generator().manual_seed(1)
    )


@maps
def test_a_pooling_gives_vectors_of_its_dim(name: str) -> None:
    pooling, features = pooling_of(name)
    pooled = pooling.eval()(features)
    assert pooled.shape == (6, pooling.out_channels)
    assert not pooling.projects or pooling.out_channels == DIM
    assert pooled.isfinite().all()


@maps
@pytest.mark.parametrize("training", [True, False])
def test_a_pooling_is_independent_for_each_image(name: str, training: bool) -> None:
    """Each worker pools its own images. Only batch norm combines images, in training and over all workers."""
    pooling, features = pooling_of(name)
    normalising = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in pooling.modules())
    pooling.train(training and not normalising)
    torch.testing.assert_close(
        torch.cat([pooling(features[:2]), pooling(features[2:])]), pooling(features), rtol=1e-4, atol=1e-5
    )


@maps
def test_a_pooling_gives_single_precision_under_autocast(name: str) -> None:
    pooling, features = pooling_of(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pooled = pooling.eval()(features.bfloat16())
    assert pooled.dtype == torch.float32
    torch.testing.assert_close(pooled, pooling(features), rtol=0.1, atol=0.1)


@maps
def test_a_zero_map_has_a_finite_gradient(name: str) -> None:
    pooling, features = pooling_of(name)
    zeros = torch.zeros_like(features).requires_grad_()
    pooling(zeros).sum().backward()
    assert zeros.grad is not None
    assert zeros.grad.isfinite().all()


@pytest.mark.parametrize(
    "part", [*(f"loss {name}" for name in [*PAIRS, *PROXIES]), *(f"pooling {name}" for name in MAPS)]
)
def test_two_training_steps_change_every_parameter(part: str) -> None:
    key, name = part.split()
    blocks = {key: {"name": name, **SMALL.get(name, {})}, "backbone": {"arguments": {"output_stride": 8}}}
    settings = recipe(
        "baseline",
        optimizer={"name": "adamw", "learning_rate": 1e-3},
        training={"precision": "float32"},
        **blocks,
    )
    method = initial_method(settings, CLASSES, SAMPLES, seed=0).train()
    parameters_before = {name: parameter.detach().clone() for name, parameter in method.named_parameters()}
    learner = Learner(
        method,
        build_optimizer(settings.optimizer, method.parameter_groups(), torch.device("cpu")),
        settings,
        0,
    )
    for step in range(2):
        images, labels = batch(step)
        result = train_step(
            learner,
            TrainBatch(step, (128 + 40 * images).clamp(0, 255).to(torch.uint8), labels, places(labels)),
        )
        assert result.result().loss > 0
    assert all(
        isinstance(module, SynchronisedBatchNorm)
        for module in method.modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
    )
    assert [
        name
        for name, parameter in method.named_parameters()
        if torch.equal(parameter, parameters_before[name])
    ] == []
