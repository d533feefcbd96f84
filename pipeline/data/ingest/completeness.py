"""Checks that a JPEG is complete without a full decode, and reads its first rows to find duplicate
candidates.

Check: the decoder reads the entropy-coded data to its end, and its warnings are errors as in `decode`. It
skips only the inverse DCT, because the image is requested at an eighth of its size. The check therefore
refuses the same files as `decode`, with the same messages, and takes about half of the time.

First rows: a sequential JPEG is coded from top to bottom. A copy whose header gives a smaller height decodes
to the first rows, equal to those of the whole picture, in the time of a few rows. The last two rows are
discarded, because subsampled chroma is interpolated with the row of samples below.
"""

import struct
from collections.abc import Callable

import numpy as np
import simplejpeg
from jaxtyping import UInt8

from unseen.data.decode import Jpeg, decode, decode_jpeg, jpeg_header

_MARGIN = 2  # rows of pixels in a row of chroma where it is interpolated; where there are 4, it is repeated
# SOF0, SOF1: Huffman coding, every block complete where it occurs. Progressive scans return to each row.
_SEQUENTIAL = (0xC0, 0xC1)
_SCAN = 0xDA
_MODES = {1: "L", 3: "RGB", 4: "CMYK"}  # Pillow's names, by the number of components
_SUPPORTED_COMPONENTS = (1, 3)
_PRECISION, _HEIGHT, _COMPONENTS = 4, 5, 9  # bytes from the marker of a frame (ITU-T T.81, B.2.2)

RowReader = Callable[[int], UInt8[np.ndarray, "n W 3"]]


def checked_rows(encoded: UInt8[np.ndarray, "bytes"], jpeg: Jpeg) -> RowReader | None:
    """Checks a JPEG with the header `jpeg`, whose orientation is 1, for completeness. Returns a function that
    returns the first n rows of its pixels.

    Returns None for the kinds that must be decoded in full: progressive, arithmetic, lossless, several scans,
    CMYK, more than 8 bits. Raises ValueError exactly if `decode` does.
    """
    if not _is_one_sequential_scan(encoded.data, jpeg) or decode_jpeg(encoded, eighth=True) is None:
        return None
    return lambda rows: _first_rows(encoded, jpeg, rows)


def mode_of(encoded: UInt8[np.ndarray, "bytes"], jpeg: Jpeg) -> str:
    """Pillow's name for the mode of a JPEG that can be decoded."""
    return _MODES[int(encoded[jpeg.frame + _COMPONENTS])]


def require_complete(encoded: UInt8[np.ndarray, "bytes"]) -> None:
    """Raises ValueError exactly if `decode` does, for pictures in any format."""
    jpeg = jpeg_header(encoded)
    if jpeg is None or checked_rows(encoded, jpeg) is None:
        decode(encoded)


def _is_one_sequential_scan(data: memoryview, jpeg: Jpeg) -> bool:
    """Whether a JPEG is grey or has three components, in one sequential scan. False if its headers are
    incomplete: the decoder then reports the reason."""
    position = jpeg.frame
    try:
        components = data[position + _COMPONENTS]
        is_sequential = data[position + 1] in _SEQUENTIAL and data[position + _PRECISION] == 8
        if not is_sequential or components not in _SUPPORTED_COMPONENTS:
            return False
        while data[position] == 0xFF and data[position + 1] != _SCAN:
            is_fill_byte = data[position + 1] == 0xFF
            position += 1 if is_fill_byte else 2 + struct.unpack_from(">H", data, position + 2)[0]
        return data[position] == 0xFF and data[position + 4] == components
    except (IndexError, struct.error):
        return False


def _first_rows(encoded: UInt8[np.ndarray, "bytes"], jpeg: Jpeg, rows: int) -> UInt8[np.ndarray, "n W 3"]:
    """The first `rows` rows of a complete JPEG. Decoded without strict mode, because the data of the other
    rows is surplus."""
    shortened = encoded.copy()
    height = min(jpeg.height, rows + _MARGIN)
    shortened[jpeg.frame + _HEIGHT : jpeg.frame + _HEIGHT + 2] = divmod(height, 256)
    return simplejpeg.decode_jpeg(shortened, "RGB", strict=False)[:rows]
