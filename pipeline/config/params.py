"""params.yaml, read by dotted key. Remembers what was read and where each key stands."""

import os
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError

from pipeline.runtime.errors import UserError


class Params:
    """The content of params.yaml.

    `read` records every key, so that a stage can be held to the `params` that dvc.yaml lists for it: a value that DVC does not watch would
    change a result without re-running anything. Under DVC (DVC_STAGE is set) an unlisted key is an error at once.
    """

    def __init__(self, path: Path = Path("params.yaml"), allowed: frozenset[str] | None = None) -> None:
        self.path = Path(path)
        self.keys: list[str] = []
        self._allowed = allowed
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise UserError(f"{self.path} is missing.", "Run from the root of the project.") from None
        try:
            self._tree = YAML(typ="rt").load(text) or CommentedMap()
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f"{self.path}:{mark.line + 1}" if mark else str(self.path)
            raise UserError(f"{where} is not valid YAML: {error.problem}.", "Correct that line.") from None

    @classmethod
    def of_stage(cls) -> "Params":
        """params.yaml of the working directory, held to the keys of the running DVC stage where there is one."""
        name = os.environ.get("DVC_STAGE")
        allowed = listed_params(Path("dvc.yaml"), name) if name and Path("dvc.yaml").exists() else None
        return cls(allowed=allowed)

    def read(self, key: str) -> Any:
        """The plain value at a dotted key. Raises UserError when it is missing or not listed for the running stage."""
        self.keys.append(key)
        if self._allowed is not None and not any(key == a or key.startswith(a + ".") for a in self._allowed):
            raise UserError(
                f"Stage {os.environ.get('DVC_STAGE')} reads {key} from {self.path}, but dvc.yaml does not list it under its params.",
                f"Add {key} there, or DVC will not re-run the stage when it changes.",
            )
        node: Any = self._tree
        seen: list[str] = []
        for part in key.split("."):
            if not isinstance(node, dict) or part not in node:
                known = ", ".join(map(str, node)) if isinstance(node, dict) else "nothing"
                inside = ".".join(seen) or "the top level"
                raise UserError(f"{self.path}: {key} is missing. {inside} holds: {known}.", f"Add {key}, or correct the name that led here.")
            node = node[part]
            seen.append(part)
        return plain(node)

    def names(self, group: str) -> list[str]:
        """The keys of a top-level block, without reading what they hold."""
        return [str(name) for name in self._tree.get(group) or {}]

    def line(self, key: str) -> int | None:
        """The line (from 1) at which a dotted key stands, or None."""
        node: Any = self._tree
        line = None
        for part in key.split("."):
            if isinstance(node, CommentedMap) and part in node:
                line = node.lc.key(part)[0] + 1
                node = node[part]
            elif isinstance(node, CommentedSeq) and part.isdigit() and int(part) < len(node):
                line = node.lc.item(int(part))[0] + 1
                node = node[int(part)]
            else:
                return None
        return line


def listed_params(dvc_yaml: Path, stage: str) -> frozenset[str]:
    """The keys that dvc.yaml lists under `params` of a stage such as `train@parts-gsp-0`, its axes filled in."""
    document = YAML(typ="safe").load(dvc_yaml.read_text(encoding="utf-8"))
    name, _, values = stage.partition("@")
    entry = document["stages"][name]
    if "matrix" not in entry:
        return frozenset(entry.get("params", ()))
    axes, remaining = list(entry["matrix"]), values
    keys = set()
    for template in entry.get("params", ()):
        keys.add(template)
    for position, axis in enumerate(axes):
        last = position == len(axes) - 1
        value, _, remaining = (remaining, "", "") if last else remaining.partition("-")
        keys = {key.replace(f"${{item.{axis}}}", value) for key in keys}
    return frozenset(keys)


def plain(node: Any) -> Any:
    """The same value without YAML's own types."""
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
