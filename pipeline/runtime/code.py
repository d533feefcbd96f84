"""A digest of the code that a stage can reach, so that DVC reruns exactly the stages that a change of code
can affect.

The code of a stage is the import closure of its script and of the modules that its recipe names (losses,
poolings, networks, sources), without modules that change no result (runtime, but not runtime.device; cluster;
cli) and without those whose effect the resolved settings contain (config, experiments.plan, and each module
of `unseen` named `settings`). Imports below `if TYPE_CHECKING` do not count. The digest of a module ignores
comments, docstrings, formatting and imports from the excluded modules. It is equal for all supported versions
of Python. A file that is not Python (template, table) is included, with a digest of its bytes, if a module of
its directory is included.

A recipe may name a class from outside `unseen` (pipeline/runtime/parts.py). A module of the project directory
is looked up by its name, and so is what it imports from there; of the other files, that of the same name.
What it imports from a package of `unseen` counts as an import from the module of that name. A module of an
installed distribution counts as name and version of the distribution.
"""

import ast
import hashlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from unseen.runtime.lazy import for_type_checkers

_EXCLUDED = ("unseen.runtime", "unseen.cluster", "unseen.cli", "unseen.config", "unseen.experiments.plan")
_SETTINGS = "settings"  # modules of this name
_INCLUDED = "unseen.runtime.device"
_WITHOUT_EFFECT = ("kind", "type_comment", "type_ignores", "ctx")  # ignored fields of syntax trees


def code_of(package: Path, project: Path | None = None) -> "Code":
    """The code of `unseen`, whose folder is `package`, of its stages, and of parts in `project`."""
    return Code({"unseen": package, "unseen.stages": package / "stages"}, project)


class Code:
    """The modules of some packages: what each imports, and its digest. `roots`: the folder of each package.
    `project`: the directory with modules from outside. `all_modules`: closures contain also the excluded
    modules."""

    def __init__(
        self, roots: Mapping[str, Path], project: Path | None = None, all_modules: bool = False
    ) -> None:
        self._roots, self._project, self._all_modules = roots, project, all_modules
        self._modules: dict[str, _Module] = {}

    @cached_property
    def _files(self) -> dict[str, Path]:
        files = {}
        for package, folder in self._roots.items():
            for path in sorted(folder.resolve().rglob("*.py")):
                parts = path.relative_to(folder.resolve()).with_suffix("").parts
                files[".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))] = path
        return files

    def closure(self, roots: Iterable[str]) -> dict[str, str]:
        """The sorted digests of the modules that `roots` import, directly or indirectly, and of the other
        files in their directories."""
        reached: set[str] = set()
        distributions: dict[str, str] = {}
        pending = list(roots)
        while pending:
            module = pending.pop()
            if module in reached:
                continue
            if self._path(module) is None:
                distributions |= self._distribution(module)
                continue
            reached.add(module)
            pending += self._module(module).imports
        included = sorted(module for module in reached if self._all_modules or not _is_excluded(module))
        digests = {module: self._module(module).digest for module in included}
        folders = {self._module(module).path.parent: module for module in reversed(included)}
        outside = {
            self._module(module).path.with_suffix("") for module in included if module not in self._files
        }
        for directory, module in sorted(folders.items()):
            if module not in self._files and not (directory / "__init__.py").is_file():
                continue
            is_package = self._module(module).path.name == "__init__.py"
            package = module if is_package else module.rpartition(".")[0]
            for path in sorted(directory.iterdir()):
                is_used = module in self._files or path.with_suffix("") in outside
                if is_used and path.is_file() and path.suffix not in (".py", ".pyc", ".typed"):
                    digests[f"{package.replace('.', '/')}/{path.name}"] = _short(path.read_bytes())
        return digests | distributions

    def differing(self, digests: Mapping[str, str]) -> list[str]:
        """The names of a `closure` whose digest is another one now."""
        return sorted(name for name, digest in digests.items() if self._digest(name) != digest)

    def _digest(self, name: str) -> str | None:
        """The digest of a module, of another file of a package, or the version of a distribution."""
        package, _, file = name.rpartition("/")
        if package:
            folder = self._path(package.replace("/", "."))
            path = folder and folder.parent / file
            return _short(path.read_bytes()) if path and path.is_file() else None
        if self._path(name) is not None:
            return self._module(name).digest
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    def _path(self, module: str) -> Path | None:
        """The file of a module of the packages, else of the project."""
        if module in self._files or self._project is None or module in sys.stdlib_module_names:
            return self._files.get(module)
        path = self._project.joinpath(*module.split("."))
        files = (path / "__init__.py", path.with_suffix(".py"))
        return next((file for file in files if file.is_file()), None)

    def _sources(self, names: Iterable[str]) -> list[str]:
        """The modules of those names that a package of `unseen` imports at their first use. The package also
        imports them for type checkers."""
        sources = []
        for name in names:
            package, _, attribute = name.rpartition(".")
            path = self._files.get(package)
            if name not in self._files and path is not None and path.name == "__init__.py":
                source = for_type_checkers(path.read_text(encoding="utf-8")).get(attribute)
                sources += [source[0]] if source else []
        return sources

    def _distribution(self, module: str) -> dict[str, str]:
        """Name and version of the installed distribution of a module."""
        names = packages_distributions().get(module.partition(".")[0])
        if not names:
            raise KeyError(f"no module {module} in {', '.join(map(str, self._roots.values()))}")
        return {name: version(name) for name in names}

    def _module(self, name: str) -> "_Module":
        if name not in self._modules:
            path = self._path(name)
            assert path is not None, "checked by `closure`"
            digest, imported = _read(path.read_text(encoding="utf-8"))
            # Settings of all parts are imported together: they reach no package, only each other.
            packages = [] if _is_excluded(name) and not self._all_modules else _parents(name)
            imports = [*packages, *imported]
            if name in self._files:
                imports = [module for module in imports if module in self._files]
            else:
                package = name if path.name == "__init__.py" else name.rpartition(".")[0]
                absolute = [resolve_name(module, package) for module in imports]
                absolute += self._sources(absolute)
                imports = [module for module in absolute if self._path(module) is not None]
            self._modules[name] = _Module(path, digest, imports)
        return self._modules[name]


_HAVE_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)  # parts of a tree that may import


