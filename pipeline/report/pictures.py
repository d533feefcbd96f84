"""Images as JPEG data URIs inside a page."""

import base64
from collections.abc import Callable

import cv2
import numpy as np
import simplejpeg
from jaxtyping import UInt8
from markupsafe import Markup

from unseen.data.decode import decode
from unseen.data.shards import Shards

QUALITY = 82  # of the JPEG
Thumbnail = Callable[[int], str]  # row id -> data URI


def data_uri(encoded: UInt8[np.ndarray, "bytes"], size: int) -> str:
    """An encoded image as the data URI of its `jpeg`."""
    return uri_of(jpeg(encoded, size))


def jpeg(encoded: UInt8[np.ndarray, "bytes"], size: int) -> bytes:
    """An encoded image as a JPEG, its longer side at most `size` pixels. Raises ValueError as `decode`
    does.
    """
    image = decode(encoded)
    scale = size / max(image.shape[:2])
    if scale < 1:
        sides = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
        image = cv2.resize(image, sides, interpolation=cv2.INTER_AREA)
    return compressed(image)


def compressed(image: UInt8[np.ndarray, "H W 3"]) -> bytes:
    """An image as a JPEG."""
    result: bytes = simplejpeg.encode_jpeg(np.ascontiguousarray(image), quality=QUALITY, colorspace="RGB")
    return result


def uri_of(jpeg: bytes) -> str:
    """The data URI of a JPEG."""
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode("ascii")


class Pictures:
    """The pictures of a page, which contains each once: as a class of CSS, whose background is the picture.

    An element takes the class. So a picture that 30 methods retrieve has one copy in the page.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def name(self, uri: str) -> str:
        """The class of a data URI."""
        return f"p{self._numbers.setdefault(uri, len(self._numbers))}"

    def style(self) -> Markup:
        """The rules of all classes. Base64 needs no escapes."""
        return Markup("").join(
            Markup(".p{}{{background-image:url({})}}\n").format(number, uri)
            for uri, number in self._numbers.items()
        )


def thumbnails(shards: Shards, size: int) -> Thumbnail:
    """A function from row id to data URI. It encodes each row once."""
    uris: dict[int, str] = {}

    def thumbnail(row: int) -> str:
        if row not in uris:
            uris[row] = data_uri(shards.image(row), size)
        return uris[row]

    return thumbnail
