"""Optimizers and schedules equal their formulas."""

import math

import pytest
import torch
from torch.nn import Parameter

from tests.training.jobs import recipe
from unseen.methods.build import initial_method
from unseen.methods.settings import Optimizer, Schedule
from unseen.runtime.errors import UserError
from unseen.training.optimizer import build_optimizer, factor, set_learning_rate
from unseen.training.run import optimizer_of

CPU = torch.device("cpu")


def _groups() -> dict[str, list[Parameter]]:
    torch.manual_seed(0)
    weight, bias, frozen = (
        Parameter(torch.randn(3, 2)),
        Parameter(torch.randn(3)),
        Parameter(torch.randn(2, 2), requires_grad=False),
    )
    return {"backbone": [weight, bias, frozen], "head": [], "proxies": [Parameter(torch.randn(4, 2))]}


def _step(
    settings: Optimizer, gradient: float
) -> tuple[dict[str, list[Parameter]], dict[str, list[torch.Tensor]]]:
    groups = _groups()
    values_before = {name: [p.detach().clone() for p in members] for name, members in groups.items()}
    optimizer = build_optimizer(settings, groups, CPU)
    for parameter in (p for members in groups.values() for p in members if p.requires_grad):
        parameter.grad = torch.full_like(parameter, gradient)
    optimizer.step()
    return groups, values_before


def test_adamw_decays_only_matrices() -> None:
    # With a zero gradient the Adam update is 0 / (0 + eps) = 0, so that only decay changes the values.
    settings = Optimizer(name="adamw", learning_rate=0.1, weight_decay=0.5, multipliers={"proxies": 4.0})
    groups, values_before = _step(settings, 0.0)
    torch.testing.assert_close(groups["backbone"][0].data, values_before["backbone"][0] * (1 - 0.1 * 0.5))
    torch.testing.assert_close(groups["backbone"][1].data, values_before["backbone"][1], rtol=0, atol=0)
    torch.testing.assert_close(groups["backbone"][2].data, values_before["backbone"][2], rtol=0, atol=0)
    torch.testing.assert_close(groups["proxies"][0].data, values_before["proxies"][0] * (1 - 0.4 * 0.5))


def test_the_factor_of_a_group_scales_its_decay() -> None:
    settings = Optimizer(name="adamw", learning_rate=0.1, weight_decay=0.5, decay={"proxies": 0.0})
    groups, values_before = _step(settings, 0.0)
    torch.testing.assert_close(groups["backbone"][0].data, values_before["backbone"][0] * (1 - 0.1 * 0.5))
    assert torch.equal(groups["proxies"][0].data, values_before["proxies"][0])


def test_an_anchor_is_the_gradient_step_of_l2_sp_on_the_backbone() -> None:
    """Each step first makes a gradient step of anchor / 2 ||w - w_0||^2, with the rate of the layer."""
    groups = _groups()
    weight, bias = groups["backbone"][:2]
    settings = Optimizer(name="adamw", learning_rate=0.1, weight_decay=0.0, layer_decay=0.5, anchor=2.0)
    optimizer = build_optimizer(settings, groups, CPU, [[weight], [bias]])
    initial = {p: p.detach().clone() for members in groups.values() for p in members}
    set_learning_rate(optimizer, 0.5)
    for parameter in initial:
        parameter.data += 1.0
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    proxies = groups["proxies"][0]
    for parameter, distance in ((weight, 1 - 0.025 * 2), (bias, 1 - 0.05 * 2), (proxies, 1.0)):
        torch.testing.assert_close(parameter.data, initial[parameter] + distance)


def test_factors_and_anchors_are_written_only_if_they_are_set() -> None:
    """Recipes of earlier trainings have neither, and their digests must not change."""
    assert not {"decay", "anchor"} & Optimizer().model_dump(mode="json").keys()
    settings = Optimizer(decay={"proxies": 0.0}, anchor=1.0)
    assert Optimizer.model_validate_json(settings.model_dump_json()) == settings


def test_adam_couples_the_decay_to_the_gradient_of_every_parameter() -> None:
    # First step of Adam: m / sqrt(v) is the sign of the gradient, here of weight_decay * parameter.
    groups, values_before = _step(Optimizer(name="adam", learning_rate=0.1, weight_decay=0.5), 0.0)
    for index in (0, 1):
        torch.testing.assert_close(
            groups["backbone"][index].data,
            values_before["backbone"][index] - 0.1 * values_before["backbone"][index].sign(),
            rtol=1e-5,
            atol=1e-6,
        )


