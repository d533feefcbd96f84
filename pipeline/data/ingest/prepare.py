"""Prepares one picture for a shard: checks that it is complete, applies its orientation, and shrinks it if
the settings require it."""

import io
import math
from typing import NamedTuple

import cv2
import numpy as np
import simplejpeg
from jaxtyping import UInt8
from PIL import Image

from unseen.data.decode import Decoded, decode, decode_with_pillow, jpeg_header
from unseen.data.ingest.collection import Box, Content
from unseen.data.ingest.completeness import checked_rows, mode_of
from unseen.data.ingest.duplicates import fingerprint, pixel_digest


class Prepared(NamedTuple):
    """The stored image, and how it differs from the source."""

    image: bytes
    width: int  # of the upright picture
    height: int
    # of the upright RGB pixels of the source: equal for a picture saved again without loss, and for few
    # others
    fingerprint: bytes
    format: str  # of the source, with its mode: "JPEG L"; "pixels RGB" if the source has no files
    orientation: int  # of the source, EXIF 1..8; the stored image is upright and has no orientation tag
    scale: float  # length in the stored image / length in the upright source; 1.0 if it was not shrunk

    @property
    def upright(self) -> bool:
        """Whether an orientation tag was applied and removed."""
        return self.orientation != 1

    @property
    def resized(self) -> bool:
        return self.scale != 1.0


def prepare(picture: Content, resize: int | None, quality: int) -> Prepared:
    """Raises ValueError with the reason if the bytes are not one complete image.

    A JPEG (or any other format that `decode` reads) is stored unchanged, except:
      - with an orientation tag: it is stored upright, as JPEG with `quality`, or as PNG if the source is not
        a JPEG;
      - with a shorter side above `resize`: it is shrunk to `resize` by area averaging, and stored as JPEG
        with `quality`. Images are never enlarged.
    JPEG files written here store the colour at full resolution (4:4:4), because the source is already
    subsampled. Pixels without a file become a PNG with the same number of channels, and are shrunk like a
    file.
    """
    if isinstance(picture, bytes) and (unchanged := _unchanged_jpeg(picture, resize)):
        return unchanged
    encoded = picture if isinstance(picture, bytes) else png(picture)
    rgb, kind, orientation = _decoded(picture)
    height, width = rgb.shape[:2]
    source_fingerprint = fingerprint(height, width, lambda rows: rgb[:rows])
    stored = rgb if resize is None else shrink(rgb, resize)
    resized, turned = stored is not rgb, orientation != 1
    if resized or (turned and kind.startswith("JPEG ")):
        encoded = jpeg(stored, quality)
    elif turned:
        encoded = png(stored)
    height, width = stored.shape[:2]
    longer = 1 if width >= height else 0  # the side with the smaller relative rounding error
    scale = stored.shape[longer] / rgb.shape[longer] if resized else 1.0
    return Prepared(encoded, width, height, source_fingerprint, kind, orientation, scale)


def _unchanged_jpeg(encoded: bytes, resize: int | None) -> Prepared | None:
    """A JPEG that is stored unchanged and can be checked without a full decode; None for every other
    picture."""
    octets = np.frombuffer(encoded, np.uint8)
    header = jpeg_header(octets)
    if header is None or header.orientation != 1:
        return None
    if resize is not None and min(header.width, header.height) > resize:
        return None
    rows = checked_rows(octets, header)
    if rows is None:
        return None
    source_fingerprint = fingerprint(header.height, header.width, rows)
    kind = f"JPEG {mode_of(octets, header)}"
    return Prepared(encoded, header.width, header.height, source_fingerprint, kind, 1, 1.0)


def _decoded(picture: Content) -> Decoded:
    """All pixels, upright, with the kind and the orientation of the source."""
    if not isinstance(picture, bytes):
        return Decoded(_rgb(picture), "pixels RGB" if picture.ndim == 3 else "pixels L", 1)
    octets = np.frombuffer(picture, np.uint8)
    header = jpeg_header(octets)
    if header is None:
        return decode_with_pillow(octets)
    rgb = decode(octets)
    return Decoded(rgb, f"JPEG {mode_of(octets, header)}", header.orientation)


def pixels_of(picture: Content) -> bytes:
    """sha256 of the upright RGB pixels. It is equal for a picture saved again without loss, and for no other.
    Raises ValueError as `prepare` does."""
    rgb = decode(np.frombuffer(picture, np.uint8)) if isinstance(picture, bytes) else _rgb(picture)
    return pixel_digest(rgb)


def _rgb(pixels: UInt8[np.ndarray, "H W 3"] | UInt8[np.ndarray, "H W"]) -> UInt8[np.ndarray, "H W 3"]:
    return pixels if pixels.ndim == 3 else np.repeat(pixels[:, :, None], 3, axis=2)


def stored_box(box: Box, picture: Prepared) -> Box:
    """Converts a box from pixels of the file to pixels of the stored image, which may be turned and shrunk.

    Boxes may extend beyond the image, as some published boxes do. Raises ValueError for a box that is empty,
    not finite, or outside the image.
    """
    width, height = picture.width / picture.scale, picture.height / picture.scale  # upright
    x0, y0, x1, y1 = box
    if picture.orientation >= 5:  # the file is transposed
        x0, y0, x1, y1 = y0, x0, y1, x1
    if picture.orientation in (2, 3, 6, 7):
        x0, x1 = width - x1, width - x0
    if picture.orientation in (3, 4, 7, 8):
        y0, y1 = height - y1, height - y0
    has_area = x0 < x1 and y0 < y1
    overlaps = x1 > 0 and y1 > 0 and x0 < width and y0 < height
    if not (all(map(math.isfinite, box)) and has_area and overlaps):
        raise ValueError(f"the box {box} is not within the {width:.0f} x {height:.0f} picture")
    return x0 * picture.scale, y0 * picture.scale, x1 * picture.scale, y1 * picture.scale


def shrink(rgb: UInt8[np.ndarray, "H W 3"], shorter: int) -> UInt8[np.ndarray, "h w 3"]:
    """The picture with a shorter side of `shorter` pixels; `rgb` itself if it is not larger."""
    height, width = rgb.shape[:2]
    if min(height, width) <= shorter:
        return rgb
    size = round(width * shorter / height), shorter
    if width <= height:
        size = shorter, round(height * shorter / width)
    return cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)


def jpeg(rgb: UInt8[np.ndarray, "H W 3"], quality: int) -> bytes:
    """Encodes as baseline JPEG, 4:4:4, with the exact DCT."""
    return simplejpeg.encode_jpeg(np.ascontiguousarray(rgb), quality, "RGB", "444", fastdct=False)


def png(pixels: UInt8[np.ndarray, "H W 3"] | UInt8[np.ndarray, "H W"]) -> bytes:
    """Encodes as PNG without metadata."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()
