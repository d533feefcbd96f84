"""The properties of losses."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from unseen.cli.checks.common import (
    CLASSES,
    DIM,
    FINITE,
    PRECISION,
    SAMPLES,
    built,
    require,
    require_equal,
    require_trained,
)
from unseen.losses.memory import CrossBatchMemory
from unseen.losses.settings import LossSettings
from unseen.methods import modules

STEPS = 50  # of a loss with a surrogate gradient


def takes_references(settings: LossSettings) -> bool:
    """Whether a loss can compare a batch with a memory; a pair loss without such arguments cannot."""
    return settings.inputs == "pairs" and len(inspect.signature(_loss(settings).forward).parameters) == 5


def vectors(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Unit vectors of four classes in random order, in float64, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, DIM, dtype=torch.float64, generator=generator) + 0.5
    return normalize(rows, dim=1), torch.randint(0, CLASSES, (count,), generator=generator)


def _loss(settings: LossSettings) -> Any:
    """The loss in float64. A memory of all training images contains other images, and does not change."""
    sizes = {"classes": CLASSES, "dim": DIM, "samples": SAMPLES}
    loss = built(lambda: modules.loss(settings, **sizes)).double()
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
        require(is_number, f"The value is {got}.", "Return the mean or the sum over the batch.")
        require(result.isfinite(), f"The value is {result.item()}.", FINITE)


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
        require(
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
    require(values[-1] < values[0], what, "Correct the sign of the gradient.")


def order(settings: LossSettings) -> None:
    """The value does not depend on the order of a batch or of a memory."""
    loss, remedy = _loss(settings), "Compare images by their labels, never by their positions."
    call = call_of(settings, *vectors(12, 4))
    require_equal(loss(*(each.flip(0) for each in call)), loss(*call), "The values of two orders", remedy)
    if takes_references(settings):
        rows, labels, references, reference_labels, _ = _memory()
        turned = loss(rows, labels, references.flip(0), reference_labels.flip(0))
        straight = loss(rows, labels, references, reference_labels)
        require_equal(turned, straight, "The values of two orders of a memory", remedy)


def workers(settings: LossSettings) -> None:
    """Two workers compute the same value: it depends on arguments and parameters alone."""
    loss, call = _loss(settings), call_of(settings, *vectors(10, 12))
    before = {name: tensor.clone() for name, tensor in loss.state_dict().items()}
    remedy = "Use no random numbers, and keep nothing between calls."
    require_equal(loss(*call), loss(*call), "Two calls with the same arguments", remedy, tolerance=0.0)
    changed = [name for name, tensor in loss.state_dict().items() if not torch.equal(before[name], tensor)]
    require(not changed, f"A call changes {', '.join(changed)}.", remedy)


def precision(settings: LossSettings) -> None:
    """The value has single precision under autocast."""
    loss, (embeddings, labels) = _loss(settings).float(), vectors(10, 11)
    rows = embeddings.bfloat16().requires_grad_()
    call = call_of(settings, rows, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = loss(*call)
    result.backward()
    require(result.dtype == torch.float32, f"The value has the type {result.dtype}.", PRECISION)
    exact = loss(*(each.float() if each.is_floating_point() else each for each in call))
    require_equal(result, exact, "The values with and without autocast", PRECISION, tolerance=0.0)
    finite = rows.grad is not None and rows.grad.isfinite().all()
    require(finite, "The gradient of vectors in bfloat16 is missing or not finite.", PRECISION)


def empty_sides(settings: LossSettings) -> None:
    """Value and gradient are finite without positives or negatives, for one image and for equal images."""
    for name, (rows, *others) in batches_without_sides(settings).items():
        result = _loss(settings)(rows.requires_grad_(), *others)
        if result.requires_grad:
            result.backward()
        finite = result.isfinite() and (rows.grad is None or rows.grad.isfinite().all())
        require(finite, f"Value or gradient is not finite with {name}.", FINITE)


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
    require_trained(loss)


def memory(settings: LossSettings) -> None:
    """A memory that contains the batch alone gives the value of the batch."""
    loss, batch = _loss(settings), vectors(10, 7)
    memory = CrossBatchMemory(13, DIM).double()
    positions = memory.enqueue(*batch)
    values = loss(*batch, *memory.valid(), positions), loss(*batch)
    require_equal(*values, "The values", "Anchor i is reference self_index[i]: exclude this pair.")


def checks_of(settings: LossSettings) -> tuple[Callable[[LossSettings], None], ...]:
    """The checks that apply."""
    trains = lowers_itself if settings.gradient == "surrogate" else gradient
    checks = (value, trains, order, workers, precision, empty_sides, parameters)
    return (*checks, memory) if takes_references(settings) else checks
