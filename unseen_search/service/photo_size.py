"""The size of a picture from its header, before any pixel is decoded.

A file of a few kilobytes can have 178 million pixels, whose decoding takes seconds and 0.5 GB. A header of
20 MB can have a million empty parts, whose reading takes 10 s: the number of reads is limited.
"""

import io

import numpy as np
from PIL import Image

from unseen.data.decode import FORMATS, jpeg_header
from unseen.data.heif import FORMATS as HEIF_FORMATS
from unseen.data.heif import is_heif

_READS = 10_000  # of a header; a photo needs a few dozen


class _Header(io.BytesIO):
    """Bytes that are read a limited number of times."""

    reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        if self.reads > _READS:
            raise ValueError("its header has too many parts")
        return super().read(size)


def size_of(encoded: bytes) -> tuple[int, int]:
    """Width and height as stored, before the orientation is applied.

    Raises ValueError for bytes that are not a picture of a supported format. A file with a valid header can
    still be damaged: decoding finds this.
    """
    header = jpeg_header(np.frombuffer(encoded, np.uint8))
    if header is not None:
        return header.width, header.height
    try:
        if is_heif(encoded):
            import pillow_heif  # loads libheif, which few photos need

            pillow_heif.register_heif_opener(thumbnails=False)
            with Image.open(_Header(encoded), formats=HEIF_FORMATS) as image:
                return image.size
        with Image.open(_Header(encoded), formats=FORMATS) as image:
            return image.size
    except Exception as error:  # any error of a parser: OSError, SyntaxError, struct.error, ...
        raise ValueError("it is none of the supported formats, or its header is damaged") from error
