"""Parts of a recipe from outside the project: a block that has `module` in place of `name`.

    loss: {module: "parts.circle:Circle", gamma: 80}

`a.b.C` is the same as `a.b:C`. The settings are those of the attribute `Settings` of the class (a `Strict`);
without it they are the arguments of the class, with their types and defaults.

A recipe.json may come from elsewhere. Therefore a class is imported only while the settings of the project
are read, if the project of the current directory names it, or if the caller trusts its package (`trusted`).
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, cast, get_type_hints

from pydantic import ValidationError, WrapValidator, create_model
from pydantic_core import InitErrorDetails, PydanticCustomError

from unseen.runtime.errors import UserError
from unseen.runtime.settings import Strict
from unseen.runtime.stage import ROOT

Calls = Mapping[str, tuple[str, ...]]  # methods, and the arguments that are passed by position

_trust: ContextVar[tuple[str, ...]] = ContextVar("_trust", default=())  # packages; "": all
_classes: dict[tuple[type["PartSettings"], str], type["PartSettings"]] = {}


class PartSettings(Strict):
    """What a recipe asks of a part. The other class variables of a kind of part are also attributes of the
    class of an outside part.

    key: the key of a block that names the class. given: arguments that the project passes, for a class that
    names them. beside: fields that are no arguments of the class. required: attributes that the class of an
    outside part must have. calls: its methods, and the arguments that the project passes by position.
    base_class: of the class. whole: whether the part is a module, `a.b`, in place of a class.
    """

    key: ClassVar[str] = "module"
    whole: ClassVar[bool] = False
    given: ClassVar[tuple[str, ...]] = ()
    beside: ClassVar[frozenset[str]] = frozenset()
    required: ClassVar[tuple[str, ...]] = ()
    calls: ClassVar[Calls] = {}
    base_class: ClassVar[str] = ""

    @classmethod
    def calls_of(cls, part: Any) -> Calls:
        """`calls`, where they depend on what the class of an outside part states."""
        return cls.calls

    @classmethod
    def fields_of(cls, part: type, path: str) -> dict[str, Any]:
        """Type and default of each field that the class of an outside part, `path`, adds to this kind."""
        return arguments_of(part, cls.given)


Kind = TypeVar("Kind", bound=PartSettings)


class _Outside(PartSettings):
    """Settings of a part from outside. part: what they are settings of. name: that of the class."""

    part: ClassVar[type[PartSettings]]
    name: ClassVar[str]

    def __reduce__(self) -> tuple[Any, ...]:
        values = self.model_dump(mode="json")
        return _restored, (self.part, values[self.key], values)


def _restored(kind: type[PartSettings], path: str, values: dict[str, Any]) -> PartSettings:
    return _settings(kind, path).parse(values)


@contextmanager
def trusted(*packages: str) -> Iterator[None]:
    """Within it, a recipe may import parts from `packages`; none: from everywhere."""
    token = _trust.set(packages or ("",))
    try:
        yield
    finally:
        _trust.reset(token)


def opened(
    kind: type[PartSettings], own: Callable[[Any], Any] | None = None, **allowed: tuple[Any, ...]
) -> WrapValidator:
    """Adds the parts from outside to a union of settings. own: parses plain values of the project's parts,
    if a field of them is a tuple. allowed: the values of class variables that fit."""

    def validated(value: Any, handler: Callable[[Any], Any]) -> Any:
        if isinstance(value, _Outside):
            settings: type[PartSettings] = type(value)
        elif isinstance(value, dict) and names_a_class(kind, value):
            settings = outside(kind, value)
        else:
            return own(value) if own and isinstance(value, dict) else handler(value)
        for name, values in allowed.items():
            if (stated := getattr(settings, name)) not in values:
                expected = " or ".join(map(str, values))
                raise _problem(
                    kind, value, f"its class states {name} = {stated!r}; here it must be {expected}"
                )
        return (
            value
            if isinstance(value, _Outside)
            else settings.parse(value | {kind.key: str(settings.model_fields[kind.key].default)})
        )

    return WrapValidator(validated)


def load(path: str) -> Any:
    """The class or function `package.module:name`, or the module `package.module`."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name) if name else import_module(module)


