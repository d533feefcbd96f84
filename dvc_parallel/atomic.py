"""The replacement of a file as a whole."""

import os
from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Writes `content` beside `path`, syncs it and renames it to `path`. The caller holds a lock of the file.

    On any error `path` does not change.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
