"""The door of the losses: a wrong call is one ValueError, never a number.

A training calls a loss with what the project made. A loss that other code calls is checked before each call.
"""

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar, get_args

import torch
from torch import Tensor, nn

_TOLERANCE = 1e-2  # of a length: vectors that were rounded to bfloat16 have unit length

Loss = TypeVar("Loss", bound=nn.Module)


class _Form(NamedTuple):
    """The axes of an input, and whether it contains integers, as its annotation in `forward` states them."""

    axes: tuple[str, ...]
    integer: bool

    @property
    def is_unit(self) -> bool:
        """Whether its rows are unit vectors: all vectors are, but attributes and prototypes (axis M)."""
        return not self.integer and "M" not in self.axes


class _Rule(NamedTuple):
    """The rows of an input that are wrong, and the value that each of them has."""

    wrong: Tensor
    values: Tensor
    name: str
    expected: str
    remedy: str


def checked(loss: Loss, dim: int | None = None, **limits: int | None) -> Loss:
    """The loss, whose every call is checked. dim: D of its own vectors. limits: the number of `labels` or
    `samples` that it knows.

    A call raises ValueError for an input that is no tensor, has another type, device or shape than `forward`
    states, no row, or an integer outside of [0, limit), and for a vector whose length is not 1. Integers of
    any type become int64. On a GPU the host waits once.
    """
    loss.register_forward_pre_hook(_Check(dim, limits).arguments, with_kwargs=True)
    return loss


class _Check(NamedTuple):
    """The check in front of a call. It is no closure, so that a loss can be pickled."""

    dim: int | None
    limits: dict[str, int | None]

    @torch.no_grad()
    def arguments(self, loss: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The arguments by name."""
        signature = inspect.signature(loss.forward)
        try:
            bound = signature.bind(*arguments, **named).arguments
        except TypeError as error:
            call = f"loss({', '.join(signature.parameters)})"
            raise ValueError(f"The call is wrong: {error}. Call {call}.") from None
        inputs = {name: value for name, value in bound.items() if value is not None}
        forms = {name: _form(signature.parameters[name].annotation) for name in inputs}
        sizes = {} if self.dim is None else {"D": (self.dim, "the loss")}
        for name, value in inputs.items():
            _require_type(name, value, forms[name])
            _require_shape(name, value, forms[name], sizes)
        _require_device(loss, inputs)
        inputs |= {name: value.long() for name, value in inputs.items() if forms[name].integer}
        rules = [*_ranges(inputs, self.limits), *_lengths(inputs, forms)]
        if rules and torch.stack([rule.wrong.any() for rule in rules]).any():
            raise ValueError(_broken(rules))
        return (), inputs


def _form(annotation: Any) -> _Form:
    """The form of a jaxtyping annotation, which may be optional."""
    array = next(each for each in (annotation, *get_args(annotation)) if hasattr(each, "dim_str"))
    axes = tuple(axis.lstrip("*#") for axis in array.dim_str.split())
    return _Form(axes, "float32" not in array.dtypes)


def _require_type(name: str, value: Any, form: _Form) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"{name}: expected a tensor, got {type(value).__name__}. Use torch.as_tensor.")
    integer = not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)
    if form.integer and not integer:
        raise ValueError(f"{name}: expected integers, got {value.dtype}. Number the classes from 0.")
    if not form.integer and not value.is_floating_point():
        raise ValueError(f"{name}: expected real numbers, got {value.dtype}. Convert them with float().")


def _require_shape(name: str, value: Tensor, form: _Form, sizes: dict[str, tuple[int, str]]) -> None:
    """Raises ValueError for a shape that differs from those of the inputs before, in `sizes` by axis."""
    shape = tuple(value.shape)
    if len(shape) != len(form.axes):
        axes = " x ".join(form.axes)
        raise ValueError(f"{name}: expected the axes {axes}, got the shape {shape}. Remove or add axes.")
    for axis, size in zip(form.axes, shape, strict=True):
        expected, owner = sizes.setdefault(axis, (size, name))
        if size != expected:
            raise ValueError(
                f"{name}: the shape {shape} has {axis} = {size}, but {owner} has {axis} = {expected}. "
                "Make them equal."
            )
    if shape[0] == 0 and form.axes[0] != "S":  # a memory may be empty
        raise ValueError(f"{name}: got the shape {shape}, which has no row. Omit an empty batch.")


def _require_device(module: nn.Module, inputs: dict[str, Tensor]) -> None:
    devices = {name: value.device for name, value in module.state_dict().items()}
    devices |= {name: value.device for name, value in inputs.items()}
    if len(set(devices.values())) > 1:
        places = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise ValueError(f"The loss and its inputs are on several devices: {places}. Move them: to(device).")


def _ranges(inputs: dict[str, Tensor], limits: dict[str, int | None]) -> Iterator[_Rule]:
    if "self_index" in inputs and "references" in inputs:
        limits = limits | {"self_index": len(inputs["references"])}
    for name, limit in limits.items():
        if name in inputs and limit is not None:
            wrong = (inputs[name] < 0) | (inputs[name] >= limit)
            remedy = "Number them from 0, or build the loss with more."
            yield _Rule(wrong, inputs[name], name, f"0 to {limit - 1}", remedy)


def _lengths(inputs: dict[str, Tensor], forms: dict[str, _Form]) -> Iterator[_Rule]:
    for name, value in inputs.items():
        length = torch.linalg.vector_norm(value.float(), dim=-1)
        if forms[name].is_unit:
            remedy = "Use torch.nn.functional.normalize(vectors, dim=-1)."
            yield _Rule(~((length - 1).abs() <= _TOLERANCE), length, name, "the length 1", remedy)
        elif not forms[name].integer:
            yield _Rule(~length.isfinite(), length, name, "a finite length", "Look for NaN in the network.")


def _broken(rules: list[_Rule]) -> str:
    """The first wrong row."""
    rule = next(rule for rule in rules if rule.wrong.any())
    place = tuple(rule.wrong.nonzero()[0].tolist())
    row, value = ", ".join(map(str, place)), rule.values[place].item()
    return f"{rule.name}: expected {rule.expected} in row {row}, got {value:.6g}. {rule.remedy}"
