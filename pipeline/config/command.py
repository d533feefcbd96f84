"""Settings as arguments of `dvc exp run -S`, and the origin of the fields that an error about a recipe
names."""

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.place import ABSENT, at
from unseen.runtime.errors import UserError

_FIELD = re.compile(r"(?<![\w.])([a-z_]+(?:\.[a-z_]+)+)(?:=(\S*[^\s,;.]))?")
_PLAIN = re.compile(r"[\w./:+~@%-]*")


def option(params: Params, key: str, value: str) -> str:
    """`-S 'key=value'`, with `++` where params.yaml does not have the key yet."""
    prefix = "++" if params.line(key) is None else ""
    return f"-S '{prefix}{key}={value}'"


def literal(value: Any) -> str:
    """A value as DVC's -S reads it."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(literal, value)) + "]"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


@contextlib.contextmanager
def field_origins(definitions: Definitions, dataset: str, method: str) -> Iterator[None]:
    """Adds to the remedy of a UserError about the recipe of `method` on `dataset`.

    For each field that the remedy names (`batch.classes`, or `batch.classes=8` with a value) it adds the
    place that sets the field, and the argument that changes the field for this data set and method only. To
    an error about a name without a definition it adds nothing: stages read no studies, because trainings must
    not depend on the code and the printed numbers of studies.
    """
    try:
        yield
    except UserError as error:
        if method not in definitions.methods() or dataset not in definitions.datasets():
            raise
        layers = definitions.layers(dataset, method)
        recipe = layers.recipe().model_dump(mode="json")
        lines = [error.remedy]
        # Sorted: of two mentions of a field, the dict keeps the one with a value.
        for field, new_value in dict(sorted(_FIELD.findall(error.remedy))).items():
            value = at(recipe, field)
            if value is not ABSENT:
                lines.append(
                    f"{field} of {method} on {dataset} is {literal(value)} "
                    f"({layers.origin(field)}). "
                    f"Change it {_where(definitions, dataset, method, field, new_value or '...')}"
                )
        raise UserError(error.what, "\n  ".join(lines)) from error.__cause__


def _where(definitions: Definitions, dataset: str, method: str, field: str, value: str) -> str:
    """Where a field of a recipe is changed: params.yaml, or for a row the file of its study."""
    if method not in definitions.rows:
        return f"with {change(definitions, dataset, method, field, value)}"
    row = definitions.rows[method]
    place = f"{row.document.label}:{row.document.line(row.study)}"
    return f"in the recipe of the row, study {row.study} ({place}): {field}: {value}"


def change(definitions: Definitions, dataset: str, method: str, field: str, value: str) -> str:
    """The argument of `dvc exp run` that sets a field of `method` on `dataset` only, in the layer with the
    highest precedence."""
    like = definitions.dataset(dataset).like
    return option(definitions.params, f"datasets.{like}.methods.{method}.{field}", value)
