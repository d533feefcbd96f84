"""Results that carry the sha256 of their own content, so that a reader refuses a changed one in one line.

A JSON object has the member SEAL with the sha256 of its canonical text without it. A CSV file has the last
column SEAL: empty cells, and in the last row the sha256 of all text before. A folder has DIGESTS, a JSON
object of the sha256 of each file.
"""

import csv
import hashlib
import json
import shlex
from pathlib import Path
from typing import Any

from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import json_text, write_json

SEAL = "sha256"
DIGESTS = "digests.json"


def recompute(stage: str) -> str:
    """The remedy for a damaged output of a stage. The first command removes damaged copies of DVC's cache."""
    return f"Run `unseen doctor --verify`, then `dvc repro --force --single-item {stage}`."


def restore(path: Path) -> str:
    """The remedy for a damaged file of the project whose stage the reader does not know. DVC reads a file
    again only if its time or size changed."""
    return f"Run `unseen doctor --verify`, then `rm {shlex.quote(str(path))} && dvc repro`."


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """Writes a JSON object with its seal, a list, which `dvc metrics` omits. Raises ValueError for NaN and
    infinity."""
    write_json(path, content | {SEAL: [_sha256(json_text(content))]})


def unsealed(path: Path, content: Any, remedy: str) -> Any:
    """The content of the JSON file `path` without its seal. Raises UserError if the seal differs or is
    missing."""
    try:
        seal = content.pop(SEAL)
        is_equal = seal == [_sha256(json_text(content))]
    except (AttributeError, KeyError, TypeError, ValueError):
        is_equal = False
    if not is_equal:
        raise _changed(path, remedy)
    return content


def sealed_csv(header: list[str], rows: list[list[str]]) -> str:
    """The text of a CSV file with its seal. Raises ValueError without a row."""
    if not rows:
        raise ValueError("a sealed CSV file has at least one row")
    text = "\n".join(",".join(row) for row in [[*header, SEAL], *([*row, ""] for row in rows)])
    return f"{text}{_sha256(text)}\n"


def read_sealed_csv(path: Path, remedy: str) -> list[dict[str, str]]:
    """The rows of the CSV file `path` without its seal. Raises UserError if the seal differs or is missing,
    and OSError if the file cannot be read."""
    text = path.read_bytes()
    body, seal = text[:-65], text[-65:]
    if not body.partition(b"\n")[0].endswith(f",{SEAL}".encode()) or seal != _sha256(body).encode() + b"\n":
        raise _changed(path, remedy)
    rows = csv.DictReader(body.decode("utf-8").splitlines())
    return [{name: cell for name, cell in row.items() if name != SEAL} for row in rows]


def write_digests(folder: Path) -> None:
    """Writes the sha256 of each file of a new folder beside them."""
    write_json(folder / DIGESTS, {path.name: sha256_of(path) for path in folder.iterdir()})


def require_digests(folder: Path, remedy: str) -> None:
    """Raises UserError if a file of `folder` differs from its recorded sha256, or if no digests are recorded:
    an earlier version wrote none. A missing file or folder is left to the reader that needs it."""
    if not folder.is_dir():
        return
    try:
        recorded = dict(json.loads((folder / DIGESTS).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        raise UserError(f"{folder / DIGESTS} is missing or damaged.", remedy) from None
    for path in sorted(folder.iterdir()):
        if path.name != DIGESTS and sha256_of(path) != recorded.get(path.name):
            raise _changed(path, remedy)


def _changed(path: Path, remedy: str) -> UserError:
    return UserError(f"{path} differs from its sha256, or has none: it was changed or damaged.", remedy)


def _sha256(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()
