"""A JPEG proven whole at half the price of its pixels, and what of its pixels is needed to propose
duplicates.

Proof: the entropy-coded data is read to its end by the same decoder with the same warnings as errors; only
the inverse DCT is left out, by asking for the picture at an eighth. What `decode` refuses is refused, with
the same words, and nothing else.

First rows: a sequential JPEG is coded from top to bottom. With its height set down to 8 the same decoder
gives its first rows, exactly as they are in the whole picture, for the price of a few. The last two are
thrown away: chroma that was subsampled is interpolated with the row of samples below.
"""

import struct
from collections.abc import Callable

import numpy as np
import simplejpeg
from jaxtyping import UInt8

from pipeline.data.decode import Jpeg, decode, decode_jpeg, jpeg_header

_MARGIN = 2  # rows of pixels in a row of chroma where it is interpolated; where there are 4, it is repeated
_SEQUENTIAL = (
    0xC0,
    0xC1,
)  # SOF0, SOF1: Huffman coding, every block complete at its place. Progressive scans come back to each row.
_SCAN = 0xDA
_MODES = {1: "L", 3: "RGB", 4: "CMYK"}  # by components, as Pillow names them
_SKIMMED = (1, 3)  # components
_PRECISION, _HEIGHT, _COMPONENTS = 4, 5, 9  # bytes from the marker of a frame (ITU-T T.81, B.2.2)


Rows = Callable[[int], UInt8[np.ndarray, "n W 3"]]


def skim(encoded: UInt8[np.ndarray, "bytes"], jpeg: Jpeg) -> Rows | None:
    """Reads a JPEG with the header `jpeg`, which needs no turning, to its end. Gives the function that gives
    the first n rows of its pixels.

    None for the kinds that have to be decoded in full: progressive, arithmetic, lossless, several scans,
    CMYK, more than 8 bits. Raises ValueError exactly where `decode` does.
    """
    if not _one_scan(encoded.data, jpeg) or decode_jpeg(encoded, eighth=True) is None:
        return None
    return lambda rows: _first_rows(encoded, jpeg, rows)


def mode_of(encoded: UInt8[np.ndarray, "bytes"], jpeg: Jpeg) -> str:
    """The mode of a JPEG that could be decoded, as Pillow names it."""
    return _MODES[int(encoded[jpeg.frame + _COMPONENTS])]


def require_whole(encoded: UInt8[np.ndarray, "bytes"]) -> None:
    """Raises ValueError exactly where `decode` does, of pictures in any format."""
    jpeg = jpeg_header(encoded)
    if jpeg is None or skim(encoded, jpeg) is None:
        decode(encoded)


def _one_scan(data: memoryview, jpeg: Jpeg) -> bool:
    """Whether a JPEG is grey or of three colours, in one sequential scan. No where its headers break off: the
    decoder shall say what is wrong."""
    position = jpeg.frame
    try:
        components = data[position + _COMPONENTS]
        if (
            data[position + 1] not in _SEQUENTIAL
            or data[position + _PRECISION] != 8
            or components not in _SKIMMED
        ):
            return False
        while data[position] == 0xFF and data[position + 1] != _SCAN:
            fill = data[position + 1] == 0xFF
            position += 1 if fill else 2 + struct.unpack_from(">H", data, position + 2)[0]
        return data[position] == 0xFF and data[position + 4] == components
    except (IndexError, struct.error):
        return False


def _first_rows(encoded: UInt8[np.ndarray, "bytes"], jpeg: Jpeg, rows: int) -> UInt8[np.ndarray, "n W 3"]:
    """The first `rows` rows of a JPEG that is known to be whole. Not strict: with fewer rows all other data
    is surplus."""
    lower = encoded.copy()
    height = min(jpeg.height, rows + _MARGIN)
    lower[jpeg.frame + _HEIGHT : jpeg.frame + _HEIGHT + 2] = divmod(height, 256)
    return simplejpeg.decode_jpeg(lower, "RGB", strict=False)[:rows]