def made(settings: Strict, given: dict[str, Any]) -> Any:
    """The object of a part: its arguments are the fields of the settings and those `given` that it names."""
    part = load(settings.module)  # type: ignore[attr-defined]
    fields = settings.model_dump(exclude={"name", *getattr(settings, "beside", ())})
    names = inspect.signature(part).parameters
    return part(**{name: value for name, value in given.items() if name in names} | fields)


def identity(block: Mapping[str, Any], default: Any = None) -> Any:
    """What names the part of a block: its `module`, else its `name`. `a.b.C` is the same part as `a.b:C`."""
    if "module" in block:
        return block.get("name") if block["module"] is None else _path(block["module"])
    return block.get("name", default)


def outside_fields(settings: Strict) -> list[str]:
    """The dotted fields of settings that name a part from outside: `loss.module`."""
    own = [type(settings).key] if isinstance(settings, _Outside) else []
    fields = ((name, getattr(settings, name)) for name in type(settings).model_fields)
    return own + [
        f"{name}.{field}"
        for name, value in fields
        if isinstance(value, Strict)
        for field in outside_fields(value)
    ]


def fields_at(block: Mapping[str, Any]) -> set[str]:
    """The settings of the part from outside that a block names; empty if it names none that is imported."""
    return {
        field
        for (kind, path), settings in _classes.items()
        if path == _path(block.get(kind.key)) or path == block.get(kind.key)
        for field in settings.model_fields
    }


def names_a_class(kind: type[PartSettings], block: Mapping[str, Any]) -> bool:
    """Whether a block names a class from outside. `method: crt` is a part of the project."""
    path = block.get(kind.key)
    return path is not None and (kind.key == "module" or bool(set(".:") & set(str(path))))


def _path(named: Any) -> str:
    """`a.b:C` of `a.b.C`."""
    return str(named) if ":" in str(named) else ":".join(str(named).rsplit(".", 1))


def outside(kind: type[Kind], block: Mapping[str, Any]) -> type[Kind]:
    """The settings of the class that a block names. Raises pydantic.ValidationError at its key for a class
    that cannot be such a part, and UserError for one that this project does not name."""
    path = str(block[kind.key]) if kind.whole else _path(block[kind.key])
    is_ours = path.startswith(("unseen.losses.", "unseen.poolings."))
    if not (is_ours or (kind, path) in _classes or _is_trusted(path) or _is_named(path)):
        name = re.split("[.:]", path)[0]
        raise UserError(
            f"The recipe imports {path}, code from outside `unseen` that this project does not name.",
            f"If you trust this code, name it with `{kind.key}` in params.yaml of the current directory, or "
            f"trust its package: `unseen --trust {name} ...`, in Python `unseen.runtime.trusted({name!r})`.",
        )
    try:
        return _settings(kind, path)
    except Exception as error:  # the import runs code from outside
        reason = str(error) or type(error).__name__
        raise _problem(kind, block, f"cannot be used as a part: {reason}") from error


def _problem(kind: type[PartSettings], block: Any, message: str) -> ValidationError:
    """An error at the key of a block that names the class."""
    given = block[kind.key] if isinstance(block, dict) else getattr(block, kind.key)
    error = PydanticCustomError("part", "{message}", {"message": message})
    return ValidationError.from_exception_data(
        "part", [InitErrorDetails(type=error, loc=(kind.key,), input=given)]
    )


