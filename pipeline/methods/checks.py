"""What every loss, pooling, network and method must satisfy, those of the library and those from outside.

    unseen check parts.circle:Circle gamma=80

A check takes the settings of a part and raises Failed. The first line of its docstring is the property.
docs/extending.md has the contracts.
"""

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn
from torch.nn.functional import normalize

from unseen.losses.memory import CrossBatchMemory
from unseen.losses.settings import Loss, LossSettings
from unseen.methods import modules
from unseen.methods.build import initial_method
from unseen.methods.method import Method
from unseen.methods.settings import AnyRecipe, Recipe
from unseen.networks.settings import AnyBackbone, Backbone
from unseen.poolings.settings import Pooling, PoolingSettings
from unseen.runtime.errors import UserError
from unseen.runtime.parts import load, trusted
from unseen.runtime.settings import Strict, as_json

DIM, CLASSES, SAMPLES, CHANNELS, SIDE = 8, 4, 60, 16, 4
STEPS = 50  # of a loss with a surrogate gradient
_PRECISION = "Use full_precision and without_autocast of unseen.runtime.device.precision."
_FINITE = "Divide by 1 at least, and add a small number below a root and to a norm."
_ALONE = "Combine positions or channels, never images."
# of a method: small images, unless the caller names others
_RECIPE: dict[str, Any] = {
    "backbone": {"name": "test_resnet", "pretrained": False, "arguments": {"output_stride": 16}},
    "input": {"size": 64, "resize": 64},
    "batch": {"classes": 4, "images_per_class": 3},
    "dim": 16,
}
Check = Callable[[Any], None]


class Failed(UserError):
    """A part does not have a property. `what` states the difference, `remedy` what to do."""


class Result(NamedTuple):
    """A property of a part, and why the part does not have it; None: it has."""

    name: str
    failure: Failed | None


def results(settings: Strict) -> Iterator[Result]:
    """The result of each check of a part. An exception of the part is a failure too."""
    for check in checks_of(settings):
        failure = None
        try:
            check(settings)
        except Failed as failed:
            failure = failed
        except Exception as error:  # of code from outside
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            failure = Failed(what, "docs/extending.md states how a part is built and called.")
        yield Result((check.__doc__ or "").split("\n")[0], failure)


def checks_of(settings: Strict) -> tuple[Check, ...]:
    """The checks that apply. A pooling with attributes may select its prototypes before it trains them."""
    if isinstance(settings, Backbone):
        return (maps, each_image_of_maps)
    if isinstance(settings, Recipe):
        return (unit_vectors, terms, parameters_of_method)
    if isinstance(settings, PoolingSettings):
        each = (shape, each_image, precision_of_vectors, zero_map)
        return each if settings.attributes else (*each, parameters_of_pooling)
    assert isinstance(settings, LossSettings)
    trains = lowers_itself if settings.gradient == "surrogate" else gradient
    checks = (value, trains, order, workers, precision, empty_sides, parameters)
    return (*checks, memory) if takes_references(settings) else checks


def takes_references(settings: LossSettings) -> bool:
    """Whether a loss can compare a batch with a memory; a pair loss without such arguments cannot."""
    return settings.inputs == "pairs" and len(inspect.signature(_loss(settings).forward).parameters) == 5


