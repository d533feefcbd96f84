"""Encoded bytes of any supported image -> upright 8-bit RGB.

JPEGs are decoded by simplejpeg (libjpeg-turbo, with the same pixels as Pillow) in strict mode: data for which
libjpeg only warns (a missing end, bad Huffman codes) gives grey or smeared areas, and such an image must not
enter a training set unnoticed. Other formats, and the few JPEGs that the TurboJPEG interface does not
support, are decoded by Pillow.
"""

import contextlib
import io
import re
import struct
import threading
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import simplejpeg
from jaxtyping import UInt8
from PIL import Image, ImageFile, ImageOps

from unseen.data.scratch import Scratch

# Formats that Pillow may open, whatever the name of a file. All are raster formats that are decoded within
# the process. Without this list Pillow starts Ghostscript on PostScript, and parses some thirty formats that
# no data set uses.
FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "BMP", "GIF", "TIFF", "PPM")
MAX_PIXELS = 178_956_970  # Pillow's limit for a "decompression bomb"; here also for JPEG
WHITE = (255, 255, 255, 255)

_EXIF = b"Exif\0\0"
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
# The tag that Pillow's exif_transpose reads if there is no EXIF orientation.
_XMP_ORIENTATION = re.compile(rb"tiff:Orientation(?:=\"|>)([1-8])")
_ORIENTATION_TAG = 0x0112
# Tags of TIFF 6.0, and its numbers of deflate. Strips and tiles have offsets and sizes.
_BITS, _COMPRESSION, _PHOTOMETRIC, _FILL_ORDER = 258, 259, 262, 266
_STRIPS, _TILES = (273, 279), (324, 325)
_DEFLATE = (8, 32946)
_BAND = 1 << 20  # pixels that are converted at a time: a copy of a large picture takes 0.2 GB
_PIECE = 1 << 20  # bytes of a strip that are expanded at a time
_NO_LENGTH = frozenset((0x01, *range(0xD0, 0xD9)))  # TEM, RST0-7, SOI
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF0-15 without DHT, JPG, DAC
_MARKERS = 20_000  # before the frame header; a photo has a few dozen
# A few bytes between the last scan and the end marker, as several cameras write, after all pixels. Damage
# within a scan results in more such bytes (10 and more in trials on damaged files), and the image is refused.
_HARMLESS = re.compile(r"\b[1-7] extraneous bytes before marker 0xd9")
_UNSUPPORTED = "subsampling"


class _Caller:
    """What the caller of this process has set in Pillow, while `depth` pictures are decoded."""

    lock, depth, accepts_truncated = threading.Lock(), 0, False


_caller = _Caller()


class Jpeg(NamedTuple):
    """The header of a JPEG."""

    width: int  # as stored, before the orientation is applied
    height: int
    orientation: int  # EXIF 1..8
    frame: int  # position of the marker of the frame, 0xFF and SOFn


class Decoded(NamedTuple):
    """A picture that Pillow decoded."""

    rgb: UInt8[np.ndarray, "H W 3"]  # upright
    kind: str  # format and mode of the file: "PNG 1"
    orientation: int  # EXIF 1..8, applied


def decode(encoded: UInt8[np.ndarray, "bytes"], scratch: Scratch | None = None) -> UInt8[np.ndarray, "H W 3"]:
    """The picture as uint8 (H, W, 3) RGB, C-contiguous.

    `encoded`: uint8 (bytes,), may be read-only. Grey, 1-bit, palette and CMYK are converted to RGB;
    transparent pixels are blended with white; 12- and 16-bit values are reduced to their high 8 bits; the
    EXIF orientation is applied. Colour profiles are ignored, as is usual in the field. Of an animation the
    first frame is decoded.

    With `scratch` the result may be in its memory, and the next picture that is decoded with it overwrites
    the result.

    Raises ValueError with the reason for bytes that are corrupt, truncated, not of `FORMATS`, or have more
    than `MAX_PIXELS`. JPEG has no checksum: flipped bits that are valid code words are detected only by the
    sha256 of the shards.
    """
    jpeg = jpeg_header(encoded)
    if jpeg is None:
        return decode_with_pillow(encoded).rgb
    buffer = None if scratch is None else scratch.take("decoded", jpeg.height, jpeg.width)
    stored = decode_jpeg(encoded, buffer=buffer)
    if stored is None:
        return decode_with_pillow(encoded).rgb
    return stored if jpeg.orientation == 1 else np.ascontiguousarray(_upright(stored, jpeg.orientation))


