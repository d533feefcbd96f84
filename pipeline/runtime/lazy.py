"""Names of a package that are imported at their first use (PEP 562), so that the import of a module of the
package imports no other one.

The names are what the package imports below `if TYPE_CHECKING`, where type checkers find them:

    if TYPE_CHECKING:
        from unseen.losses.pairs import PairLoss
    else:
        __getattr__, __dir__ = lazy(__name__)
    __all__ = ["PairLoss"]
"""

import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package."""

    def attribute(name: str) -> Any:
        sources = for_type_checkers(Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8"))
        if name not in sources:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(sources)}")
        module, original = sources[name]
        return getattr(import_module(module), original)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *sys.modules[package].__all__})

    return attribute, names


@lru_cache(maxsize=64)
def for_type_checkers(text: str) -> dict[str, tuple[str, str]]:
    """Module and original name of each name that the text of a module imports below `if TYPE_CHECKING`."""
    import ast  # takes milliseconds, which `unseen --help` does not need

    return {
        alias.asname or alias.name: (node.module, alias.name)
        for check in ast.parse(text).body
        if isinstance(check, ast.If) and ast.unparse(check.test) == "TYPE_CHECKING"
        for node in check.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
