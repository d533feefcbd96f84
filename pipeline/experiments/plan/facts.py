"""Facts of a recipe for which its networks are built: the dimension of the embeddings, the terms of the loss,
the cost of the embedding.

Stage `resolve` keeps them in files, by recipe, code and versions of libraries, so that it imports torch for a
new recipe only.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, cast

from unseen.config.inputs import digest
from unseen.experiments.plan.modules import modules_of
from unseen.methods.settings import Cost, Recipe, StepCost
from unseen.runtime.code import Code
from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json
from unseen.runtime.memory import LEAST, require_memory
from unseen.runtime.parts import outside_fields
from unseen.runtime.settings import Count, Strict
from unseen.runtime.stage import PACKAGE

FOLDER = Path(".cache/unseen")  # of the files, in the project
_OF_TRAINING = {"batch", "optimizer", "schedule", "training"}
_LIBRARIES = ("torch", "torchvision", "timm")
_Kind = TypeVar("_Kind", bound=Strict)


class Built(Strict):
    """Of a recipe from which a method can be built."""

    dim: Count  # of the embeddings
    saved: Count  # numbers in a file of its weights, apart from proxies of a class
    terms: tuple[str, ...]  # of the loss; the last is their sum


class Facts:
    """The facts of recipes. `folder` has the files; None keeps none."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        roots = {"unseen": PACKAGE, "unseen.stages": PACKAGE / "stages"}
        self._code = Code(roots, Path(), all_modules=True)
        self._known: dict[str, Strict] = {}

    def built(self, recipe: Recipe, in_passes: bool) -> Built:
        """Recipes that differ in the training alone are built once.

        Raises UserError for a recipe from which no method can be built, such as one with an unknown network,
        and for one that cannot be trained in several passes (`in_passes`).
        """

        def build() -> Built:
            from unseen.methods.artifact import saved_state
            from unseen.methods.compatibility import loss_terms, require_compatible
            from unseen.training.gradient_noise import LOSS
            from unseen.training.passes import require_rows_alone

            with _located(recipe):
                method = require_compatible(recipe)
                if in_passes:
                    require_rows_alone(method)
            saved = sum(value.numel() for value in saved_state(method).values())
            return Built(dim=method.dim, saved=saved, terms=(*loss_terms(recipe), LOSS))

        parts = f"{in_passes} {recipe.model_dump_json(exclude=_OF_TRAINING)}"
        return self._fact(
            Built, parts, recipe, ("methods.compatibility", "methods.artifact", "training.passes"), build
        )

    def cost(self, recipe: Recipe) -> Cost:
        """Recipes that differ in training and loss alone have the same embedding."""

        def count() -> Cost:
            from unseen.methods.cost import cost_of

            with _located(recipe):
                return cost_of(recipe)

        parts = recipe.model_dump_json(exclude=_OF_TRAINING | {"loss", "koleo_weight"})
        return self._fact(Cost, parts, recipe, ("methods.cost",), count)

    def step(self, recipe: Recipe, classes: int, samples: int) -> StepCost:
        """The cost of a training step with these numbers of training classes and images."""

        def count() -> StepCost:
            from unseen.training.cost import step_cost

            return step_cost(recipe, classes, samples)

        parts = f"{classes} {samples} {step_parts(recipe)}"
        return self._fact(StepCost, parts, recipe, ("training.cost",), count)

    def _fact(
        self,
        kind: type[_Kind],
        parts: str,
        recipe: Recipe,
        modules: Iterable[str],
        compute: Callable[[], _Kind],
    ) -> _Kind:
        name = f"{kind.__name__} {' '.join(kind.model_fields)} {parts}"
        if name not in self._known:
            path = self._path(name, recipe, modules)
            if path is not None and path.is_file():
                self._known[name] = kind.model_validate_json(path.read_bytes())
            else:
                require_memory(LEAST)  # of torch
                self._known[name] = compute()
                if path is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_json(path, self._known[name].model_dump(mode="json"))
        return cast("_Kind", self._known[name])

    def _path(self, name: str, recipe: Recipe, modules: Iterable[str]) -> Path | None:
        if self._folder is None:
            return None
        code = self._code.closure([*(f"unseen.{module}" for module in modules), *modules_of(recipe)])
        return self._folder / f"{digest([name, code, [version(library) for library in _LIBRARIES]])}.json"


@contextmanager
def _located(recipe: Recipe) -> Iterator[None]:
    """An exception in it becomes a UserError that names the parts from outside, if the recipe has any."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        fields = outside_fields(recipe)
        if not fields:
            raise
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(
            f"A part from outside cannot be built or called: {what}",
            f"Correct {' or '.join(fields)}; docs/extending.md has its contract and how to check it.",
        ) from error


def step_parts(recipe: Recipe) -> str:
    """All of a recipe on which the cost of a step depends: not the length, protocol and rates of training."""
    of_step = {"precision", "threads", "gradient_noise"}
    length = set(type(recipe.training).model_fields) - of_step
    without: dict[str, Any] = {"schedule": True, "training": length}
    return recipe.model_dump_json(
        exclude=without | {"optimizer": {"learning_rate", "weight_decay", "multipliers"}}
    )