def decode_jpeg(
    encoded: UInt8[np.ndarray, "bytes"],
    eighth: bool = False,
    buffer: UInt8[np.ndarray, "H W 3"] | None = None,
) -> UInt8[np.ndarray, "h w 3"] | None:
    """The pixels of a JPEG as stored, or with `eighth` the means of its 8 x 8 blocks.

    None if TurboJPEG does not support the file.

    Raises ValueError as `decode` does, for the same files at both scales: all entropy-coded data is read, and
    every warning is an error.
    """
    size = {"min_height": 1, "min_width": 1} if eighth else {}
    try:
        return simplejpeg.decode_jpeg(encoded, "RGB", buffer=buffer, **size)
    except ValueError as error:
        if _HARMLESS.search(str(error)):
            return simplejpeg.decode_jpeg(encoded, "RGB", strict=False, **size)
        if _UNSUPPORTED in str(error):
            return None
        raise


def _refuse_bomb(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise ValueError(f"{width} x {height} pixels exceed the limit of {MAX_PIXELS:,}")


def jpeg_header(encoded: UInt8[np.ndarray, "bytes"]) -> Jpeg | None:
    """Size and orientation from the markers; None for other formats.

    Raises ValueError for a damaged or too large JPEG.
    """
    data = encoded.data
    if len(data) < 4 or bytes(data[:3]) != b"\xff\xd8\xff":
        return None
    exif, xmp, position = 0, 0, 2
    try:
        for _ in range(_MARKERS):
            if data[position] != 0xFF:
                raise ValueError(f"corrupt JPEG header at byte {position}")
            marker = data[position + 1]
            if marker == 0xFF:  # fill byte
                position += 1
                continue
            if marker in _NO_LENGTH:
                position += 2
                continue
            (length,) = struct.unpack_from(">H", data, position + 2)
            if marker in _FRAMES:
                height, width = struct.unpack_from(">HH", data, position + 5)
                if not width or not height:
                    raise ValueError(f"JPEG header with a size of {width} x {height}")
                _refuse_bomb(width, height)
                return Jpeg(width, height, exif or xmp or 1, position)
            if marker in (0xDA, 0xD9):
                raise ValueError("JPEG without a frame header")
            if marker == 0xE1:
                segment = bytes(data[position + 4 : position + 2 + length])
                exif, xmp = exif or _exif_orientation(segment), xmp or _xmp_orientation(segment)
            position += 2 + length
    except (IndexError, struct.error):
        raise ValueError("truncated within the JPEG header") from None
    raise ValueError(f"JPEG header with more than {_MARKERS:,} markers")


def _xmp_orientation(segment: bytes) -> int:
    """The orientation 1..8 of an APP1 segment that is XMP, else 0."""
    match = _XMP_ORIENTATION.search(segment) if segment.startswith(_XMP) else None
    return int(match[1]) if match else 0


def _exif_orientation(segment: bytes) -> int:
    """The orientation 1..8 of an APP1 segment that is EXIF, else 0; 0 also for malformed EXIF."""
    if not segment.startswith(_EXIF):
        return 0
    tiff = segment[len(_EXIF) :]
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return 0
    try:
        (directory,) = struct.unpack_from(order + "I", tiff, 4)
        (entries,) = struct.unpack_from(order + "H", tiff, directory)
        for entry in range(directory + 2, directory + 2 + 12 * entries, 12):
            tag, kind = struct.unpack_from(order + "HH", tiff, entry)
            if tag == _ORIENTATION_TAG and kind in (3, 4):  # SHORT, LONG
                (value,) = struct.unpack_from(order + ("H" if kind == 3 else "I"), tiff, entry + 8)
                return value if 1 <= value <= 8 else 1
    except struct.error:
        return 0
    return 0


def _upright(stored: np.ndarray, orientation: int) -> np.ndarray:
    """Applies an EXIF orientation. 5 to 8 exchange height and width."""
    if orientation in (5, 6, 7, 8):
        stored = stored.swapaxes(0, 1)
    mirrored = orientation in (2, 3, 6, 7)  # left-right
    flipped = orientation in (3, 4, 7, 8)  # top-bottom
    return stored[:: -1 if flipped else 1, :: -1 if mirrored else 1]


def decode_with_pillow(encoded: UInt8[np.ndarray, "bytes"]) -> Decoded:
    """`decode` by Pillow, with the format and the orientation of the file."""
    try:
        with _complete_files(), Image.open(io.BytesIO(encoded.data), formats=FORMATS) as image:
            _refuse_bomb(*image.size)
            _require_checksums(image, encoded.data)
            kind = f"{image.format} {image.mode}"
            orientation = image.getexif().get(_ORIENTATION_TAG, 1)
            orientation = int(orientation) if orientation in range(1, 9) else 1
            tags = getattr(image, "tag_v2", {})
            ImageOps.exif_transpose(image, in_place=True)
            return Decoded(_to_rgb(image, tags), kind, orientation)
    except ValueError:
        raise
    except Exception as error:  # any error of a parser: OSError, SyntaxError, struct.error, zlib.error, ...
        raise ValueError(_reason(error)) from error


@contextlib.contextmanager
def _complete_files() -> Iterator[None]:
    """Pillow refuses truncated files within the block, in all threads, whatever the caller has set."""
    with _caller.lock:
        if not _caller.depth:
            _caller.accepts_truncated = ImageFile.LOAD_TRUNCATED_IMAGES
        _caller.depth += 1
        ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        yield
    finally:
        with _caller.lock:
            _caller.depth -= 1
            if not _caller.depth:
                ImageFile.LOAD_TRUNCATED_IMAGES = _caller.accepts_truncated


def _require_checksums(image: Image.Image, encoded: memoryview) -> None:
    """Raises SyntaxError for a chunk of a PNG with a wrong checksum, which Pillow compares only here, and
    zlib.error for such a strip or tile of a TIFF, of which libtiff only warns."""
    if image.format == "PNG":
        with Image.open(io.BytesIO(encoded), formats=FORMATS) as unread:
            unread.verify()
    tags = getattr(image, "tag_v2", {})
    if tags.get(_COMPRESSION) not in _DEFLATE or tags.get(_FILL_ORDER, 1) != 1:
        return
    for offsets, sizes in (_STRIPS, _TILES):
        for offset, size in zip(tags.get(offsets, ()), tags.get(sizes, ()), strict=True):
            inflater, rest = zlib.decompressobj(), bytes(encoded[offset : offset + size])
            while rest:
                inflater.decompress(rest, _PIECE)
                rest = inflater.unconsumed_tail


def _to_rgb(image: Image.Image, tags: Mapping[int, Any]) -> np.ndarray:
    """tags: of the file, if it is a TIFF."""
    image.load()
    transparent = image.info.get("transparency")
    if image.mode.startswith("I"):  # 16-bit grey, which Pillow would clip at 255
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 0xFFFF:
            raise ValueError(f"integer pixels from {values.min()} to {values.max()}, expected 0 to 65535")
        bits = tags.get(_BITS, (16,))[0]
        grey = (values >> (4 if bits == 12 else 8)).astype(np.uint8)
        if tags.get(_PHOTOMETRIC) == 0:  # 0 is white, which Pillow inverts for 8 bits only
            grey = 255 - grey
        if isinstance(transparent, int):
            grey[values == transparent] = 255
        return np.repeat(grey[:, :, None], 3, axis=2)
    if image.mode == "F":
        raise ValueError("floating-point pixels have no defined range")
    is_transparent = transparent is not None or image.mode in ("RGBA", "LA", "PA", "RGBa", "La")
    rgb = np.empty((image.height, image.width, 3), np.uint8)
    rows = max(1, _BAND // image.width)
    for top in range(0, image.height, rows):
        band = image.crop((0, top, image.width, min(top + rows, image.height)))
        if is_transparent:
            band = band.convert("RGBA")
            band = Image.alpha_composite(Image.new("RGBA", band.size, WHITE), band)
        rgb[top : top + rows] = np.asarray(band.convert("RGB"))
    return rgb


def _reason(error: Exception) -> str:
    if isinstance(error, Image.UnidentifiedImageError):
        return f"no image format that is read ({', '.join(FORMATS)})"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
