"""One training step on one worker's slice; read from top to bottom.

    slice -> outputs -> gather -> objective on the global batch -> backward -> average -> clip -> optimizer ->
    after_step

The loss that it returns is the loss of the global batch, for any number of workers. The host reads its
numbers from a GPU later, so that it can queue the next step meanwhile.
"""

import dataclasses
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from unseen.data.loader import TrainBatch, normalize
from unseen.data.seeding import seed_of
from unseen.methods.method import Method
from unseen.methods.settings import Recipe
from unseen.runtime.device.host import reads_wait
from unseen.runtime.device.precision import full_precision
from unseen.runtime.device.transfer import DeviceToHost
from unseen.runtime.device.world import world_size
from unseen.runtime.errors import UserError
from unseen.training.compiled import StepFunctions, step_functions
from unseen.training.gather import gather_outputs, gather_rows
from unseen.training.gradient_noise import gradient_noise
from unseen.training.optimizer import factor, set_learning_rate
from unseen.training.overlap import averaging
from unseen.training.passes import Passes
from unseen.training.precision import autocast


@dataclasses.dataclass(frozen=True)
class Learner:
    """The method and optimizer, which a step changes, and the settings that determine the change."""

    method: Method  # on its device
    optimizer: Optimizer
    recipe: Recipe
    seed: int  # of the run
    rank: int = 0  # of this worker
    images_per_pass: int | None = None  # of the slice of this worker (passes.py); None: all

    @cached_property
    def functions(self) -> StepFunctions:
        return step_functions(self.method, self.recipe.training)


@dataclasses.dataclass(frozen=True)
class Step:
    """The numbers of a step. `loss` is the sum of the weighted `terms`; `gradient_norm` is before
    clipping."""

    loss: float
    terms: dict[str, float]
    gradient_norm: float
    learning_rate: float  # of a group without a multiplier
    # of gradients, if training.gradient_noise is set
    noise: dict[str, float] = dataclasses.field(default_factory=dict)


class NotFinite(Exception):
    """A term, the loss or the gradient norm is not finite.

    numbers: those that are not, by name. positions: places in the global batch of images whose outputs are
    not finite.
    """

    def __init__(self, numbers: dict[str, float], positions: list[int]) -> None:
        super().__init__(numbers, positions)
        self.numbers, self.positions = numbers, positions


class SubmittedStep:
    """A step whose work is queued on the device. Its numbers are copied to the host when they are computed.

    number: of the step. scalars: terms and measures of noise by name, then `loss` and `gradient norm`.
    """

    def __init__(
        self,
        number: int,
        learning_rate: float,
        terms: Sequence[str],
        noise: Sequence[str],
        scalars: dict[str, Tensor],
        outputs: Any,
    ) -> None:
        self.number, self.learning_rate = number, learning_rate
        self._terms, self._noise, self._names = terms, noise, list(scalars)
        self._values = DeviceToHost(torch.stack([scalar.detach().double() for scalar in scalars.values()]))
        self._outputs = _detached(outputs)

    def result(self) -> Step:
        """Waits for the numbers. Raises NotFinite."""
        numbers = dict(zip(self._names, self._values.wait().tolist(), strict=True))
        if broken := {name: value for name, value in numbers.items() if not math.isfinite(value)}:
            raise NotFinite(broken, _not_finite_rows(self._outputs))
        terms, noise = ({name: numbers[name] for name in names} for names in (self._terms, self._noise))
        return Step(numbers["loss"], terms, numbers["gradient norm"], self.learning_rate, noise)


def train_step(learner: Learner, batch: TrainBatch, validations: Sequence[float] = ()) -> SubmittedStep:
    """Advances the method by the step `batch.step`. `batch` is this worker's slice of the global batch.

    The first `optimizer.new_layers_only` steps leave the backbone unchanged. `validations`: the selection
    metric of each validation so far, for schedule `plateau`. On a CPU, raises NotFinite before the parameters
    change; on a GPU `SubmittedStep.result` raises it, after they changed.
    """
    method, recipe, functions = learner.method, learner.recipe, learner.functions
    parameters = _trained_parameters(method, recipe, batch.step)
    device = parameters[0].device
    shape = f"{world_size()} slices of {len(batch.images)} images are not a batch of {recipe.batch.size}"
    assert len(batch.images) * world_size() == recipe.batch.size, shape

    def forward(rows: slice) -> Any:
        pixels = to_pixels(batch.images[rows], method, recipe)
        with autocast(recipe, device):
            return _at_least_float32(functions.forward(pixels))

    seed_step(learner.seed, batch.step, learner.rank)
    passes: Passes | None = None
    if learner.images_per_pass is None or learner.images_per_pass >= len(batch.images):
        outputs = gather_outputs(forward(slice(None)))
    else:
        passes = Passes(method, forward, len(batch.images), learner.images_per_pass)
        outputs = gather_outputs(passes.outputs)
    labels, samples = gather_rows(batch.labels.to(device)), gather_rows(batch.samples.to(device))

    seed_step(learner.seed, batch.step, None)
    terms = functions.objective(outputs, labels, samples)
    loss = torch.stack([term.reshape(()) for term in terms.values()]).sum()
    measured = recipe.training.gradient_noise
    noise = {} if measured is None else gradient_noise(terms, outputs.embedding, measured)

    learner.optimizer.zero_grad(set_to_none=True)
    average = averaging(method, parameters)
    if passes is None:
        with average:
            loss.backward(inputs=parameters)
    else:
        loss.backward(inputs=[*parameters, *passes.leaves.values()])
        passes.backward(parameters, last=average)
    norm = _clip(parameters, recipe)

    # A plateau is sought among the validations after the backbone began to change.
    first = recipe.optimizer.new_layers_only // recipe.training.validate_every
    rate = factor(recipe.schedule, batch.step, recipe.training.iterations, validations[first:])
    scalars = {**terms, **noise, "loss": loss, "gradient norm": norm}
    peak = recipe.optimizer.learning_rate
    submitted = SubmittedStep(batch.step, peak * rate, list(terms), list(noise), scalars, outputs)
    if not reads_wait(loss):
        submitted.result()
    set_learning_rate(learner.optimizer, rate)
    learner.optimizer.step()
    method.after_step()
    return submitted


