"""One training step on one worker's slice; read from top to bottom.

    own slice -> outputs -> gather -> objective on the global batch -> backward -> average -> clip -> optimizer -> after_step

The loss it returns is that of the global batch, whatever the number of workers.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from pipeline.config.methods import Recipe
from pipeline.data.loader import normalize
from pipeline.methods.method import Method
from pipeline.runtime.errors import UserError
from pipeline.training.gather import average_gradients, gather_outputs, gather_rows, world_size
from pipeline.training.gradient_noise import gradient_noise
from pipeline.training.optimizer import factor, set_learning_rate
from pipeline.training.rng import seed_step


@dataclasses.dataclass(frozen=True)
class Step:
    """What a step did, in numbers: `terms` are weighted, `loss` is their sum, `gradient_norm` is before clipping."""

    loss: float
    terms: dict[str, float]
    gradient_norm: float
    learning_rate: float  # of a group without a multiplier
    noise: dict[str, float] = dataclasses.field(default_factory=dict)  # of gradients, where training.gradient_noise names a term


def train_step(
    method: Method,
    optimizer: Optimizer,
    images: UInt8[Tensor, "b 3 S S"],
    labels: Int[Tensor, " b"],
    samples: Int[Tensor, " b"],
    recipe: Recipe,
    seed: int,
    step: int,
    rank: int,
    name_rows: Callable[[Sequence[int] | None], str],
    validations: Sequence[float] = (),
) -> Step:
    """Advances `method` by one step. `images`, `labels` and `samples` (places among the training images) are this worker's slice, S the crop size;
    `method` is on its device. In the first `optimizer.new_layers_only` steps the backbone stays as it is.

    `validations` holds the selection metric of those so far, for schedule `plateau`. `name_rows` puts positions in the global batch (None: all of
    them) into words. Raises UserError where a term, the loss or the gradient is not finite, before the parameters are touched.
    """
    parameters = _moving(method, recipe, step)
    device = parameters[0].device
    assert len(images) * world_size() == recipe.batch.size, f"{world_size()} slices of {len(images)} images are no batch of {recipe.batch.size}"

    seed_step(seed, step, rank)
    pixels = to_pixels(images, method, recipe)
    with mixed_precision(recipe.training.precision, device):
        own = method(pixels)
    outputs = gather_outputs(_at_least_float32(own))
    all_labels, all_samples = gather_rows(labels.to(device)), gather_rows(samples.to(device))

    seed_step(seed, step, None)
    terms = method.objective(outputs, all_labels, all_samples)
    loss = torch.stack([term.reshape(()) for term in terms.values()]).sum()
    measured = recipe.training.gradient_noise
    noise = {} if measured is None else gradient_noise(terms, outputs.embedding, measured)

    optimizer.zero_grad(set_to_none=True)
    loss.backward(inputs=parameters)
    average_gradients(parameters)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients, foreach=device.type == "cuda")
    if recipe.optimizer.clip_norm is not None:
        torch.nn.utils.clip_grads_with_norm_(parameters, recipe.optimizer.clip_norm, norm, foreach=device.type == "cuda")

    if recipe.optimizer.clip_value is not None:
        torch.nn.utils.clip_grad_value_(parameters, recipe.optimizer.clip_value, foreach=device.type == "cuda")

    # The one point where the host waits for the device.
    values = torch.stack([value.detach().double() for value in (*terms.values(), *noise.values(), loss, norm)]).tolist()
    named = dict(zip([*terms, *noise, "loss", "gradient norm"], values, strict=True))
    _refuse_non_finite(named, outputs, step, name_rows)
    warming_up = recipe.optimizer.new_layers_only // recipe.training.validate_every  # validations before the backbone moves tell nothing of a plateau
    now = factor(recipe.schedule, step, recipe.training.iterations, validations[warming_up:])
    set_learning_rate(optimizer, now)
    optimizer.step()
    method.after_step()
    weighted, measures = ({name: named[name] for name in names} for names in (terms, noise))
    return Step(values[-2], weighted, values[-1], recipe.optimizer.learning_rate * now, measures)


def _moving(method: Method, recipe: Recipe, step: int) -> list[Parameter]:
    """The parameters that step `step` changes."""
    still = {id(parameter) for parameter in method.backbone.parameters()} if step < recipe.optimizer.new_layers_only else set()
    moving = [parameter for parameter in method.parameters() if parameter.requires_grad and id(parameter) not in still]
    if not moving:
        raise UserError(
            "optimizer.new_layers_only leaves nothing to train: the method has no layer and no proxy beside its backbone.",
            "Set it to 0, or give the recipe a `dim`.",
        )
    return moving


def to_pixels(images: UInt8[Tensor, "b 3 S S"], method: Method, recipe: Recipe) -> Float[Tensor, "b 3 S S"]:
    """Images as `method` takes them: sent to its device as bytes, normalised there, in the type of its parameters."""
    parameter = next(method.parameters())
    pixels = normalize(images.to(parameter.device, non_blocking=True), *method.statistics(recipe.input)).to(parameter.dtype)
    return pixels.contiguous(memory_format=torch.channels_last) if pixels.is_cuda else pixels


def mixed_precision(precision: Literal["float32", "bfloat16", "auto"], device: torch.device) -> torch.autocast:
    """The autocast context of a recipe's precision: `auto` is bfloat16 on a GPU that has it and float32 elsewhere. Parameters stay float32."""
    has_it = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    enabled = precision == "bfloat16" or (precision == "auto" and has_it)
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)


def _at_least_float32(outputs: Any) -> Any:
    """Half-precision outputs as float32: a similarity matrix and its exponentials do not survive 8 bits of mantissa."""
    values = {field.name: getattr(outputs, field.name) for field in dataclasses.fields(outputs)}
    half = (torch.bfloat16, torch.float16)
    return dataclasses.replace(outputs, **{name: v.float() for name, v in values.items() if isinstance(v, Tensor) and v.dtype in half})


def _refuse_non_finite(named: dict[str, float], outputs: Any, step: int, name_rows: Callable[[Sequence[int] | None], str]) -> None:
    broken = [name for name, value in named.items() if value != value or abs(value) == float("inf")]
    if not broken:
        return
    bad: set[int] = set()
    for field in dataclasses.fields(outputs):
        value = getattr(outputs, field.name)
        if value is not None and value.is_floating_point():
            bad |= set((~value.detach().reshape(len(value), -1).isfinite().all(dim=1)).nonzero().flatten().tolist())
    whose = f"The outputs of {len(bad)} of its images are not finite: {name_rows(sorted(bad))}." if bad else f"Its images: {name_rows(None)}."
    raise UserError(
        f"Step {step}: {', '.join(f'{name} = {named[name]}' for name in broken)}. {whose}",
        "Look at these images; otherwise lower optimizer.learning_rate, lengthen schedule.warmup, or set training.precision to float32.",
    )