@dataclass(frozen=True)
class _Module:
    path: Path
    digest: str
    imports: list[str]  # its packages, and the modules that it imports


@lru_cache(maxsize=1024)
def _read(text: str) -> tuple[str, list[str]]:
    """The digest of a module's text and the names that it imports."""
    tree = ast.parse(text)
    return digest_of(tree), _imported(tree)


def _is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _imported(tree: ast.AST) -> list[str]:
    """The names that may be modules: `a.b` and `a.b.c` of `from a.b import c`; `.b` if relative."""
    names = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            below = f"{module}." if node.module else module
            names += [module, *(f"{below}{alias.name}" for alias in node.names)]
        elif isinstance(node, _HAVE_STATEMENTS) and not _is_for_type_checkers(node):
            names += _imported(node)
    return names


def _is_excluded(module: str) -> bool:
    if f"{module}.".startswith(f"{_INCLUDED}."):
        return False
    outside = any(f"{module}.".startswith(f"{name}.") for name in _EXCLUDED)
    is_settings = module.startswith("unseen.") and module.rpartition(".")[2] == _SETTINGS
    return outside or module == "unseen" or is_settings


def digest_of(tree: ast.Module) -> str:
    """16 hexadecimal digits of a module's syntax, without docstrings and positions."""
    pieces: list[str] = []
    _write(tree, pieces)
    return _short("".join(pieces).encode())


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _write(node: Any, pieces: list[str]) -> None:
    """Appends the tree as text to `pieces`. Empty fields are omitted and fields are sorted, because versions
    of Python add fields and change their order."""
    if isinstance(node, ast.JoinedStr):
        node = ast.JoinedStr(_joined(node.values))
    if isinstance(node, ast.AST):
        pieces.append(f"{type(node).__name__}(")
        for name, value in sorted(ast.iter_fields(node)):
            constant = isinstance(node, ast.Constant) and name == "value"
            if not constant and (name in _WITHOUT_EFFECT or value is None or value == []):
                continue
            pieces.append(f"{name}=")
            _write(value, pieces)
        pieces.append(")")
    elif isinstance(node, list):
        pieces.append("[")
        for item in node:
            if not _is_docstring(item) and not _imports_excluded(item):
                _write(item, pieces)
        pieces.append("]")
    else:
        pieces.append(f"{node!a},")


def _is_docstring(node: Any) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _imports_excluded(node: Any) -> bool:
    """Whether a statement imports from an excluded module. It is ignored, so that renaming such a module
    reruns nothing."""
    return isinstance(node, ast.ImportFrom) and node.module is not None and _is_excluded(node.module)


def _joined(values: list[ast.expr]) -> list[ast.expr]:
    """The parts of an f-string, with adjacent texts joined and empty ones omitted."""
    parts: list[ast.expr] = []
    for value in values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            if not value.value:
                continue
            if parts and isinstance(parts[-1], ast.Constant):
                parts[-1] = ast.Constant(str(parts[-1].value) + value.value)
                continue
        parts.append(value)
    return parts
