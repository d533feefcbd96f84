"""Encoded bytes of any supported image -> upright 8-bit RGB.

JPEG goes through simplejpeg (libjpeg-turbo, 1.4 times as fast as Pillow and bit-identical to it) in strict mode: what libjpeg only warns
about (a missing tail, bad Huffman codes) leaves grey or smeared areas behind, and a smeared picture in a training set is worse than a refused
one. Every other format, and the few JPEGs that the TurboJPEG interface cannot describe, go through Pillow.
"""

import io
import re
import struct
from typing import NamedTuple

import numpy as np
import simplejpeg
from jaxtyping import UInt8
from PIL import Image, ImageOps

from pipeline.data.scratch import Scratch

# Formats that Pillow may open, whatever the name of a file. All are raster formats that are decoded within the
# process. Without this list Pillow starts Ghostscript on PostScript, and parses some thirty formats that no data
# set uses.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
MAX_PIXELS = 178_956_970  # where Pillow refuses a "decompression bomb"; held for JPEG too
WHITE = (255, 255, 255, 255)

_EXIF = b"Exif\0\0"
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_XMP_ORIENTATION = re.compile(rb"tiff:Orientation(?:=\"|>)([1-8])")  # the same tag that Pillow's exif_transpose falls back to
_ORIENTATION_TAG = 0x0112
_NO_LENGTH = frozenset((0x01, *range(0xD0, 0xD9)))  # TEM, RST0-7, SOI
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF0-15 without DHT, JPG, DAC
# A few stray bytes between the last scan and the end marker, as several cameras write: all pixels were there by then. Damage within a scan, after
# which libjpeg loses its place, leaves more of them behind (10 and up in trials on damaged files), and is refused.
_HARMLESS = re.compile(r"\b[1-7] extraneous bytes before marker 0xd9")
_UNDESCRIBABLE = "subsampling"


class Jpeg(NamedTuple):
    """What the header of a JPEG says."""

    width: int  # as stored, before the orientation is applied
    height: int
    orientation: int  # EXIF 1..8
    frame: int  # position of the frame's marker, 0xFF and SOFn


class Decoded(NamedTuple):
    """A picture that Pillow read."""

    rgb: UInt8[np.ndarray, "H W 3"]  # upright
    kind: str  # format and mode of the file: "PNG 1"
    orientation: int  # EXIF 1..8, applied


def decode(encoded: UInt8[np.ndarray, "bytes"], scratch: Scratch | None = None) -> UInt8[np.ndarray, "H W 3"]:
    """The picture as uint8 (H, W, 3) RGB, C-contiguous.

    `encoded`: uint8 (bytes,), read-only is fine. Grey, 1-bit, palette and CMYK become RGB, transparency is laid on white, 16-bit values keep
    their high byte, and an EXIF orientation is applied. Colour profiles are ignored, as the field does. An animation gives its first frame.

    With `scratch` the result may lie in its memory, and is overwritten by the next picture decoded with it.

    Raises ValueError with what is wrong with the bytes: corrupt, truncated, not of `FORMATS`, or larger than
    `MAX_PIXELS`. JPEG has no checksum: flipped bits that happen to be well-formed code words cannot be detected
    here, only by the shards' sha256.
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
    encoded: UInt8[np.ndarray, "bytes"], eighth: bool = False, buffer: UInt8[np.ndarray, "H W 3"] | None = None
) -> UInt8[np.ndarray, "h w 3"] | None:
    """The pixels of a JPEG as they are stored, or (`eighth`) the means of its blocks of 8 x 8; None where TurboJPEG cannot describe it.

    Raises ValueError as `decode` does, for the same files at either scale: all entropy-coded data is read, and every warning is an error.
    """
    size = {"min_height": 1, "min_width": 1} if eighth else {}
    try:
        return simplejpeg.decode_jpeg(encoded, "RGB", buffer=buffer, **size)
    except ValueError as error:
        if _HARMLESS.search(str(error)):
            return simplejpeg.decode_jpeg(encoded, "RGB", strict=False, **size)
        if _UNDESCRIBABLE in str(error):
            return None
        raise


def _refuse_bomb(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise ValueError(f"{width} x {height} pixels are more than the {MAX_PIXELS:,} that are decoded")


def jpeg_header(encoded: UInt8[np.ndarray, "bytes"]) -> Jpeg | None:
    """Size and orientation by walking over the markers: 1 us. None where it is no JPEG; ValueError when it is a damaged or too large one."""
    data = encoded.data
    if len(data) < 4 or bytes(data[:3]) != b"\xff\xd8\xff":
        return None
    exif, xmp, position = 0, 0, 2
    try:
        while True:
            if data[position] != 0xFF:
                raise ValueError(f"corrupt JPEG header at byte {position}")
            marker = data[position + 1]
            if marker == 0xFF:  # a fill byte
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


def _xmp_orientation(segment: bytes) -> int:
    """1..8 where an APP1 segment is XMP with an orientation, else 0."""
    match = _XMP_ORIENTATION.search(segment) if segment.startswith(_XMP) else None
    return int(match[1]) if match else 0


def _exif_orientation(segment: bytes) -> int:
    """1..8 where an APP1 segment is EXIF with an orientation, else 0. Malformed EXIF counts as none: the picture is shown as stored."""
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
    """`decode` of what is no JPEG, with what is known of the file."""
    try:
        with Image.open(io.BytesIO(encoded.data), formats=FORMATS) as image:
            _refuse_bomb(*image.size)
            kind = f"{image.format} {image.mode}"
            orientation = image.getexif().get(_ORIENTATION_TAG, 1)
            return Decoded(_to_rgb(ImageOps.exif_transpose(image)), kind, int(orientation) if orientation in range(1, 9) else 1)
    except ValueError:
        raise
    except Exception as error:  # whatever parsing runs into: OSError, SyntaxError, struct.error, zlib.error, ...
        raise ValueError(_reason(error)) from error


def _to_rgb(image: Image.Image) -> np.ndarray:
    image.load()
    transparent = image.info.get("transparency")
    if image.mode.startswith("I"):  # 16-bit grey, which Pillow would clip at 255
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 0xFFFF:
            raise ValueError(f"integer pixels from {values.min()} to {values.max()}; 16-bit images reach from 0 to 65535")
        grey = (values >> 8).astype(np.uint8)
        if isinstance(transparent, int):
            grey[values == transparent] = 255
        return np.repeat(grey[:, :, None], 3, axis=2)
    if image.mode == "F":
        raise ValueError("floating-point pixels have no defined white")
    if transparent is not None or image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, WHITE), image)
    return np.array(image.convert("RGB"))


def _reason(error: Exception) -> str:
    if isinstance(error, Image.UnidentifiedImageError):
        return f"no image format that is read ({', '.join(FORMATS)})"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
