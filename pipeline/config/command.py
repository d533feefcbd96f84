"""Settings as arguments of `dvc exp run -S`, and errors about a recipe completed by where its fields are
set."""

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

from pipeline.config.document import Params
from pipeline.config.resolve import ABSENT, Leaf, at, resolve, trace
from pipeline.runtime.errors import UserError

_FIELD = re.compile(r"(?<![\w.])([a-z_]+(?:\.[a-z_]+)+)(?:=(\S*[^\s,;.]))?")
_PLAIN = re.compile(r"[\w./:+~@%-]*")


def option(params: Params, key: str, value: str) -> str:
    """`-S 'key=value'`, with `++` where params.yaml does not have the key yet."""
    new = "++" if params.line(key) is None else ""
    return f"-S '{new}{key}={value}'"


def literal(value: Any) -> str:
    """A value as DVC's -S reads it."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(literal, value)) + "]"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


def origin(params: Params, dataset: str, method: str, field: str) -> str:
    """Which layer sets a field of a recipe: `params.yaml:12, methods.ms`,
    `pipeline/recipes/methods/ms.yaml:4`, or `default`."""
    leaf = at(trace(params, dataset, method), field)
    return leaf.layer.where(field) if isinstance(leaf, Leaf) and leaf.layer else "default"


@contextlib.contextmanager
def in_full(params: Params, dataset: str, method: str) -> Iterator[None]:
    """Completes a UserError about the recipe of `method` on `dataset`.

    A field that its remedy names (`batch.classes`, or `batch.classes=8` with a value) is followed by the
    layer that sets it and the argument that changes it for this data set and method alone.
    """
    try:
        yield
    except UserError as error:
        recipe = resolve(params, dataset, method).model_dump(mode="json")
        lines = [error.remedy]
        for field, value in dict(
            sorted(_FIELD.findall(error.remedy))
        ).items():  # of two mentions, the one with a value
            if (present := at(recipe, field)) is not ABSENT:
                place = origin(params, dataset, method, field)
                lines.append(
                    f"{field} of {method} on {dataset} is {literal(present)} ({place}). "
                    f"Change it with {change(params, dataset, method, field, value or '...')}"
                )
        raise UserError(error.what, "\n  ".join(lines)) from error.__cause__


def change(params: Params, dataset: str, method: str, field: str, value: str) -> str:
    """The argument of `dvc exp run` that sets a field of `method` on `dataset` alone, in the layer that wins
    over all others."""
    return option(params, f"datasets.{dataset}.methods.{method}.{field}", value)
