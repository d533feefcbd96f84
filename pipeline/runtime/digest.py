"""The sha256 of a file. It names, compares and verifies artefacts."""

import hashlib
from pathlib import Path


def sha256_of(path: Path) -> str:
    """The sha256 of the bytes of a file, as 64 hexadecimal digits. Raises OSError for a file that cannot be
    read."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
