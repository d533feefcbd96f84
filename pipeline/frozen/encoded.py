"""The pictures of a caller: files, or the encoded bytes of one. It needs no PyTorch."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt8

from unseen.data.heif import readable
from unseen.runtime.errors import UserError
from unseen.runtime.files import regular
from unseen.runtime.names import printable

BATCH = 64  # images
Picture = str | Path | bytes  # a file, or the encoded bytes of one
Precision = Literal["float32", "bfloat16"]


class Pictures:
    """Pictures by their position in a list."""

    def __init__(self, pictures: Sequence[Picture]) -> None:
        self.pictures = pictures

    def image(self, row: int) -> UInt8[np.ndarray, "size"]:
        return np.frombuffer(readable(encoded(self.pictures[row])), np.uint8)

    def box(self, row: int) -> tuple[float, float, float, float] | None:
        return None

    def undecodable(self, row: int, reason: str) -> UserError:
        return UserError(
            f"{name_of(self.pictures[row])} cannot be read as a picture: {reason}.",
            "Convert it to JPEG or PNG, or leave it out.",
        )


def pictures_of(pictures: Any) -> list[Picture]:
    """The pictures of a call: one, or any iterable of them. Raises UserError for other types."""
    if isinstance(pictures, Picture):
        return [pictures]
    result = list(pictures) if isinstance(pictures, Iterable) else [pictures]
    for picture in result:
        if not isinstance(picture, Picture):
            raise UserError(
                f"A picture is a {type(picture).__name__}, expected a path or the bytes of a file.",
                "Save a decoded picture to a file or to io.BytesIO first.",
            )
    return result


def encoded(picture: Picture) -> bytes:
    """The file content of a picture. Raises UserError for a file that cannot be read."""
    if isinstance(picture, bytes):
        return picture
    try:
        return regular(Path(picture)).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: the path contains a NUL
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{name_of(picture)} cannot be read: {reason}.", "Correct the path.") from None


def name_of(picture: Picture) -> str:
    return f"a picture of {len(picture):,} bytes" if isinstance(picture, bytes) else printable(str(picture))
