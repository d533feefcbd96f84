"""A recipe as text: every value with the layer that sets it, or the differences from a git revision."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unseen.cli.at_revision import AtRevision
from unseen.config.command import literal
from unseen.config.document import Params
from unseen.config.inputs import Inputs, TrainInputs, parse_inputs, path_of
from unseen.config.layers import Layers, flat
from unseen.experiments.catalogue import definitions
from unseen.experiments.plan.modules import modules_of
from unseen.runtime.code import code_of
from unseen.runtime.stage import PACKAGE
from unseen.runtime.text import aligned


def recipe(params: Params, dataset: str, method: str) -> str:
    """The resolved recipe as lines of field, value and origin. The origin is file and line, or `default` for
    a published default.

    Raises UserError for an unknown name and an incorrect value.
    """
    layers = definitions(params, method, datasets=(dataset,)).layers(dataset, method)
    lines = list(_lines(layers, layers.recipe().model_dump(mode="json")))
    return "\n".join(aligned(lines))


def difference(dataset: str, method: str, revision: str) -> str:
    """The differences between the training of `method` on `dataset` now and at a git revision: fields of the
    recipe, modules of the code.

    Raises UserError if DVC's cache has no resolved file of the training at that revision.
    """
    now = definitions(Params(), method, datasets=(dataset,)).layers(dataset, method).recipe()
    before = _at_revision(dataset, method, revision)
    old, new = (
        {field: literal(value) for field, value in flat(recipe.model_dump(mode="json")).items()}
        for recipe in (before.settings.recipe, now)
    )
    absent = "(not a field)"
    lines = [
        f"{field}: {old.get(field, absent)} -> {new.get(field, absent)}"
        for field in dict.fromkeys((*old, *new))
        if old.get(field, absent) != new.get(field, absent)
    ]
    code = code_of(PACKAGE, Path()).closure(["unseen.stages.train", *modules_of(now)])
    lines += [
        f"code: {module}"
        for module in sorted({*code, *before.code})
        if code.get(module) != before.code.get(module)
    ]
    return "\n".join(lines) or f"{method} on {dataset} is the same as at {revision}."


def _at_revision(dataset: str, method: str, revision: str) -> Inputs[TrainInputs]:
    path = path_of("train", dataset, method)
    text = AtRevision(revision).read(path).decode()
    return parse_inputs(TrainInputs, text, f"{path} of {revision}")


def _lines(layers: Layers, block: dict[str, Any], above: str = "") -> Iterator[tuple[str, str, str]]:
    for key, value in block.items():
        field, indent = f"{above}{key}", "  " * above.count(".")
        if isinstance(value, dict) and value:
            yield f"{indent}{key}:", "", ""
            yield from _lines(layers, value, f"{field}.")
        else:
            yield f"{indent}{key}:", literal(value), layers.origin(field)
