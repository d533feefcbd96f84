"""What to type: a setting as an argument of `dvc exp run -S`, and errors about a recipe that say where its fields stand."""

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

from pipeline.config.params import Params
from pipeline.config.resolve import ABSENT, Leaf, at, layers_of, resolve, trace
from pipeline.runtime.errors import UserError

_FIELD = re.compile(r"(?<![\w.])([a-z_]+(?:\.[a-z_]+)+)(?:=(\S*[^\s,;.]))?")
_PLAIN = re.compile(r"[\w./:+~@%-]*")


def option(params: Params, key: str, value: str) -> str:
    """`-S 'key=value'`, with `++` where params.yaml does not hold the key yet."""
    new = "++" if params.line(key) is None else ""
    return f"-S '{new}{key}={value}'"


def literal(value: Any) -> str:
    """A value as DVC's -S reads it."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{literal(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(literal, value)) + "]"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


def standing(params: Params, dataset: str, method: str, field: str) -> str:
    """Where the value of a field of a recipe stands: `params.yaml:12, methods.ms`, or `default`."""
    found = at(trace(params, dataset, method), field)
    if not isinstance(found, Leaf) or not found.layer:
        return "default"
    return f"{params.path}:{params.line(f'{found.layer}.{field}')}, {found.layer}"


@contextlib.contextmanager
def in_full(params: Params, dataset: str, method: str) -> Iterator[None]:
    """Completes a UserError about the recipe of `method` on `dataset`.

    A field that its remedy names (`batch.classes`, or `batch.classes=8` with the value that would do) is followed by where it stands and the argument
    that changes it there: in the data set's own block, where neither another data set nor, if it can be, another method is touched.
    """
    try:
        yield
    except UserError as error:
        recipe = resolve(params, dataset, method).model_dump(mode="json")
        lines = [error.remedy]
        for field, wanted in dict(sorted(_FIELD.findall(error.remedy))).items():  # of two mentions, the one with a value
            if (value := at(recipe, field)) is not ABSENT:
                change = _option(params, dataset, method, field, wanted or "...")
                lines.append(
                    f"{field} of {method} on {dataset} is {literal(value)} ({standing(params, dataset, method, field)}). Change it with {change}"
                )
        raise UserError(error.what, "\n  ".join(lines)) from error.__cause__


def _option(params: Params, dataset: str, method: str, field: str, wanted: str) -> str:
    _, for_all, for_one = layers_of(dataset, method)
    found = at(trace(params, dataset, method), field)
    return option(params, f"{for_all if isinstance(found, Leaf) and found.layer == for_all else for_one}.{field}", wanted)
