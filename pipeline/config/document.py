"""A YAML file whose values are read by dotted key, with the line of each key for error messages."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError

from unseen.runtime.errors import UserError
from unseen.runtime.settings import Model


class Document:
    """The content of a YAML file. A key is dotted (`methods.gsp.dim`); a digit is a position in a list
    (`changes.0.for`).

    `text` is the content if it is given; otherwise the file is read. Raises UserError for a file that is
    missing, not UTF-8 or not YAML.
    """

    def __init__(self, path: Path, label: str | None = None, text: str | None = None) -> None:
        self.path = Path(path)
        self.label = label or str(path)  # how messages name the file
        try:
            text = self.path.read_text(encoding="utf-8") if text is None else text
        except FileNotFoundError:
            raise UserError(f"{self.label} is missing.", "Run from the root of the project.") from None
        except UnicodeDecodeError as error:
            raise UserError(f"{self.label} is not UTF-8 text: {error.reason}.", "Save it as UTF-8.") from None
        try:
            self._tree = YAML(typ="rt").load(text) or CommentedMap()
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f"{self.label}:{mark.line + 1}" if mark else self.label
            raise UserError(f"{where} is not valid YAML: {error.problem}.", "Correct that line.") from None
        except Exception as error:  # a forbidden character (ReaderError), a mapping as a key (TypeError), ...
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(f"{self.label} is not valid YAML: {reason}.", "Correct the file.") from None
        if not isinstance(self._tree, CommentedMap):
            raise UserError(
                f"{self.label} must contain `key: value` lines at its top level.", "Correct the file."
            )

    def read(self, key: str) -> Any:
        """The plain value at a dotted key. Raises UserError when it is missing."""
        node: Any = self._tree
        path: list[str] = []
        for part in key.split("."):
            if not isinstance(node, dict) or part not in node:
                known = ", ".join(map(str, node)) if isinstance(node, dict) else "nothing"
                inside = ".".join(path) or "the top level"
                raise UserError(
                    f"{self.label}: {key} is missing. {inside} contains: {known}.",
                    f"Add {key}, or correct the name.",
                )
            node = node[part]
            path.append(part)
        return plain(node)

    def block(self, key: str) -> dict[str, Any]:
        """The block at a dotted key; empty if it is missing or null. Raises UserError for a value that is not
        a block."""
        node: Any = self._tree
        for part in key.split("."):
            node = node.get(part) if isinstance(node, dict) else None
        if node is None:
            return {}
        if not isinstance(node, dict):
            raise UserError(
                f"{self.label}:{self.line(key)}: {key} must be a block of settings, got {plain(node)!r}.",
                "Write `key: value` lines below it, or {}.",
            )
        return dict(plain(node))

    def parsed(self, model: type[Model], remedy: str, block: str = "") -> Model:
        """The settings that a block contains, or the whole file. Raises UserError with the line of the first
        unknown key or wrong value, and this remedy."""
        try:
            return model.parse(self.read(block) if block else {key: self.read(key) for key in self.names()})
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(filter(None, (block, *map(str, first["loc"]))))
            line = self.line(key) or self.line(block) or 1
            message = first["msg"].removeprefix("Value error, ")
            raise UserError(f"{self.label}:{line}: {key}: {message}.", remedy) from None

    def names(self, group: str = "") -> list[str]:
        """The keys of a top-level block, or of the top level itself."""
        return list(self.block(group)) if group else [str(name) for name in self._tree]

    def where(self, key: str) -> str:
        """`params.yaml:12: methods.gsp`, without a line if the key is missing."""
        line = self.line(key)
        return f"{self.label}{f':{line}' if line else ''}: {key}"

    def line(self, key: str) -> int | None:
        """The line (from 1) of a dotted key, or None. A key that a merge (`<<`) adds has the line of the
        block that it is added to."""
        node: Any = self._tree
        line = None
        for part in key.split("."):
            if isinstance(node, CommentedMap) and part in node:
                if part in (node.lc.data or {}):
                    line = node.lc.key(part)[0] + 1
                node = node[part]
            elif isinstance(node, CommentedSeq) and part.isdigit() and int(part) < len(node):
                line = node.lc.item(int(part))[0] + 1
                node = node[int(part)]
            else:
                return None
        return line


class Params(Document):
    """params.yaml. With `text=""` it sets nothing: the recipes are those published."""

    def __init__(self, path: Path = Path("params.yaml"), text: str | None = None) -> None:
        super().__init__(path, text=text)


def plain(node: Any) -> Any:
    """The same value in plain Python types instead of ruamel's."""
    if isinstance(node, dict):
        return {str(key): plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [plain(value) for value in node]
    if isinstance(node, bool) or node is None:
        return node
    for kind in (int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node
