"""The wheel contains one top-level package, `unseen`. In it, package `pipeline` is `unseen._pipeline`.

Other distributions contain packages named `pipeline` and `stages`: pip would overwrite their files, and one
process could import only one of them. An editable installation and the stages of the graph use the packages
of the clone under their own names. Everything else is in pyproject.toml.
"""

import ast
import re
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

NAME, RENAMED = "pipeline", "unseen._pipeline"
_MODULE = re.compile(rf"{NAME}((\.\w+)+(:\w+)?)")  # module or module:name; not the directory `pipeline`


def renamed(source: str) -> str:
    """The source text of a module with `pipeline` imported as `unseen._pipeline`.

    Replaces the name in import statements, and in string literals that consist of a dotted module name (parts
    of recipes, lazy imports). Raises ValueError for `import pipeline...`, which binds another name, and
    for a name in another place than expected, such as a string with a prefix.
    """
    lines = source.split("\n")
    places: list[tuple[int, int]] = []  # line from 0, column in bytes, of each name
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            if any(alias.name.split(".")[0] == NAME for alias in node.names):
                raise ValueError(f"line {node.lineno}: write `from {NAME}... import ...`")
        elif isinstance(node, ast.ImportFrom):
            if not node.level and node.module is not None and node.module.split(".")[0] == NAME:
                places.append((node.lineno - 1, node.col_offset + len("from ")))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _MODULE.fullmatch(node.value):
            places.append((node.lineno - 1, node.col_offset + 1))
    for line, column in sorted(places, reverse=True):
        text = lines[line].encode()
        if not text[column:].startswith(NAME.encode()):
            raise ValueError(f"line {line + 1}: expected {NAME} in column {column + 1}")
        lines[line] = (text[:column] + RENAMED.encode() + text[column + len(NAME) :]).decode()
    return "\n".join(lines)


class Wheel(bdist_wheel):
    """Builds the wheel of `unseen` alone. An editable installation does not run this command."""

    def run(self) -> None:
        distribution = self.distribution
        packages = [name for name in distribution.packages if name.split(".")[0] != "stages"]
        distribution.packages = [_in_wheel(name) for name in packages]
        distribution.package_dir = {**(distribution.package_dir or {}), RENAMED: NAME}
        distribution.package_data = {
            _in_wheel(name): files for name, files in distribution.package_data.items()
        }
        if self.dist_info_dir:  # metadata that pip prepared, for which this command did not run
            (Path(self.dist_info_dir) / "top_level.txt").write_text("unseen\n", encoding="utf-8")
        super().run()


class Modules(build_py):
    """Copies modules. In a wheel, `pipeline` is renamed in them."""

    def build_module(self, module: str, module_file: str, package: str) -> Any:
        built = super().build_module(module, module_file, package)
        if RENAMED in self.distribution.packages:
            copy = Path(built[0])
            text = renamed(copy.read_text(encoding="utf-8"))
            copy.unlink()
            copy.write_text(text, encoding="utf-8")
        return built


def _in_wheel(package: str) -> str:
    first, dot, rest = package.partition(".")
    return f"{RENAMED if first == NAME else first}{dot}{rest}"


if __name__ == "__main__":
    setup(cmdclass={"bdist_wheel": Wheel, "build_py": Modules})
