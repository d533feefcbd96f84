"""A recipe as text: every value with the layer that sets it, or the differences from a git revision."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unseen.cli.at_revision import AtRevision
from unseen.config.command import literal
from unseen.config.document import Params
from unseen.config.inputs import Inputs, TrainInputs, parse_inputs, path_of
from unseen.config.layers import Layers, flat
from unseen.config.resolve import settings, sweep_settings
from unseen.config.stages import EnsembleBlock
from unseen.experiments.catalogue import definitions
from unseen.experiments.folds.members import fold
from unseen.experiments.plan.modules import modules_of
from unseen.experiments.sweep.space import draw, trial_layers
from unseen.runtime.code import code_of
from unseen.runtime.errors import UserError
from unseen.runtime.setting_names import suggestion
from unseen.runtime.stage import PACKAGE
from unseen.runtime.text import aligned

HEAD, ARM = "head", "arm"  # in place of a data set


def recipe(
    params: Params, dataset: str, method: str, model: int | None = None, trial: int | None = None
) -> str:
    """The resolved recipe as lines of field, value and origin. The origin is file and line, or `default` for
    a published default. model: of the folds of `ensemble`. trial: of the sweep of the method, from 1.

    dataset `head`: the method on a frozen network; `arm`: an arm of the claims. Raises UserError for an
    unknown name or number, and an incorrect value.
    """
    layers = _layers(params, dataset, method, model, trial)
    lines = list(_lines(layers, layers.recipe().model_dump(mode="json")))
    return "\n".join(aligned(lines))


def _layers(params: Params, dataset: str, method: str, model: int | None, trial: int | None) -> Layers:
    if dataset in (HEAD, ARM):
        from unseen.experiments.claims.claim import claims
        from unseen.frozen.head import head

        if dataset == HEAD:
            return head(method)
        known = claims()
        if method not in known.arms:
            remedy = f"{suggestion(method, known.arms)}docs/claims.md lists the arms."
            raise UserError(f"There is no arm {method}.", remedy)
        like, changes = known.arm(method)
        return head(like, changes=changes)
    known_names = definitions(params, method, datasets=(dataset,))
    layers = known_names.layers(dataset, method)
    if model is not None:
        folds = settings(params, "ensemble", EnsembleBlock).folds
        if model not in folds:
            raise UserError(f"There is no model {model}.", f"ensemble.folds has {literal(list(folds))}.")
        return fold(layers, model, len(folds))
    if trial is not None:
        sweep = sweep_settings(known_names, method)
        every = trial_layers(known_names, dataset, method, sweep, draw(sweep))
        if trial > len(every):
            raise UserError(f"There is no trial {trial} of {method}.", f"Its sweep has {len(every)} trials.")
        return every[trial - 1]
    return layers


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
