"""The place where a setting is written, and the error for a setting that is not valid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from unseen.config.document import Document, Params
from unseen.runtime.errors import UserError
from unseen.runtime.parts import fields_at
from unseen.runtime.setting_names import suggestion

Tree = Mapping[str, Any]  # blocks of settings
ABSENT = object()
# earlier settings -> what replaces them
MOVED = {
    "check": "Stage `resolve` replaces stage `check` and has no settings. Remove this block.",
    "ensemble.repeats": "List one seed per training of a fold: `seeds: [0, 1, 2]`.",
    "ensemble.seed": "List one seed per training of a fold: `seeds: [0, 1, 2]`.",
    "ensemble.concurrent": "Members are stages: `unseen run -j N` runs N at a time. Remove this line.",
    "evaluate.bootstrap": "Intervals have a closed form; those of FNMR at FMR resample classes "
    "`analyze.bootstrap` times. Remove this line.",
    "train.cpus_per_worker": "The number of threads changes a result, so recipes have it: training.threads, "
    "2 by default. Remove this line. For another number on a data set, write below datasets.<data set>: "
    "`recipe: {training: {threads: 4}}`.",
}


@dataclass(frozen=True)
class Place:
    """Where values are written: block `key` of a YAML file, or words for values of the code, such as `model 2
    of 4 folds`."""

    label: str  # how messages name the file, or the words
    key: str = ""
    document: Document | None = None

    @classmethod
    def of(cls, document: Document, key: str) -> "Place":
        """A block of a file."""
        return cls(document.label, key, document)

    def line(self, field: str = "") -> int | None:
        """The line of a dotted field, or of the block itself."""
        key = ".".join(filter(None, (self.key, field)))
        return self.document.line(key) if self.document else None

    def where(self, field: str) -> str:
        """`params.yaml:12, methods.gsp`, `pipeline/recipes/methods/gsp.yaml:9` or the words. A field of a row
        of a study may be in a printed table instead: then the line is that of the study."""
        line = self.line(field) or self.line()
        place = f"{self.label}:{line}" if line else self.label
        return f"{place}, {self.key}" if isinstance(self.document, Params) else place


def at(tree: Any, path: str) -> Any:
    """The value of nested dicts at a dotted path `a.b`; ABSENT if it does not exist."""
    for key in path.split(".") if path else ():
        tree = tree.get(key, ABSENT) if isinstance(tree, Mapping) else ABSENT
    return tree


def explained(error: ValidationError, blocks: Sequence[tuple[Place, Tree]], merged: Tree) -> UserError:
    """A UserError for the first problem of `error`.

    `blocks` are the blocks, each with its place, from which `merged` was merged, the lowest first. The error
    names the last place that sets the key; if none does, the last that sets the block of the key.
    """
    problem = error.errors()[0]
    path, siblings = _key_path(problem, merged)
    # A missing key has no line. The line of its block is given instead.
    place, line = _setting_place(path[:-1] if problem["type"] == "missing" else path, blocks)
    key = ".".join([place.key, *path] if isinstance(place.document, Params) or not path else path)
    where = f"{place.label}:{line}" if line else place.label
    kind = problem["type"]
    if kind == "extra_forbidden":
        known = sorted({*map(str, siblings), *fields_at(siblings)} - {path[-1]})
        remedy = MOVED.get(key, f"{suggestion(path[-1], known)}Known here: {', '.join(known)}.")
        return UserError(
            f"{where}: {key} is not a setting.", remedy if known else "Remove it, or correct its name."
        )
    if kind.startswith("union_tag"):
        context = problem["ctx"]
        name = context["discriminator"].strip("'")
        if "tag" not in context:
            return UserError(
                f"{where}: {key}.{name} is missing.", f"Add `{name}: ` and one of the known names."
            )
        known = [tag.strip("'") for tag in context["expected_tags"].split(", ")]
        return UserError(
            f"{where}: unknown {key}.{name} {context['tag']!r}.",
            f"{suggestion(context['tag'], known)}Known are: {', '.join(known)}.",
        )
    if kind == "missing":
        return UserError(f"{where}: {key} is missing.", "Add it.")
    message = problem["msg"].removeprefix("Value error, ")
    value = "" if isinstance(problem["input"], dict) else f", got {problem['input']!r}"
    return UserError(": ".join(filter(None, (where, key, f"{message}{value}."))), "Correct the value.")


def _setting_place(path: Sequence[str], blocks: Sequence[tuple[Place, Tree]]) -> tuple[Place, int | None]:
    """The place of the last block that contains the longest beginning of `path`, and the line there."""
    return next(
        (place, place.line(field) or place.line())
        for field in (".".join(path[:length]) for length in range(len(path), -1, -1))
        for place, block in reversed(blocks)
        if place.line(field) is not None or at(block, field) is not ABSENT
    )


def _key_path(problem: ErrorDetails, merged: Tree) -> tuple[list[str], Mapping[str, Any]]:
    """The keys that lead to a problem in the file, and the block that contains the last one.

    pydantic adds the tag of a union to the location. The tag is not a key of the file and is omitted.
    """
    location = list(map(str, problem["loc"]))
    names_a_key = problem["type"] in ("extra_forbidden", "missing")
    path: list[str] = []
    node: Any = merged
    for index, part in enumerate(location):
        is_key = names_a_key and index + 1 == len(location)
        if isinstance(node, dict) and part not in node and not is_key:
            continue
        path.append(part)
        if isinstance(node, dict) and isinstance(node.get(part), dict):
            node = node[part]
    block = at(merged, ".".join(path[:-1]))
    return path, block if isinstance(block, dict) else {}
