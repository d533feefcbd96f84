"""A recipe as layers: patches over the published defaults of a class of recipe. This is the only fold.

Sources list the patches:

    config/definitions.py               a method on a data set of the run
    config/study_row.py                 a row of a study
    experiments/sweep/space.py          a trial
    experiments/folds/members.py        a fold
    frozen/head.py                      a head on a frozen network
    frozen/proxies.py                   a training with proxies of the classes
    experiments/ladder/head.py          a rung of the ladder
    experiments/claims/whole_photos.py  an arm or a floor of claims with whole networks
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from pydantic import ValidationError

from unseen.config.document import plain
from unseen.config.place import Place, Tree, at, explained
from unseen.data.settings import Input
from unseen.methods.settings import Recipe, parse_recipe, recipe_class
from unseen.runtime.parts import identity, trusted

Fields = Mapping[str, Any]  # dotted field -> value
# blocks that name a part -> their fields that stay if a patch names another part
_KEPT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("pooling", "loss", "pair", "proxy"), ()),
    "backbone": ("pretrained", "stages", "batch_norm"),
    "batch": ("classes", "images_per_class"),
    "input": tuple(Input.model_fields),
}


@dataclass(frozen=True)
class Patch:
    """The fields of a recipe that one place sets: a tree, or a function of the recipe below it."""

    place: Place
    fields: Tree | Callable[[Tree], Tree]


@dataclass(frozen=True)
class Leaf:
    """A value of a recipe and the place that sets it. Leaves compare by value, so that they merge as plain
    values."""

    value: Any
    place: Place | None = field(compare=False)  # None: a published default


@dataclass(frozen=True)
class Layers:
    """A class of recipe and its patches, each of which overrides those before it."""

    kind: str  # baseline, crt, ... (methods/settings.py), or the class of a method of a user
    patches: tuple[Patch, ...]
    last: tuple[Patch, ...] = ()  # above all others, also above those of `plus`

    def plus(self, *patches: Patch) -> "Layers":
        """These layers below further patches."""
        return replace(self, patches=(*self.patches, *patches))

    def recipe(self) -> Recipe:
        """The recipe. If a patch names another part (another loss, another pooling), the fields of the
        replaced part are dropped. Raises UserError with the place that sets the incorrect field."""
        merged, applied = self._folded()
        try:
            with trusted():
                return parse_recipe(merged)
        except ValidationError as error:
            # an error names a place of `last` only for a field that no other sets
            applied.sort(key=lambda block: block[0] not in [patch.place for patch in self.last])
            raise explained(error, applied, merged) from None

    def trace(self) -> dict[str, Any]:
        """The recipe before validation, with a `Leaf` in place of each value."""
        merged = _leaves(_default(self.kind), None)
        for place, fields in self._folded()[1]:
            merged = _merge(merged, _leaves(fields, place))
        return merged

    def origin(self, field: str) -> str:
        """The place that sets a dotted field: `params.yaml:12, methods.ms`,
        `pipeline/recipes/methods/ms.yaml:4`, or `default`."""
        leaf = at(self.trace(), field)
        return leaf.place.where(field) if isinstance(leaf, Leaf) and leaf.place else "default"

    def _folded(self) -> tuple[dict[str, Any], list[tuple[Place, Tree]]]:
        """The merged values, and the fields that each patch sets, the lowest first."""
        merged, applied = _default(self.kind), []
        for patch in (*self.patches, *self.last):
            fields = patch.fields(merged) if callable(patch.fields) else patch.fields
            if fields:
                merged = _merge(merged, fields)
                applied.append((patch.place, fields))
        return merged, applied


def dotted(place: Place, fields: Fields) -> Patch:
    """The patch {"a": {"b": 1}} of {"a.b": 1}. A field may be a whole block; fields inside it override it."""
    tree: dict[str, Any] = {}
    for name in sorted(fields, key=lambda name: name.count(".")):
        *parents, last = name.split(".")
        node = tree
        for parent in parents:
            if not isinstance(node.get(parent), dict):
                node[parent] = {}
            node = node[parent]
        node[last] = plain(fields[name])
    return Patch(place, tree)


def flat(tree: Tree, above: str = "") -> dict[str, Any]:
    """{"a.b": 1} of {"a": {"b": 1}}. A key may be dotted already. An empty block is a value."""
    fields: dict[str, Any] = {}
    for key, value in tree.items():
        is_block = isinstance(value, Mapping) and value
        fields |= flat(value, f"{above}{key}.") if is_block else {f"{above}{key}": value}
    return fields


def _merge(below: Tree, above: Tree) -> dict[str, Any]:
    """The blocks of `below`, overridden by those of `above`.

    Another part drops the fields that belong to the old part.
    """
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if not (isinstance(old, dict) and isinstance(value, dict)):
            result[key] = value
            continue
        if key in _KEPT and _identity(value, _identity(old)) != _identity(old):
            old = {name: item for name, item in old.items() if name in _KEPT[key]}
        result[key] = _merge(old, value)
    return result


def _identity(part: Tree, default: Any = None) -> Any:
    return identity(
        {key: item.value if isinstance(item, Leaf) else item for key, item in part.items()}, default
    )


@cache
def _default(kind: str) -> dict[str, Any]:
    with trusted():
        cls: Any = recipe_class(kind)
    # without validation, which refuses a recipe of a user's method whose fields lack a default
    values: dict[str, Any] = cls.model_construct().model_dump(mode="json", warnings=False)
    return values


def _leaves(value: Tree, place: Place | None) -> dict[str, Any]:
    return {
        key: _leaves(item, place) if isinstance(item, dict) else Leaf(item, place)
        for key, item in value.items()
    }
