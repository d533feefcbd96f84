"""The size of a picture from its header, before any pixel is decoded.

A file of a few kilobytes can have 178 million pixels, whose decoding takes seconds and 0.5 GB.
"""

import io

import numpy as np
from PIL import Image

from unseen.data.decode import FORMATS, jpeg_header
from unseen.data.heif import FORMATS as HEIF_FORMATS
from unseen.data.heif import is_heif


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
            with Image.open(io.BytesIO(encoded), formats=HEIF_FORMATS) as image:
                return image.size
        with Image.open(io.BytesIO(encoded), formats=FORMATS) as image:
            return image.size
    except Exception as error:  # any error of a parser: OSError, SyntaxError, struct.error, ...
        raise ValueError("it is none of the supported formats, or its header is damaged") from error
