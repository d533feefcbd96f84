"""Properties of every loss and every pooling of the library. A part that is added (docs/extending.md) is
tested without further code."""

import inspect
from typing import Any, get_args

import pytest
import torch
from torch import nn

from tests.device import pretended
from tests.methods.small import CLASSES, METHODS, SAMPLES, batch, parts_of, places, recipe
from tools.docs.library import members
from unseen.cli.checks import Check, checks_of
from unseen.cli.checks.common import DIM
from unseen.cli.checks.losses import batches_without_sides, vectors
from unseen.data.loader import TrainBatch
from unseen.losses import settings as losses
from unseen.methods import modules
from unseen.methods.build import initial_method
from unseen.networks.batch_norm import SynchronisedBatchNorm
from unseen.networks.settings import Backbone
from unseen.poolings import settings as poolings
from unseen.runtime.settings import Strict
from unseen.training.optimizer import build_optimizer
from unseen.training.step import Learner, train_step

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
BUILT: dict[str, Any] = {
    kind.model_fields["name"].default: kind(**SMALL.get(kind.model_fields["name"].default, {}))
    for kind in members(losses.Loss, poolings.Pooling, poolings.AttributePooling)
    if kind not in NO_MODULE
}


LARGER: dict[str, Any] = {
    **{name: recipe(name, backbone={"batch_norm": "frozen"}) for name in METHODS},
    **{
        name: Backbone(name=name, pretrained=False, stages=(0, 1, 2))
        for name in ("resnet20_preact", "mit_b1")
    },
}


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


@pytest.mark.parametrize(
    ("settings", "check"),
    [
        pytest.param(settings, check, id=f"{name}-{check.__name__}")
        for name, settings in {**BUILT, **LARGER}.items()
        for check in checks_of(settings)
    ],
)
def test_a_part_has_a_property(settings: Strict, check: Check) -> None:
    check(settings)


def loss_of(name: str) -> nn.Module:
    """A pair loss, or a proxy loss of 4 classes, in float64."""
    torch.manual_seed(0)
    return modules.loss((PAIRS | PROXIES)[name](), classes=4, dim=DIM).double().train()


@pytest.mark.parametrize("name", [*PAIRS, *PROXIES])
def test_a_loss_is_positive_and_without_pairs_not_negative(name: str) -> None:
    loss = loss_of(name)
    assert loss(*vectors(9, 1)) > 0
    for call in batches_without_sides(BUILT[name]).values():
        assert loss(*call) >= -1e-12


def _every_loss_on_both_devices() -> None:
    for name in (*PAIRS, *PROXIES):
        batch, memory, positions = vectors(9, 1), vectors(14, 3), torch.arange(9)
        memory[0][positions], memory[1][positions] = batch
        cases = [batch] if name in PROXIES else [batch, (*batch, *memory, positions)]
        for case in cases:
            results = []
            for device in (pretended.CPU, pretended.GPU):
                loss = loss_of(name).to(device)
                points, *others = (value.clone().to(device) for value in case)
                with pretended.recorded() as record:
                    value = loss(points.requires_grad_(), *others)
                    value.backward()
                assert points.grad is not None
                results.append((value.detach().cpu(), points.grad.cpu()))
            torch.testing.assert_close(*results)
            assert record.waits == [], name
            assert record.launches, name


@pytest.mark.slow
def test_every_loss_is_equal_on_a_gpu_and_reads_nothing() -> None:
    pretended.run(_every_loss_on_both_devices)


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_loss_does_not_depend_on_rotation(name: str) -> None:
    loss, batch, memory = loss_of(name), vectors(12, 5), vectors(30, 6)
    noise = torch.randn(DIM, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    turn = torch.linalg.qr(noise).Q
    turned = loss(batch[0] @ turn, batch[1], memory[0] @ turn, memory[1])
    torch.testing.assert_close(turned, loss(*batch, *memory))


@pytest.mark.parametrize("name", PROXIES)
def test_a_loss_does_not_depend_on_rotation_and_on_the_length_of_proxies(name: str) -> None:
    loss, (embeddings, labels) = loss_of(name), vectors(12, 5)
    expected = loss(embeddings, labels)
    turn = torch.linalg.qr(torch.randn(DIM, DIM, dtype=torch.float64)).Q
    (parameter,) = loss.parameters()
    with torch.no_grad():
        parameter.copy_(7 * parameter @ turn)
    torch.testing.assert_close(loss(embeddings @ turn, labels), expected)


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
