"""unseen.lock, a file of a project outside of a clone: the version and a digest of the files of the package
`unseen` that its stages run.

Stage `resolve` depends on the file: after a change of it, DVC runs the stages whose code changed. A clone has
none, because its `resolve` depends on the folders of the code.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from unseen.runtime.errors import UserError

LOCK = "unseen.lock"
_WITHOUT_EFFECT = ("cli", "cluster", "runtime")  # packages that change no result, but for runtime/device
_WITH_EFFECT = "runtime/device"


def require_accepted(project: Path, package: Path) -> None:
    """Raises UserError if unseen.lock of the project is not that of the package, whose folder is `package`.
    Takes about 20 ms."""
    if project == package.parent:
        return
    path = project / LOCK
    accepted = path.read_text(encoding="utf-8") if path.is_file() else "nothing\n"
    installed = _content(package)
    if accepted == installed:
        return
    before, name = (content.partition("\n")[0] for content in (accepted, installed))
    files = " with other files" if before == name else ""
    raise UserError(
        f"{path} accepts {before}, but {package} contains {name}{files}.",
        f"`unseen lock` accepts {name}; then the stages whose code changed run again.",
    )


def accept(project: Path, package: Path) -> str:
    """Writes unseen.lock of the project for the package, and returns the name and version of the package."""
    content = _content(package)
    (project / LOCK).write_text(content, encoding="utf-8")
    return content.partition("\n")[0]


def _content(package: Path) -> str:
    from importlib.metadata import version  # takes 20 ms, which a stage of a clone does not need

    digest = hashlib.sha256()
    for name, path in sorted(_files(package)):
        digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return f"unseen {version('unseen')}\nsha256 {digest.hexdigest()}\n"


def _files(package: Path) -> Iterator[tuple[str, Path]]:
    """The files that can change a result, by their names in the package."""
    for folder, folders, names in os.walk(package, followlinks=True):  # `stages` of a clone is a link
        folders[:] = [name for name in folders if name != "__pycache__"]
        parent = Path(folder).relative_to(package).as_posix()
        if parent.startswith(_WITH_EFFECT) or parent.partition("/")[0] not in _WITHOUT_EFFECT:
            yield from ((f"{parent}/{name}", Path(folder, name)) for name in names)
