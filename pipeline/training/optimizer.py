"""Optimizer and schedule of a recipe.

    learning rate of parameter p at step t

        learning_rate * multipliers[group of p] * layer_decay ** d(p) * factor(t)

with d the number of layers of the backbone behind that of p, 0 outside the backbone. The factor is a pure
function of the step and of the validations before it, so that a schedule has no state. With `anchor` each
step first pulls a weight w of the backbone, of learning rate eta, to its initial value,

        w <- w - eta anchor (w - w_0)

which is L2-SP (Li et al., ICML 2018, eq. 2), decoupled from the gradient as weight decay is in AdamW
(Loshchilov and Hutter, ICLR 2019).
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import Parameter
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from unseen.methods.settings import Optimizer as OptimizerSettings
from unseen.methods.settings import Schedule
from unseen.runtime.errors import UserError

GROUPS = ("backbone", "head", "proxies")


def build_optimizer(
    settings: OptimizerSettings,
    groups: dict[str, list[Parameter]],
    device: torch.device,
    layers: Sequence[Sequence[Parameter]] = (),
) -> Optimizer:
    """The optimizer over the trainable parameters of a method's groups.

    adam, rmsprop: coupled L2, `weight_decay` added to the gradient, as in the released code of the papers.
    sgd: momentum and coupled L2. adamw: decoupled decay; tensors of at most one dimension (biases, norm
    affines, scalars) are exempt. Position embeddings and class tokens are not: they have more dimensions.
    `decay_vectors` overrides both.

    layers: the backbone's parameters from its stem to its last block, for `layer_decay`. On a GPU torch's
    fused implementation runs, for rmsprop and sgd the one that loops over operations (`foreach`): rmsprop has
    no other, and the fused one of sgd fails if some parameters of a group have a momentum and others have
    their first gradient. On a CPU neither runs: the same bytes on every run. Raises UserError for a factor of
    an unknown group.
    """
    for field, factors in (("multipliers", settings.multipliers), ("decay", settings.decay)):
        if unknown := sorted(set(factors) - set(GROUPS)):
            what = f"optimizer.{field}: there is no parameter group {unknown[0]!r}."
            raise UserError(what, f"Name one of {', '.join(GROUPS)}.")
    depth = {id(p): len(layers) - 1 - index for index, layer in enumerate(layers) for p in layer}
    decay_vectors = settings.name != "adamw" if settings.decay_vectors is None else settings.decay_vectors
    entries: dict[tuple[float, float], list[Parameter]] = {}
    for name, parameters in groups.items():
        peak = settings.learning_rate * settings.multipliers.get(name, 1.0)
        weight_decay = settings.weight_decay * settings.decay.get(name, 1.0)
        for parameter in (parameter for parameter in parameters if parameter.requires_grad):
            decay = weight_decay if decay_vectors or parameter.ndim > 1 else 0.0
            rate = peak * settings.layer_decay ** depth.get(id(parameter), 0)
            entries.setdefault((rate, decay), []).append(parameter)
    members = [
        {"params": parameters, "lr": peak, "peak": peak, "weight_decay": decay}
        for (peak, decay), parameters in entries.items()
    ]
    optimizer = _optimizer(settings, members, on_gpu=device.type == "cuda")
    if settings.anchor:
        _anchor(optimizer, groups.get("backbone", []), settings.anchor)
    return optimizer


def _optimizer(settings: OptimizerSettings, members: list[dict[str, Any]], on_gpu: bool) -> Optimizer:
    if settings.name == "rmsprop":
        return RMSprop(members, eps=settings.epsilon, momentum=settings.momentum, foreach=on_gpu)
    if settings.name == "sgd":
        return SGD(members, momentum=settings.momentum, nesterov=settings.nesterov, foreach=on_gpu)
    fused: dict[str, bool] = {"fused": True} if on_gpu else {"foreach": False}
    kind = AdamW if settings.name == "adamw" else Adam
    return kind(members, betas=settings.betas, eps=settings.epsilon, **fused)


def _anchor(optimizer: Optimizer, parameters: list[Parameter], strength: float) -> None:
    """Before each step of the optimizer pulls parameters towards their present values."""
    initial = {parameter: parameter.detach().clone() for parameter in parameters if parameter.requires_grad}

    @torch.no_grad()
    def pull(optimizer: Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter in initial:
                    parameter.lerp_(initial[parameter], group["lr"] * strength)

    optimizer.register_step_pre_hook(pull)


def factor(schedule: Schedule, step: int, iterations: int, validations: Sequence[float] = ()) -> float:
    """The learning-rate factor of step 0 <= step < iterations. `validations`: their selection metric so far.

    warm-up over w steps   (step + 1) / w
    constant               1
    step                   factor ** (number of milestones <= step, plus floor(step / every))
    cosine                 ½ (1 + cos π (step - w) / (iterations - w)): 0 at `iterations`, after the last step
    plateau                factor ** (times that more than `patience` validations in a row brought no gain),
                           at least `minimum`; torch's ReduceLROnPlateau with relative `threshold`, `cooldown`
    """
    if step < schedule.warmup:
        return (step + 1) / schedule.warmup
    if schedule.name == "step":
        reached = sum(step >= milestone for milestone in schedule.milestones)
        return schedule.factor ** (reached + (step // schedule.every if schedule.every is not None else 0))
    if schedule.name == "cosine":
        return 0.5 * (1 + math.cos(math.pi * (step - schedule.warmup) / (iterations - schedule.warmup)))
    if schedule.name == "plateau":
        return max(schedule.minimum, schedule.factor ** _plateaus(schedule, validations))
    return 1.0


def _plateaus(schedule: Schedule, values: Sequence[float]) -> int:
    plateaus, waited, resting, best = 0, 0, 0, -math.inf
    for value in values:
        best, waited = (value, 0) if value > best * (1 + schedule.threshold) else (best, waited + 1)
        if resting > 0:
            resting, waited = resting - 1, 0
        if waited > schedule.patience:
            plateaus, waited, resting = plateaus + 1, 0, schedule.cooldown
    return plateaus


def set_learning_rate(optimizer: Optimizer, value: float) -> None:
    """Sets every group to its peak learning rate times `value`."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * value
