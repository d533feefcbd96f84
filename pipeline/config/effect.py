"""Changes that decide nothing: a value of methods.<m> that a block of the data set replaces is never read, and nobody would be told.

A value counts as changed when it is not that of the last commit: the published recipes stand there for good, whatever a data set makes of them.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pipeline.config.command import literal, option
from pipeline.config.params import Params, plain
from pipeline.config.resolve import Leaf, at, layers_of, nested, trace
from pipeline.runtime.errors import UserError


@dataclass(frozen=True)
class Overruled:
    """`field` = `value` of `layer`, and what a higher layer has in its place in the recipe of `method` on `dataset`."""

    dataset: str
    method: str
    layer: str
    field: str
    value: Any
    by_layer: str
    by_field: str  # the field itself; an enclosing block, where that is null; the `name` of another part, which has no such field
    by_value: Any


def require_effect(params: Params, recipes: Iterable[tuple[str, str]]) -> None:
    """Raises UserError for changed values that decide nothing in any of the `recipes` (data set, method) of a run.

    What decides in some of them is said on stderr. A value equal to the one that takes its place does no harm, and a block that is new altogether is
    no change. Without git, or before the first commit, nothing is known to be changed.
    """
    before = committed(params.path)
    concerned: dict[str, list[tuple[str, str]]] = {}
    for recipe in dict.fromkeys(recipes):
        for layer in layers_of(*recipe):
            concerned.setdefault(layer, []).append(recipe)
    said: list[str] = []
    options: dict[str, None] = {}
    for layer, users in concerned.items():
        old = at(before, layer)
        for field, value in changed(old, params.read(layer)) if isinstance(old, dict) else ():
            found = [one for user in users if (one := overruled(params, *user, layer, field, value)) is not None]
            places = "; ".join(
                f"{one.method} on {one.dataset} takes {one.by_layer}.{one.by_field} = {literal(one.by_value)} "
                f"({params.path}:{params.line(f'{one.by_layer}.{one.by_field}')})"
                for one in found
            )
            what = f"{params.path}:{params.line(f'{layer}.{field}')}: {layer}.{field} = {literal(value)}"
            if found and len(found) < len(users):
                sys.stderr.write(f"warning: {what} does not decide everywhere: {places}.\n")
            elif found:
                said.append(f"{what} decides nothing in this run: {places}.")
                options |= dict.fromkeys(option for one in found for option in deciding(params, one))
    if said:
        raise UserError(
            "\n".join(said), f"What decides instead: {' '.join(options)}\n  To go back to the last commit: git checkout HEAD -- {params.path}"
        )


def committed(path: Path) -> Any:
    """The file as the last commit has it; None where there is no git, no commit, or no such YAML in it."""
    try:
        shown = subprocess.run(["git", "show", f"HEAD:./{path.name}"], cwd=path.absolute().parent, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    try:
        return plain(YAML(typ="rt").load(shown.stdout.decode("utf-8"))) if shown.returncode == 0 else None
    except (YAMLError, UnicodeDecodeError):
        return None


def changed(before: Any, now: Any, field: str = "") -> Iterator[tuple[str, Any]]:
    """The values of the nested dict `now`, by dotted field, that `before` does not hold there."""
    if isinstance(now, dict):
        for key, value in now.items():
            yield from changed(at(before, key), value, f"{field}.{key}" if field else key)
    elif now != before:
        yield field, now


def overruled(params: Params, dataset: str, method: str, layer: str, field: str, value: Any) -> Overruled | None:
    """What has the place of `field` = `value` of `layer` in a recipe; None where that decides, or where the same value stands there."""

    def by(where: str, leaf: Leaf) -> Overruled:
        return Overruled(dataset, method, layer, field, value, leaf.layer, where, leaf.value)

    node: Any = trace(params, dataset, method)
    part, seen = ("", Leaf(None, "")), ""
    for key in field.split("."):
        if isinstance(node, Leaf):
            return by(seen, node)
        if "name" in node:
            part = (f"{seen}.name", node["name"])
        if key not in node:
            return by(*part)
        node, seen = node[key], f"{seen}.{key}" if seen else key
    if isinstance(node, Leaf):
        return None if node.layer == layer or node.value == value else by(field, node)
    layers = layers_of(dataset, method)  # a block in place of a plain value
    upper = next(one for one in layers[::-1] if params.line(f"{one}.{field}") is not None)
    return None if upper == layer else by(field, Leaf(params.read(f"{upper}.{field}"), upper))


def deciding(params: Params, found: Overruled) -> list[str]:
    """The arguments of `dvc exp run` that give the value its effect, in the uppermost layer: for one method on one data set."""
    top = layers_of(found.dataset, found.method)[-1]
    if found.field.startswith(f"{found.by_field}."):
        block = nested(found.field.removeprefix(f"{found.by_field}."), found.value)
        return [option(params, f"{top}.{found.by_field}", literal(block))]
    options = [option(params, f"{top}.{found.field}", literal(found.value))]
    if found.by_field == found.field:
        return options
    name = at(trace(params, found.dataset, found.method, upto=found.layer), found.by_field)
    return [option(params, f"{top}.{found.by_field}", literal(name.value)), *options]