def test_sgd_uses_gradient_decay_and_momentum() -> None:
    groups = _groups()
    optimizer = build_optimizer(
        Optimizer(name="sgd", learning_rate=0.1, weight_decay=0.5, momentum=0.9), groups, CPU
    )
    weight = groups["backbone"][0]
    expected, speed = weight.detach().clone(), torch.zeros_like(weight)
    for _ in range(3):
        for members in groups.values():
            for parameter in members:
                parameter.grad = torch.full_like(parameter, 2.0) if parameter.requires_grad else None
        optimizer.step()
        speed = 0.9 * speed + 2.0 + 0.5 * expected
        expected = expected - 0.1 * speed
    torch.testing.assert_close(weight.data, expected)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "rmsprop"])
def test_a_gpu_has_the_fused_implementation_and_a_cpu_neither(name: str) -> None:
    """torch accepts `fused` for parameters on a CPU too. RMSprop has no fused implementation, and that of SGD
    fails for parameters that join later."""
    settings = Optimizer.model_validate({"name": name, "learning_rate": 0.1})
    implementations = {
        device: {
            (bool(group.get("fused")), bool(group["foreach"]))
            for group in build_optimizer(settings, _groups(), torch.device(device)).param_groups
        }
        for device in ("cpu", "cuda")
    }
    on_gpu = (False, True) if name in ("rmsprop", "sgd") else (True, False)
    assert implementations == {"cpu": {(False, False)}, "cuda": {on_gpu}}


def test_refuses_an_unknown_parameter_group() -> None:
    with pytest.raises(UserError, match=r"no parameter group 'proxy'.*\n.*backbone, head, proxies"):
        build_optimizer(Optimizer(multipliers={"proxy": 2.0}), _groups(), CPU)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Schedule(), [1.0] * 10),
        (Schedule(warmup=4), [0.25, 0.5, 0.75, 1.0, 1, 1, 1, 1, 1, 1]),
        (
            Schedule(name="step", milestones=(3, 6), factor=0.1),
            [1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01],
        ),
        (
            Schedule(name="step", every=4, milestones=(5,), factor=0.5),
            [1, 1, 1, 1, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125],
        ),
        (
            Schedule(name="cosine", warmup=2),
            [0.5, 1.0] + [0.5 * (1 + math.cos(math.pi * t / 8)) for t in range(8)],
        ),
        (Schedule(name="cosine", warmup=20), [(t + 1) / 20 for t in range(10)]),
    ],
)
def test_the_factor_is_a_function_of_the_step(schedule: Schedule, expected: list[float]) -> None:
    assert [factor(schedule, step, 10) for step in range(10)] == pytest.approx(expected)


def test_the_learning_rate_of_a_group_is_its_peak_times_the_factor() -> None:
    optimizer = build_optimizer(
        Optimizer(name="sgd", learning_rate=0.1, multipliers={"proxies": 10.0}), _groups(), CPU
    )
    set_learning_rate(optimizer, 0.5)
    set_learning_rate(optimizer, 0.25)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.025, 0.25])


@pytest.mark.parametrize(
    ("validations", "expected"),
    [
        ([], 1.0),
        ([0.3, 0.2, 0.2], 1.0),  # two validations without improvement are accepted
        ([0.3, 0.2, 0.2, 0.3], 0.1),  # an equal value is not an improvement
        ([0.3, 0.2, 0.2, 0.3, 0.1, 0.1], 0.1),  # the count restarts
        ([0.3, 0.2, 0.2, 0.3, 0.1, 0.1, 0.1], 0.05),  # not below the minimum
        ([0.3, 0.2, 0.2, 0.4, 0.1, 0.1], 1.0),
    ],
)
def test_a_plateau_lowers_the_rate(validations: list[float], expected: float) -> None:
    schedule = Schedule(name="plateau", factor=0.1, patience=2, minimum=0.05, warmup=3)
    assert factor(schedule, 50, 100, validations) == pytest.approx(expected)
    assert factor(schedule, 0, 100, validations) == pytest.approx(1 / 3)


