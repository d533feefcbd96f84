"""What every part must satisfy: losses, poolings, networks and methods of the library and from outside; and
samplers, transforms, readers, metrics and sections of the report from outside.

    unseen check parts.circle:Circle gamma=80

A check takes the settings of a part and raises Failed. The first line of its docstring is the property.
docs/extending.md has the contracts. Each kind of part has a module; common.py is what they share.
"""

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from unseen.cli.checks import data, losses, methods, metrics, networks, poolings
from unseen.cli.checks.common import Failed
from unseen.config.stages import AnySection, OutsideSection
from unseen.data.ingest.settings import AnySource, OutsideSource
from unseen.data.settings import AnyBatch, AnyInput, Batch, Input
from unseen.evaluation.settings import AnyMetric, OutsideMetric
from unseen.losses.settings import Loss, LossSettings
from unseen.methods.method import Method
from unseen.methods.settings import AnyRecipe, Recipe
from unseen.networks.settings import AnyBackbone, Backbone
from unseen.poolings.settings import Pooling, PoolingSettings
from unseen.runtime.errors import UserError
from unseen.runtime.parts import load, trusted
from unseen.runtime.settings import Strict, as_json

_BATCH = {"classes": 4, "images_per_class": 3}
# of a method: small images, unless the caller names others
_RECIPE: dict[str, Any] = {
    "backbone": {"name": "test_resnet", "pretrained": False, "arguments": {"output_stride": 16}},
    "input": {"size": 64, "resize": 64},
    "batch": _BATCH,
    "dim": 16,
}
Check = Callable[[Any], None]


class Result(NamedTuple):
    """A property of a part, and why the part does not have it; None: it has."""

    name: str
    failure: UserError | None


def results(settings: Strict) -> Iterator[Result]:
    """The result of each check of a part. An exception of the part is a failure too."""
    for check in checks_of(settings):
        failure: UserError | None = None
        try:
            check(settings)
        except UserError as failed:
            failure = failed
        except Exception as error:  # of code from outside
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            failure = Failed(what, "docs/extending.md states how a part is built and called.")
        yield Result((check.__doc__ or "").split("\n")[0], failure)


def checks_of(settings: Strict) -> tuple[Check, ...]:
    """The checks that apply. A pooling with attributes may select its prototypes before it trains them."""
    if isinstance(settings, Backbone):
        return (networks.maps, networks.each_image_of_maps)
    if isinstance(settings, Recipe):
        return (methods.unit_vectors, methods.terms, methods.parameters_of_method)
    if isinstance(settings, Batch):
        return (data.batches, data.keys)
    if isinstance(settings, Input):
        return (data.images,)
    if isinstance(settings, OutsideSource):
        return (data.pictures, data.readings)
    if isinstance(settings, OutsideMetric):
        return (metrics.values, metrics.each_query)
    if isinstance(settings, OutsideSection):
        from unseen.cli.checks import sections  # imports the whole report

        return (sections.html,)
    if isinstance(settings, PoolingSettings):
        return poolings.checks_of(settings)
    assert isinstance(settings, LossSettings)
    return losses.checks_of(settings)


def settings_of(path: str, values: dict[str, Any]) -> Strict:
    """The settings of the class `package.module:Class`, or of the reader or section `package.module`, which
    may be below the current directory.

    Raises UserError for what cannot be imported or is no part, and for wrong values.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        path = path if ":" in path or _is_module(path) else ":".join(path.rsplit(".", 1))
        kind, block = _kind(load(path), path, values)
    except Exception as error:  # the import runs code from outside
        raise UserError(
            f"{path} cannot be used as a part: {type(error).__name__}: {error}.",
            "Name a class as package.module:Class, or a reader or section as package.module, in the folder "
            "that contains the package. docs/extending.md has the attributes of each kind of part.",
        ) from error
    try:
        with trusted():
            return TypeAdapter[Strict](kind).validate_json(as_json(block))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: {field}: {first['msg']}.", "Set values after it as KEY=VALUE.") from error


def _is_module(path: str) -> bool:
    try:
        return find_spec(path) is not None
    except ModuleNotFoundError:  # the parent is a module and no package
        return False


def _kind(part: Any, path: str, values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The type of the settings of a part, by the attributes that its kind requires; and its block."""
    block = {"module": path, **values}
    if isinstance(part, ModuleType):
        return (AnySection if hasattr(part, "content") else AnySource), block
    if issubclass(part, Method):
        return AnyRecipe, {**_RECIPE, **values, "method": path}
    if hasattr(part, "plan"):
        stages = [*range(len(part.channels))]
        return AnyBackbone, {"module": path, "arguments": values, "pretrained": False, "stages": stages}
    if hasattr(part, "draw"):
        return AnyBatch, _BATCH | block
    if hasattr(part, "values"):
        return AnyMetric, block
    if not hasattr(part, "forward") and any("__call__" in vars(base) for base in part.__mro__):
        return AnyInput, _RECIPE["input"] | block
    return (Pooling if _is_pooling(part) else Loss), block


def _is_pooling(part: type) -> bool:
    """Whether a class is a pooling and no loss: by the attributes that only one of them states, the arguments
    that only one of them gets, or the number of its inputs."""
    if not hasattr(part, "forward"):
        raise AttributeError(f"{part.__name__} has no attribute `forward`")
    of_pooling, of_loss = {"projects", "attributes"}, {"inputs", "gradient", "cost"}
    if stated := [name for name in (*of_pooling, *of_loss) if hasattr(part, name)]:
        return stated[0] in of_pooling
    arguments, inputs = (set(inspect.signature(each).parameters) for each in (part, part.forward))
    if differing := (set(PoolingSettings.given) ^ set(LossSettings.given)) & arguments:
        return bool(differing & set(PoolingSettings.given))
    return "labels" not in inputs and len(inputs) == 2
