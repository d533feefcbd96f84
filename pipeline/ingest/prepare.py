"""One picture on its way into a shard: read to its end to prove that it is whole, set upright, shrunk where
the settings say so."""

import io
import math
from typing import NamedTuple

import cv2
import numpy as np
import simplejpeg
from jaxtyping import UInt8
from PIL import Image

from pipeline.data.decode import Decoded, decode, decode_with_pillow, jpeg_header
from pipeline.ingest.collection import Box, Content
from pipeline.ingest.duplicates import digest_of, fingerprint
from pipeline.ingest.skim import mode_of, skim


class Prepared(NamedTuple):
    """What is stored, and what was done to it."""

    image: bytes
    width: int  # of the upright picture
    height: int
    # of the upright RGB pixels as they came: equal for a picture saved again without loss, and for few others
    fingerprint: bytes
    format: str  # of the source, with its mode: "JPEG L"; "pixels" where the source has no files
    orientation: int  # EXIF 1..8; what is stored is upright, without the tag
    scale: float  # of the stored picture against the upright one; 1.0 where it was not shrunk

    @property
    def upright(self) -> bool:
        """An orientation tag was applied and is gone."""
        return self.orientation != 1

    @property
    def resized(self) -> bool:
        return self.scale != 1.0


def prepare(picture: Content, resize: int | None, quality: int) -> Prepared:
    """Raises ValueError with the reason when the bytes are not one whole image.

    A JPEG (and any other format that `decode` reads) keeps its bytes, unless
      - it carries an orientation: stored upright, as JPEG at `quality`, or as PNG when it came in another
        format;
      - its shorter side is above `resize`: shrunk to it by area averaging, never enlarged, as JPEG at
        `quality`.
    JPEG files written here keep the colour at full resolution (4:4:4): the picture was subsampled once
    already. Pixels without a file become a PNG, of their own number of channels, and are shrunk like a file.
    """
    if isinstance(picture, bytes) and (kept := _kept(picture, resize)):
        return kept
    encoded = picture if isinstance(picture, bytes) else png(picture)
    rgb, kind, orientation = _decoded(picture)
    turned, is_jpeg = orientation != 1, kind.startswith("JPEG ")
    height, width = rgb.shape[:2]
    mark = fingerprint(height, width, lambda rows: rgb[:rows])
    shrunk = rgb if resize is None else shrink(rgb, resize)
    resized = shrunk is not rgb
    if resized or (turned and is_jpeg):
        encoded = jpeg(shrunk, quality)
    elif turned:
        encoded = png(shrunk)
    height, width = shrunk.shape[:2]
    scale = (
        width / rgb.shape[1] if width >= height else height / rgb.shape[0]
    )  # of the longer side, the one that is rounded less
    return Prepared(encoded, width, height, mark, kind, orientation, scale if resized else 1.0)


def _kept(encoded: bytes, resize: int | None) -> Prepared | None:
    """A JPEG that is stored as it is, and need not be decoded in full to prove it whole; None for every other
    picture."""
    octets = np.frombuffer(encoded, np.uint8)
    header = jpeg_header(octets)
    if (
        header is None
        or header.orientation != 1
        or (resize is not None and min(header.width, header.height) > resize)
    ):
        return None
    rows = skim(octets, header)
    if rows is None:
        return None
    mark = fingerprint(header.height, header.width, rows)
    return Prepared(encoded, header.width, header.height, mark, f"JPEG {mode_of(octets, header)}", 1, 1.0)


def _decoded(picture: Content) -> Decoded:
    """All its pixels, upright, and what `decode` turned."""
    if not isinstance(picture, bytes):
        return Decoded(_rgb(picture), "pixels RGB" if picture.ndim == 3 else "pixels L", 1)
    octets = np.frombuffer(picture, np.uint8)
    header = jpeg_header(octets)
    if header is None:
        return decode_with_pillow(octets)
    rgb = decode(octets)
    return Decoded(rgb, f"JPEG {mode_of(octets, header)}", header.orientation)


def pixels_of(picture: Content) -> bytes:
    """sha256 of the upright RGB pixels: equal for a picture saved again without loss, and for no other.
    Raises ValueError as `prepare` does."""
    return digest_of(
        decode(np.frombuffer(picture, np.uint8)) if isinstance(picture, bytes) else _rgb(picture)
    )


def _rgb(pixels: UInt8[np.ndarray, "H W 3"] | UInt8[np.ndarray, "H W"]) -> UInt8[np.ndarray, "H W 3"]:
    return pixels if pixels.ndim == 3 else np.repeat(pixels[:, :, None], 3, axis=2)


def stored_box(box: Box, picture: Prepared) -> Box:
    """A box of the file in pixels of what is stored: turned with the picture, shrunk with it, otherwise as
    published.

    Boxes may reach over the edge, as some published ones do. Raises ValueError when a box is empty, not
    finite, or beside the picture.
    """
    width, height = picture.width / picture.scale, picture.height / picture.scale  # upright
    x0, y0, x1, y1 = box
    if picture.orientation >= 5:  # the file lies on its side: transposed first
        x0, y0, x1, y1 = y0, x0, y1, x1
    if picture.orientation in (2, 3, 6, 7):
        x0, x1 = width - x1, width - x0
    if picture.orientation in (3, 4, 7, 8):
        y0, y1 = height - y1, height - y0
    if not (
        all(map(math.isfinite, box))
        and x0 < x1
        and y0 < y1
        and x1 > 0
        and y1 > 0
        and x0 < width
        and y0 < height
    ):
        raise ValueError(f"the box {box} is not within the {width:.0f} x {height:.0f} picture")
    return x0 * picture.scale, y0 * picture.scale, x1 * picture.scale, y1 * picture.scale


def shrink(rgb: UInt8[np.ndarray, "H W 3"], shorter: int) -> UInt8[np.ndarray, "h w 3"]:
    """The picture with its shorter side at `shorter` pixels; itself where it is not larger."""
    height, width = rgb.shape[:2]
    if min(height, width) <= shorter:
        return rgb
    size = (
        (shorter, round(height * shorter / width))
        if width <= height
        else (round(width * shorter / height), shorter)
    )
    return cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)


def jpeg(rgb: UInt8[np.ndarray, "H W 3"], quality: int) -> bytes:
    """Baseline JPEG, 4:4:4, exact DCT."""
    return simplejpeg.encode_jpeg(np.ascontiguousarray(rgb), quality, "RGB", "444", fastdct=False)


def png(pixels: UInt8[np.ndarray, "H W 3"] | UInt8[np.ndarray, "H W"]) -> bytes:
    """PNG without metadata."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()