@pytest.mark.parametrize(("threshold", "cooldown"), [(0.0, 0), (0.05, 0), (0.0, 2), (1e-3, 2)])
def test_a_plateau_equals_that_of_torch(threshold: float, cooldown: int) -> None:
    generator = torch.Generator().manual_seed(0)
    values = (torch.rand(60, generator=generator) + torch.linspace(0, 1, 60)).tolist()
    optimizer = torch.optim.SGD([Parameter(torch.zeros(1))], lr=1.0)
    plateau = {"factor": 0.5, "patience": 3, "threshold": threshold, "cooldown": cooldown}
    peer = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", min_lr=0.02, **plateau)
    schedule = Schedule.model_validate({"name": "plateau", "minimum": 0.02, **plateau})
    rates = []
    for count, value in enumerate(values, start=1):
        peer.step(value)
        rates.append(factor(schedule, 0, 100, values[:count]))
        assert rates[-1] == pytest.approx(optimizer.param_groups[0]["lr"])
    assert rates[-1] < 0.2, "the rate decreased more than twice"


def test_rates_decrease_by_layer_towards_the_stem() -> None:
    layers = [
        [Parameter(torch.zeros(2, 2))],
        [Parameter(torch.zeros(2, 2)), Parameter(torch.zeros(2))],
        [Parameter(torch.zeros(1))],
    ]
    head = Parameter(torch.zeros(3, 3))
    groups = {"backbone": [p for layer in layers for p in layer], "head": [head]}
    optimizer = build_optimizer(
        Optimizer(learning_rate=1.0, layer_decay=0.5, multipliers={"head": 10.0}), groups, CPU, layers
    )
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert [[rates[id(p)] for p in layer] for layer in layers] == [[0.25], [0.5, 0.5], [1.0]]
    assert rates[id(head)] == 10.0


def test_rates_by_layer_need_a_network_with_layers() -> None:
    settings = recipe("baseline", optimizer={"layer_decay": 0.5})
    method = initial_method(settings, 3, 12, 0)
    optimizer_of(method, settings, CPU)
    method.backbone.network = torch.nn.Identity()
    with pytest.raises(UserError, match=r"layer_decay is 0\.5: timm does not define .*\n.*layer_decay to 1"):
        optimizer_of(method, settings, CPU)


@pytest.mark.parametrize(
    ("name", "decay_vectors", "moved"),
    [("adamw", True, True), ("adamw", None, False), ("sgd", None, True), ("sgd", False, False)],
)
def test_vectors_decay_if_configured(name: str, decay_vectors: bool | None, moved: bool) -> None:
    arguments = {
        "name": name,
        "learning_rate": 0.1,
        "weight_decay": 0.5,
        "momentum": 0.0,
        "decay_vectors": decay_vectors,
    }
    settings = Optimizer.model_validate(arguments)
    groups, values_before = _step(settings, 0.0)
    weight, bias, _ = groups["backbone"]
    assert not torch.equal(weight, values_before["backbone"][0])
    assert torch.equal(bias, values_before["backbone"][1]) is not moved


def test_epsilon_is_passed_to_adam() -> None:
    groups, values_before = _step(Optimizer(learning_rate=0.1, weight_decay=0.0, epsilon=1.0), 3.0)
    torch.testing.assert_close(
        groups["backbone"][0].data, values_before["backbone"][0] - 0.1 * 3.0 / (3.0 + 1.0)
    )


def test_rmsprop_equals_its_formula() -> None:
    groups, values_before = _step(
        Optimizer(name="rmsprop", learning_rate=0.1, weight_decay=0.0, momentum=0.0), 2.0
    )
    torch.testing.assert_close(
        groups["backbone"][0].data, values_before["backbone"][0] - 0.1 * 2.0 / (math.sqrt(0.01 * 4.0) + 1e-8)
    )


def test_nesterov_is_passed_to_sgd() -> None:
    groups, values_before = _step(
        Optimizer(name="sgd", learning_rate=0.1, weight_decay=0.0, momentum=0.5, nesterov=True), 2.0
    )
    torch.testing.assert_close(
        groups["backbone"][0].data, values_before["backbone"][0] - 0.1 * (2.0 + 0.5 * 2.0)
    )
