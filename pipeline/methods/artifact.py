"""A trained method as files: its weights, and recipe.json, from which the network for them is built.

    weights.safetensors        selected: best on validation classes, or the last ones, by training.protocol
    last.safetensors           of the last iteration
    untrained.safetensors      before the first step
    best_on_test.safetensors   best on the test classes, if training.watch_test is set; not for publication

The directory is self-contained: loading reads no checkpoint from which the training started. recipe.json has
the sha256 of each file of weights, which is compared at each loading; models of earlier versions have none.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from unseen.methods.build import initial_method
from unseen.methods.method import Method
from unseen.methods.settings import Recipe, Training, parse_recipe
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import atomic_file, regular, unreadable_is_an_error, write_json
from unseen.runtime.sealed import restore

SCHEMA_VERSION = 1  # of the directory; files of unreleased versions have none
Weights = Literal["weights", "last", "untrained", "best_on_test"]
_RETRAIN = "Train the model: `dvc repro` does it."


@dataclass(frozen=True)
class LoadedModel:
    """A method in eval mode on the CPU, with its recipe, data set and seed."""

    method: Method
    recipe: Recipe
    dataset: str
    seed: int


def save_weights(path: Path, method: Method) -> None:
    """Writes parameters and buffers as safetensors. Equal values give equal bytes.

    Modules that only training needs (memories) are excluded.
    """
    state = {name: value.detach().cpu().contiguous() for name, value in saved_state(method).items()}
    with atomic_file(path) as aside:
        aside.write_bytes(save(state))  # `save_file` would replace the locked file by one of mode 0600


def save_recipe(
    path: Path,
    recipe: Recipe,
    dataset: str,
    seed: int,
    classes: int,
    samples: int,
    checkpoint: str | None = None,
) -> None:
    """Writes the resolved recipe, the other arguments of `build_method`, and the digests of the weights
    beside it, with sorted keys.

    classes, samples: training classes and images. checkpoint: the sha256 of the file from which the backbone
    started, if it started from one.
    """
    sizes = {"classes": classes, "samples": samples}
    content = {
        "schema_version": SCHEMA_VERSION,
        "recipe": recipe.model_dump(mode="json"),
        "dataset": dataset,
        "seed": seed,
        "weights_sha256": {file.stem: sha256_of(file) for file in path.parent.glob("*.safetensors")},
        **sizes,
    }
    write_json(path, content if checkpoint is None else content | {"checkpoint_sha256": checkpoint})


def load_method(directory: Path, weights: Weights = "weights") -> LoadedModel:
    """The model of a directory with one of its files of weights.

    Raises UserError for a file that is missing, damaged or of another schema version, or whose network is not
    that of the recipe.
    """
    directory = Path(directory)
    where = directory / "recipe.json"
    content = _read_recipe(where)
    try:
        recipe = parse_recipe(content["recipe"])
        classes, samples, seed = (int(content[name]) for name in ("classes", "samples", "seed"))
        dataset = str(content["dataset"])
        recorded = content.get("weights_sha256", {}).get(weights)
    except (AttributeError, KeyError, TypeError, ValueError, ValidationError) as error:
        problem = f"{where} is not a recipe that this version wrote: {error}"
        raise UserError(problem, "Train the model again.") from error
    # Every weight comes from the file. The source of the initial weights is not needed.
    backbone = recipe.backbone.model_copy(update={"pretrained": False, "checkpoint": None})
    method = initial_method(recipe.model_copy(update={"backbone": backbone}), classes, samples, seed)
    path = directory / f"{weights}.safetensors"
    try:
        with unreadable_is_an_error():
            digest = sha256_of(regular(path))
            state = load_file(path)
    except FileNotFoundError:
        raise UserError(f"{path} is missing.", _RETRAIN) from None
    except SafetensorError as error:
        raise UserError(f"{path} is damaged: {error}.", restore(path)) from error
    if recorded not in (None, digest):
        raise UserError(
            f"{path} is damaged or was replaced: its sha256 is not that in {where.name}.", restore(path)
        )
    expected, shapes = (
        {name: value.shape for name, value in each.items()} for each in (saved_state(method), state)
    )
    wrong = sorted(name for name in expected.keys() | shapes.keys() if expected.get(name) != shapes.get(name))
    if wrong:
        difference = f"{len(wrong)} tensors differ, first {wrong[0]}"
        problem = f"{path} does not contain the network that {where} describes: {difference}."
        raise UserError(problem, "Train the model again.")
    load_saved_state(method, state)
    return LoadedModel(method.eval(), recipe, dataset, seed)


def training_settings(directory: Path) -> Training:
    """Block `training` of the recipe of a model. Raises UserError for a missing or damaged recipe.json."""
    where = Path(directory) / "recipe.json"
    try:
        return Training.parse(_read_recipe(where)["recipe"]["training"])
    except (KeyError, TypeError, ValidationError) as error:
        problem = f"{where} is not a recipe that this version wrote: {error}"
        raise UserError(problem, "Train the model again.") from error


def weights_digest(directory: Path, weights: Weights) -> str:
    """The sha256 of a file of weights: equal for equal weights. Raises UserError if the file is missing."""
    path = Path(directory) / f"{weights}.safetensors"
    try:
        with unreadable_is_an_error():
            return sha256_of(regular(path))
    except FileNotFoundError:
        raise UserError(f"{path} is missing.", _RETRAIN) from None


def saved_state(method: Method) -> dict[str, Tensor]:
    """The state of a method without the modules that only training needs. No embedding depends on these."""
    training_only = tuple(
        f"{name}." for name, module in method.named_modules() if getattr(module, "training_only", False)
    )
    return {name: value for name, value in method.state_dict().items() if not name.startswith(training_only)}


def load_saved_state(method: Method, state: dict[str, Tensor]) -> None:
    """Loads a `saved_state` of the same network. The modules that only training needs do not change.

    Raises RuntimeError for a tensor of another shape.
    """
    training_only = method.state_dict().keys() - saved_state(method).keys()
    missing, unknown = method.load_state_dict(state, strict=False)
    assert training_only.issuperset(missing), f"missing: {missing}"
    assert not unknown, f"unknown: {unknown}"


def _read_recipe(path: Path) -> dict[str, Any]:
    with unreadable_is_an_error():
        try:
            content = json.loads(regular(path).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(f"{path} is missing.", _RETRAIN) from None
        except ValueError as error:
            raise UserError(f"{path} is damaged: {error}.", restore(path)) from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: it contains no object.", restore(path))
    if content.get("schema_version") != SCHEMA_VERSION:
        raise UserError(
            f"{path} has schema version {content.get('schema_version')}, this version of unseen reads "
            f"{SCHEMA_VERSION}.",
            "Train the model again, or use it with the version that wrote it: CHANGELOG.md lists the "
            "versions.",
        )
    return content