def _settings(kind: type[Kind], path: str) -> type[Kind]:
    """The settings of the class `a.b:C`. Raises what the import raises, and ValueError for a class whose
    arguments cannot be settings, or that is not called as the kind of part is."""
    if (kind, path) not in _classes:
        if str(ROOT) not in sys.path:  # last: no file of the project replaces an installed package
            sys.path.append(str(ROOT))
        part, module, name = load(path), path.partition(":")[0], re.split("[.:]", path)[-1]
        if not isinstance(part, type) and not kind.whole:
            raise ValueError(f"{name} is not a class")
        if missing := [attribute for attribute in kind.required if not hasattr(part, attribute)]:
            raise ValueError(f"{name} has no attribute `{missing[0]}`")
        _require_calls(kind, part, name)
        stated = getattr(part, "Settings", None)
        bases = (stated, _Outside, kind) if stated else (_Outside, kind)
        fields: dict[str, Any] = {kind.key: (Literal[path], path)}
        fields |= {} if stated else kind.fields_of(part, path)
        settings = cast("Any", create_model(name, __base__=bases, __module__=module, **fields))
        for variable in kind.__class_vars__ - PartSettings.__class_vars__:
            if hasattr(part, variable):
                setattr(settings, variable, getattr(part, variable))
        settings.part, settings.name = kind, name
        settings.beside |= {kind.key, *kind.model_fields}
        if kind.key != "module":
            settings.module = path
        _classes[kind, path] = settings
    return cast("type[Kind]", _classes[kind, path])


def _require_calls(kind: type[PartSettings], part: Any, name: str) -> None:
    """Raises ValueError for another base class, an abstract class, a missing method of its calls, and a
    method that does not take the arguments of its call, or of the method of the project that it replaces."""
    if kind.base_class and not issubclass(part, load(kind.base_class)):
        raise ValueError(f"{name} is no subclass of {kind.base_class.replace(':', '.')}")
    if abstract := sorted(getattr(part, "__abstractmethods__", ())):
        raise ValueError(f"{name} does not define `{abstract[0]}`, which its base class requires")
    bases = (part,) if kind.whole else inspect.getmro(part)
    calls = {method: arguments for base in bases[:0:-1] for method, arguments in _methods_of(base)}
    for method, arguments in (calls | dict(kind.calls_of(part))).items():
        function = next((vars(base)[method] for base in bases if method in vars(base)), None)
        if function is None or getattr(function, "__name__", "") == "_forward_unimplemented":
            raise ValueError(f"{name} has no attribute `{method}`")
        is_bound = kind.whole or isinstance(function, staticmethod)
        if not callable(function) and not is_bound:
            continue
        signature = inspect.signature(function.__func__ if isinstance(function, staticmethod) else function)
        passed = arguments if is_bound else ("self", *arguments)
        try:
            (signature.bind_partial if kind.whole else signature.bind)(*passed)
        except TypeError as error:
            call, defined = f"{method}({', '.join(arguments)})", f"{method}{signature}"
            raise ValueError(f"{name} is called as `{call}`, it defines `{defined}`: {error}") from None


def _methods_of(base: type) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The methods of a class of the project, and their arguments without a default."""
    if not base.__module__.startswith("unseen."):
        return
    for name, function in vars(base).items():
        if inspect.isfunction(function) and not name.startswith("_"):
            _, *others = inspect.signature(function).parameters.values()
            needed = (each for each in others if each.default is each.empty)
            yield name, tuple(each.name for each in needed if each.kind < each.VAR_POSITIONAL)


def arguments_of(part: Callable[..., Any], given: tuple[str, ...] = ()) -> dict[str, Any]:
    """Type and default of each argument that a recipe sets."""
    types = get_type_hints(part.__init__ if isinstance(part, type) else part)  # type: ignore[misc]
    fields = {}
    for argument in inspect.signature(part).parameters.values():
        if argument.name in given or argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            continue
        if argument.name in ("name", "module"):
            raise ValueError(f"a part has no argument `{argument.name}`: the recipe needs this key")
        default = ... if argument.default is argument.empty else argument.default
        fields[argument.name] = (types.get(argument.name, Any), default)
    return fields


def _is_trusted(path: str) -> bool:
    """Whether the class or module is of a package that the caller trusts."""
    inside = path.replace(":", ".") + "."
    return any(not package or inside.startswith(f"{package}.") for package in _trust.get())


def _is_named(path: str) -> bool:
    """Whether params.yaml or data/resolved of the current directory name a class."""
    name = re.escape(path).replace(":", "[.:]")
    named = re.compile(rf"""^[^#\n]*\b(?:module|method)["']?\s*:\s*["']?{name}(?![\w.:])""", re.MULTILINE)
    files = (Path("params.yaml"), *Path("data/resolved").rglob("*.json"))
    return any(named.search(file.read_text(encoding="utf-8")) for file in files if file.is_file())
