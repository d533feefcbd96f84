"""Names of a package that are imported at their first use (PEP 562), so that the import of a module of the
package imports no other one."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(sources: Mapping[str, str]) -> Callable[[str], Any]:
    """`__getattr__` of a package. sources: the place `package.module:name` of each name."""

    def attribute(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"there is no {name!r} here; known are {', '.join(sources)}")
        module, _, original = sources[name].partition(":")
        return getattr(import_module(module), original)

    return attribute