def _trained_parameters(method: Method, recipe: Recipe, step: int) -> list[Parameter]:
    """The parameters that step `step` changes."""
    only_new = step < recipe.optimizer.new_layers_only
    fixed = {id(parameter) for parameter in method.backbone.parameters()} if only_new else set()
    trained = [p for p in method.parameters() if p.requires_grad and id(p) not in fixed]
    if not trained:
        raise UserError(
            "optimizer.new_layers_only leaves nothing to train: the method has no layer and no proxy beside "
            "its backbone.",
            "Set it to 0, or give the recipe a `dim`.",
        )
    return trained


def _clip(parameters: list[Parameter], recipe: Recipe) -> Float[Tensor, ""]:
    """Clips the gradients by their global norm, then by value, with the limits of the recipe.

    Returns the norm before.
    """
    many_at_once = parameters[0].is_cuda
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients, foreach=many_at_once)
    settings = recipe.optimizer
    if settings.clip_norm is not None:
        torch.nn.utils.clip_grads_with_norm_(parameters, settings.clip_norm, norm, foreach=many_at_once)
    if settings.clip_value is not None:
        torch.nn.utils.clip_grad_value_(parameters, settings.clip_value, foreach=many_at_once)
    return norm


def to_pixels(
    images: UInt8[Tensor, "b 3 S S"] | Float[Tensor, "b V"], method: Method, recipe: Recipe
) -> Float[Tensor, "b ..."]:
    """Images on the device of `method`, normalised there, in the type of its parameters. Floating-point
    images are cached maps (pipeline/frozen) and are not normalised."""
    parameter = next(method.parameters())
    if images.is_floating_point():
        return images.to(parameter.device, parameter.dtype)
    pixels = normalize(images.to(parameter.device, non_blocking=True), *method.statistics(recipe.input))
    return pixels.to(parameter.dtype)


def _at_least_float32(outputs: Any) -> Any:
    """Half-precision outputs as float32: a similarity matrix needs more than 8 bits of mantissa."""
    values = {field.name: getattr(outputs, field.name) for field in dataclasses.fields(outputs)}
    wide = {
        name: full_precision(value)
        for name, value in values.items()
        if isinstance(value, Tensor) and value.is_floating_point()
    }
    return dataclasses.replace(outputs, **wide)


def _detached(outputs: Any) -> Any:
    """The outputs without the graph of their gradients."""
    values = {field.name: getattr(outputs, field.name) for field in dataclasses.fields(outputs)}
    detached = {name: value.detach() for name, value in values.items() if isinstance(value, Tensor)}
    return dataclasses.replace(outputs, **detached)


def _not_finite_rows(outputs: Any) -> list[int]:
    """The rows of a method's outputs that contain a number that is not finite."""
    rows: set[int] = set()
    for field in dataclasses.fields(outputs):
        value = getattr(outputs, field.name)
        if value is not None and value.is_floating_point():
            rows |= set(
                (~value.detach().reshape(len(value), -1).isfinite().all(dim=1)).nonzero().flatten().tolist()
            )
    return sorted(rows)


def seed_step(seed: int, step: int, rank: int | None) -> None:
    """Seeds torch on all devices from (seed, step, rank), so that a checkpoint stores no generator.

    `rank` None is for what every worker must draw alike: the objective on the global batch. Masks that a
    network draws on its slice (dropout, stochastic depth) differ between ranks, and therefore depend on the
    number of workers.
    """
    value = seed_of(seed, "step", step, "all" if rank is None else rank)
    # torch.manual_seed would store one call, with its stack, for each kind of device that is absent.
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(value)
