"""The recipe of a head: that of a published method, with one setting of images, batch and optimizer for all.

Layers, each of which overrides those above it:

    published defaults < pipeline/recipes/methods/<m>.yaml < SETTING < changes of the caller

The methods can be compared with each other, because they have the same optimizer, batch, dimension and
length. These settings are ours: a new head on fixed features needs a larger learning rate than a network.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from unseen.config.recipe_files import chain, method_class, method_file, published
from unseen.config.resolve import merge, nested
from unseen.methods.settings import Recipe, default_recipe, parse_recipe
from unseen.runtime.errors import UserError
from unseen.runtime.setting_names import suggestion

SETTING: dict[str, Any] = {
    "batch": {"classes": 8, "images_per_class": 4, "sampling": "classes"},
    "optimizer": {
        "name": "adamw",
        "learning_rate": 1e-3,
        "weight_decay": 1e-4,
        "epsilon": 1e-8,
        "decay_vectors": False,
        "multipliers": {"proxies": 10.0},
        "new_layers_only": 0,
        "clip_norm": 10.0,
        "clip_value": None,
    },
    "schedule": {"name": "constant", "warmup": 0},
    "training": {
        "protocol": "published",
        "patience": None,
        "precision": "float32",
        "compile": False,
        "gradient_noise": None,
    },
}
_ZERO_SHOT = {"zero_shot": {"initialization": "chance"}}  # the published start is far above chance


def head_recipe(method: str, changes: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of a head of a published method. `changes`: dotted field -> value.

    Raises UserError for an unknown method and for a change that the recipe does not accept.
    """
    if method not in published("methods"):
        raise UserError(
            f"There is no method {method}.",
            f"{suggestion(method, published('methods'))}Known are: {', '.join(published('methods'))}.",
        )
    merged = default_recipe(method_class(method), method).model_dump(mode="json")
    parent = method_file(method).like
    for name in (*(chain("methods", parent) if parent else ()), *chain("methods", method)):
        merged = merge(merged, method_file(name).recipe)
    merged = merge(merged, SETTING)
    if merged.get("zero_shot"):
        merged = merge(merged, _ZERO_SHOT)
    for path, value in (changes or {}).items():
        merged = merge(merged, nested(path, value))
    try:
        return parse_recipe(merged)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise UserError(f"The head of {method}: {place}: {problem['msg']}.", "Correct the change.") from None