def settings_of(path: str, values: dict[str, Any]) -> Strict:
    """The settings of the class `package.module:Class`, which may be below the current directory.

    Raises UserError for a class that cannot be imported or is no part, and for wrong values.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    path = path if ":" in path else ":".join(path.rsplit(".", 1))
    try:
        part = load(path)
        inputs = len(inspect.signature(part.forward).parameters) - 1
    except Exception as error:  # the import runs code from outside
        raise UserError(
            f"{path} cannot be used as a part: {type(error).__name__}: {error}.",
            "Name a class with `forward` as package.module:Class, in the folder that contains the package.",
        ) from error
    kind: Any = Pooling if inputs == 1 else Loss
    block = {"module": path, **values}
    if issubclass(part, Method):
        kind, block = AnyRecipe, {**_RECIPE, **values, "method": path}
    elif hasattr(part, "plan"):
        stages = [*range(len(part.channels))]
        block = {"module": path, "arguments": values, "pretrained": False, "stages": stages}
        kind = AnyBackbone
    try:
        with trusted():
            return TypeAdapter[Strict](kind).validate_json(as_json(block))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: {field}: {first['msg']}.", "Set values after it as KEY=VALUE.") from error


def _require(holds: bool | Tensor, what: str, remedy: str) -> None:
    if not holds:
        raise Failed(what, remedy)


def _require_equal(first: Tensor, second: Tensor, what: str, remedy: str, tolerance: float = 1e-7) -> None:
    equal = torch.allclose(first, second, rtol=tolerance, atol=tolerance)
    _require(equal, f"{what} differ by {(first - second).abs().max().item():.3g}.", remedy)


def _require_trained(module: nn.Module, start_may_be_zero: bool = False) -> None:
    """start_may_be_zero: of a network, whose residual branches may start with the factor 0."""
    parameters = [(name, each.grad) for name, each in module.named_parameters() if each.requires_grad]
    idle = [name for name, each in parameters if each is None or not (start_may_be_zero or each.any())]
    _require(not idle, f"No gradient reaches {', '.join(idle)}.", "Use it in forward, or make it a buffer.")


def _built(build: Callable[[], nn.Module]) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build().train()


def vectors(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Unit vectors of four classes in random order, in float64, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, DIM, dtype=torch.float64, generator=generator) + 0.5
    return normalize(rows, dim=1), torch.randint(0, CLASSES, (count,), generator=generator)


def _loss(settings: LossSettings) -> Any:
    """The loss in float64. A memory of all training images contains other images, and does not change."""
    sizes = {"classes": CLASSES, "dim": DIM, "samples": SAMPLES}
    loss = _built(lambda: modules.loss(settings, **sizes)).double()
    if settings.inputs == "samples":
        loss(*vectors(30, 20), torch.arange(30, SAMPLES))
        loss.eval()
    return loss


def call_of(settings: LossSettings, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """The arguments of a loss for a batch. Each image is the query of a tuple; its other vectors are new."""
    if settings.inputs == "tuples":
        count, negatives = len(labels), getattr(settings, "negatives", 3)
        others = vectors(count * (1 + negatives), 21)[0].to(embeddings.dtype)
        return embeddings, others[:count], others[count:].unflatten(0, (count, negatives))
    return (embeddings, labels, torch.arange(len(labels)))[: 3 if settings.inputs == "samples" else 2]


def _memory() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """A batch, a memory of 11 images that contains it, and the position of each image there."""
    (embeddings, labels), (references, reference_labels) = vectors(6, 2), vectors(11, 3)
    positions = torch.tensor([4, 0, 1, 2, 9, 7])
    references[positions], reference_labels[positions] = embeddings, labels
    return embeddings, labels, references, reference_labels, positions


def _calls(settings: LossSettings) -> Iterator[tuple[Tensor, ...]]:
    """A call within a batch, and one with a memory."""
    yield call_of(settings, *vectors(9, 1))
    if takes_references(settings):
        yield _memory()


def value(settings: LossSettings) -> None:
    """The value of a batch is one finite number."""
    for call in _calls(settings):
        result = _loss(settings)(*call)
        is_number = isinstance(result, Tensor) and result.shape == () and result.is_floating_point()
        got = " ".join(repr(result).split())
        _require(is_number, f"The value is {got}.", "Return the mean or the sum over the batch.")
        _require(result.isfinite(), f"The value is {result.item()}.", _FINITE)


def gradient(settings: LossSettings) -> None:
    """The gradient equals finite differences."""
    loss = _loss(settings)
    for call in _calls(settings):
        real = [place for place, each in enumerate(call) if each.is_floating_point()]

        def at(*rows: Tensor, call: tuple[Tensor, ...] = call, real: list[int] = real) -> Tensor:
            units = dict(zip(real, (normalize(row, dim=-1) for row in rows), strict=True))
            result: Tensor = loss(*(units.get(place, each) for place, each in enumerate(call)))
            return result

        leaves = tuple(call[place].clone().requires_grad_() for place in real)
        _require(
            torch.autograd.gradcheck(at, leaves, raise_exception=False),
            "The gradient is not the derivative of the value.",
            'Correct it, or state gradient = "surrogate" in a class whose definition stops gradients.',
        )


def lowers_itself(settings: LossSettings) -> None:
    """Fifty steps along the gradient lower the value."""
    loss, (embeddings, labels) = _loss(settings), vectors(12, 1)
    rows = embeddings.requires_grad_()
    optimizer = torch.optim.Adam([rows, *loss.parameters()], lr=0.01)
    values = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        result = loss(*call_of(settings, normalize(rows, dim=1), labels))
        result.backward()
        optimizer.step()
        values.append(result.item())
    what = f"The value is {values[0]:.4g} at the first step and {values[-1]:.4g} at the last."
    _require(values[-1] < values[0], what, "Correct the sign of the gradient.")


def order(settings: LossSettings) -> None:
    """The value does not depend on the order of a batch or of a memory."""
    loss, remedy = _loss(settings), "Compare images by their labels, never by their positions."
    call = call_of(settings, *vectors(12, 4))
    _require_equal(loss(*(each.flip(0) for each in call)), loss(*call), "The values of two orders", remedy)
    if takes_references(settings):
        rows, labels, references, reference_labels, _ = _memory()
        turned = loss(rows, labels, references.flip(0), reference_labels.flip(0))
        straight = loss(rows, labels, references, reference_labels)
        _require_equal(turned, straight, "The values of two orders of a memory", remedy)


def workers(settings: LossSettings) -> None:
    """Two workers compute the same value: it depends on arguments and parameters alone."""
    loss, call = _loss(settings), call_of(settings, *vectors(10, 12))
    before = {name: tensor.clone() for name, tensor in loss.state_dict().items()}
    remedy = "Use no random numbers, and keep nothing between calls."
    _require_equal(loss(*call), loss(*call), "Two calls with the same arguments", remedy, tolerance=0.0)
    changed = [name for name, tensor in loss.state_dict().items() if not torch.equal(before[name], tensor)]
    _require(not changed, f"A call changes {', '.join(changed)}.", remedy)


def precision(settings: LossSettings) -> None:
    """The value has single precision under autocast."""
    loss, (embeddings, labels) = _loss(settings).float(), vectors(10, 11)
    rows = embeddings.bfloat16().requires_grad_()
    call = call_of(settings, rows, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = loss(*call)
    result.backward()
    _require(result.dtype == torch.float32, f"The value has the type {result.dtype}.", _PRECISION)
    exact = loss(*(each.float() if each.is_floating_point() else each for each in call))
    _require_equal(result, exact, "The values with and without autocast", _PRECISION, tolerance=0.0)
    finite = rows.grad is not None and rows.grad.isfinite().all()
    _require(finite, "The gradient of vectors in bfloat16 is missing or not finite.", _PRECISION)


def empty_sides(settings: LossSettings) -> None:
    """Value and gradient are finite without positives or negatives, for one image and for equal images."""
    for name, (rows, *others) in batches_without_sides(settings).items():
        result = _loss(settings)(rows.requires_grad_(), *others)
        if result.requires_grad:
            result.backward()
        finite = result.isfinite() and (rows.grad is None or rows.grad.isfinite().all())
        _require(finite, f"Value or gradient is not finite with {name}.", _FINITE)


def batches_without_sides(settings: LossSettings) -> dict[str, tuple[Tensor, ...]]:
    """The arguments of a loss for batches in which nothing can be compared."""
    rows, labels = vectors(4, 9)[0], torch.arange(4)
    calls = {
        "no positives": call_of(settings, rows.clone(), labels),
        "no negatives": call_of(settings, rows.clone(), torch.zeros_like(labels)),
        "one image": call_of(settings, rows[:1].clone(), labels[:1]),
        "equal images": call_of(settings, rows[:1].repeat(4, 1), labels // 2),
    }
    others = vectors(6, 10)[0], torch.full((6,), 99)
    more = {"references of other classes": (rows, labels, *others)} if takes_references(settings) else {}
    return calls | more


def parameters(settings: LossSettings) -> None:
    """Every parameter has a gradient."""
    loss, rows = _loss(settings), vectors(12, 4)[0].requires_grad_()
    loss(*call_of(settings, rows, torch.arange(12) % CLASSES)).backward()
    _require_trained(loss)


def memory(settings: LossSettings) -> None:
    """A memory that contains the batch alone gives the value of the batch."""
    loss, batch = _loss(settings), vectors(10, 7)
    memory = CrossBatchMemory(13, DIM).double()
    positions = memory.enqueue(*batch)
    values = loss(*batch, *memory.valid(), positions), loss(*batch)
    _require_equal(*values, "The values", "Anchor i is reference self_index[i]: exclude this pair.")


def _pooling(settings: PoolingSettings) -> tuple[Any, Tensor]:
    """A pooling and six maps."""
    pooling = _built(lambda: modules.pooling(settings, CHANNELS, DIM, lambda: SIDE * SIDE))
    generator = torch.Generator().manual_seed(1)
    return pooling, torch.randn(6, CHANNELS, SIDE, SIDE, generator=generator)


def _vector(settings: PoolingSettings, pooled: Any) -> Tensor:
    vector: Tensor = pooled[0] if settings.attributes else pooled
    return vector


def shape(settings: PoolingSettings) -> None:
    """A map gives a finite vector of out_channels numbers, and attributes that sum to 1 if it states them."""
    pooling, maps = _pooling(settings)
    pooled = pooling.eval()(maps)
    vector, width = _vector(settings, pooled), pooling.out_channels
    what = f"The vectors of six maps have the shape {tuple(vector.shape)}; out_channels is {width}."
    _require(vector.shape == (6, width), what, "Return one row of out_channels numbers for each map.")
    what = f"The class states projects, and its out_channels is {width} for dim = {DIM}."
    _require(not settings.projects or width == DIM, what, "Set out_channels to dim.")
    _require(vector.isfinite().all(), "A vector is not finite.", _FINITE)
    if settings.attributes:
        sums = pooled[1].sum(1)
        _require_equal(sums, torch.ones_like(sums), "The sums of attributes and 1", "Use a softmax.", 1e-4)


def each_image(settings: PoolingSettings) -> None:
    """The vector of an image does not depend on the other images, which may be on another worker.

    Batch norm alone combines images, in training and over all workers.
    """
    pooling, maps = _pooling(settings)
    normalises = any(isinstance(each, nn.modules.batchnorm._BatchNorm) for each in pooling.modules())
    for training in (False, not normalises):
        pooling.train(training)
        parts = torch.cat([_vector(settings, pooling(part)) for part in (maps[:2], maps[2:])])
        what, remedy = (
            "The vectors of an image in two batches",
            "Combine positions or channels, never images.",
        )
        _require_equal(parts, _vector(settings, pooling(maps)), what, remedy, tolerance=1e-4)


def precision_of_vectors(settings: PoolingSettings) -> None:
    """The vectors have single precision under autocast."""
    pooling, maps = _pooling(settings)
    pooling.eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        vector = _vector(settings, pooling(maps.bfloat16()))
    _require(vector.dtype == torch.float32, f"The vectors have the type {vector.dtype}.", _PRECISION)
    exact = _vector(settings, pooling(maps))
    _require_equal(vector, exact, "The vectors with and without autocast", _PRECISION, tolerance=0.1)


def zero_map(settings: PoolingSettings) -> None:
    """A map of zeros has a finite gradient."""
    pooling, maps = _pooling(settings)
    zeros = torch.zeros_like(maps).requires_grad_()
    _vector(settings, pooling(zeros)).sum().backward()
    finite = zeros.grad is not None and zeros.grad.isfinite().all()
    _require(finite, "The gradient is missing or not finite.", _FINITE)


def parameters_of_pooling(settings: PoolingSettings) -> None:
    """Every parameter has a gradient."""
    pooling, maps = _pooling(settings)
    vector = _vector(settings, pooling(maps.requires_grad_()))
    (vector * torch.arange(vector.shape[1])).sum().backward()
    _require_trained(pooling)


def _images(count: int, side: int) -> Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(1))


def maps(settings: Backbone) -> None:
    """Each stage gives a finite map of its channels, and every parameter has a gradient."""
    network = _built(lambda: modules.backbone(settings))
    features = network(_images(2, 64)).maps
    shapes, channels = [tuple(each.shape[:2]) for each in features], network.channels
    what = f"The maps of two images have the shapes {shapes}; the channels are {channels}."
    _require(shapes == [(2, each) for each in channels], what, "Correct channels or plan.")
    _require(all(each.isfinite().all() for each in features), "A map is not finite.", _FINITE)
    torch.stack([each.square().sum() for each in features]).sum().backward()
    _require_trained(network, start_may_be_zero=True)


def each_image_of_maps(settings: Backbone) -> None:
    """The maps of an image in evaluation do not depend on the other images."""
    network, images = _built(lambda: modules.backbone(settings)).eval(), _images(3, 64)
    for one, all_ in zip(network(images[:1]).maps, network(images).maps, strict=True):
        _require_equal(one, all_[:1], "The maps of an image in two batches", _ALONE, tolerance=1e-4)


def _method(recipe: Recipe) -> tuple[Method, Tensor, Tensor]:
    """A method in training mode, and a batch of three images of each class."""
    method = initial_method(recipe, CLASSES, SAMPLES, seed=0).train()
    return method, _images(3 * CLASSES, recipe.input.size), torch.arange(3 * CLASSES) // 3


def unit_vectors(recipe: Recipe) -> None:
    """An image gives a unit vector of dim numbers, which does not depend on the other images."""
    method, images, _ = _method(recipe)
    vectors = method.eval().embed(images)
    what = f"The vectors of 12 images have the shape {tuple(vectors.shape)}; dim is {method.dim}."
    _require(vectors.shape == (len(images), method.dim), what, "Correct dim or the embedding of Outputs.")
    ones = torch.ones(len(images))
    _require_equal(vectors.norm(dim=1), ones, "The lengths and 1", "Use `unit`.", tolerance=1e-4)
    one = method.embed(images[:1])
    _require_equal(one, vectors[:1], "The vectors of an image in two batches", _ALONE, tolerance=1e-4)


def terms(recipe: Recipe) -> None:
    """The terms of a batch are finite numbers, and equal for one and for two workers."""
    totals = []
    for slices in (1, 2):
        method, images, labels = _method(recipe)
        parts = [method(part) for part in images.chunk(slices)]
        fields = {name: [getattr(part, name) for part in parts] for name in vars(parts[0])}
        gathered = {name: None if each[0] is None else torch.cat(each) for name, each in fields.items()}
        values = method.objective(type(parts[0])(**gathered), labels, torch.arange(len(labels)))
        _require(bool(values), "There is no term.", "Return the terms of the loss by name.")
        for name, each in values.items():
            is_number = each.shape == () and bool(each.isfinite())
            _require(is_number, f"Term {name} is {each.tolist()}.", "Return finite numbers of the batch.")
        totals.append(torch.stack(list(values.values())))
    remedy = "Each tensor of Outputs has a row for each image; terms read nothing else of a worker."
    _require_equal(totals[0], totals[1], "The terms of one and two workers", remedy, tolerance=1e-4)


def parameters_of_method(recipe: Recipe) -> None:
    """Every parameter has a gradient, and is in one group of the optimizer."""
    method, images, labels = _method(recipe)
    values = method.objective(method(images), labels, torch.arange(len(labels)))
    torch.stack(list(values.values())).sum().backward()
    _require_trained(method, start_may_be_zero=True)
    grouped = sum(map(len, method.parameter_groups().values()))
    trained = sum(parameter.requires_grad for parameter in method.parameters())
    what = f"The groups have {grouped} parameters, the method {trained}."
    _require(grouped == trained, what, "Let proxies() return each of its vectors once.")
