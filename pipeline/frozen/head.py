"""The recipe of a head: that of a published method, with one setting of images, batch and optimizer for all.

Layers, each of which overrides those above it:

    published defaults < pipeline/recipes/methods/<m>.yaml < SETTING < network < changes of the caller

The methods can be compared with each other, because they have the same optimizer, batch, dimension and
length. These settings are ours: a new head on fixed features needs a larger learning rate than a network.
"""

from typing import TYPE_CHECKING, Any

from unseen.config.layers import Fields, Layers, Patch, dotted
from unseen.config.place import Place, Tree
from unseen.config.recipe_files import method_class, published, published_family, published_patches
from unseen.runtime.errors import UserError
from unseen.runtime.setting_names import suggestion

if TYPE_CHECKING:  # torch takes seconds to import
    from unseen.frozen.maps import Trunk

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


def head(method: str, trunk: "Trunk | None" = None, changes: Fields | None = None) -> Layers:
    """The layers of a head of a published method, or of the class `package.module:Class` of a user, on a
    network; None: on that of its recipe.

    A method that reads one map reads the last one of the network. Raises UserError for an unknown method.
    """
    is_published = method in published("methods")
    if not is_published and ":" not in method:
        raise UserError(
            f"There is no method {method}.",
            f"{suggestion(method, published('methods'))}Known are: {', '.join(published('methods'))}.",
        )
    kind = method_class(method) if is_published else method
    network: dict[str, Any] = {}
    if trunk is not None:
        network = {f"backbone.{key}": value for key, value in trunk.settings.items()}
        network["input"] = trunk.input.model_dump(mode="json", exclude_unset=True)
        if kind != "multihead":
            network["backbone.stages"] = [-1]
    return Layers(
        kind,
        (
            *published_patches(published_family(method) if is_published else ()),
            Patch(Place("The setting of heads"), _setting),
            dotted(Place(f"The network of the head of {method}"), network),
            dotted(Place(f"The head of {method}"), changes or {}),
        ),
    )


def _setting(below: Tree) -> Tree:
    """SETTING. The published start of the zero-shot loss is far above chance."""
    return SETTING | ({"zero_shot": {"initialization": "chance"}} if below.get("zero_shot") else {})
