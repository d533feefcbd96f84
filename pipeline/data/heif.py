"""HEIC, the format of phone cameras, -> PPM, which `decode` reads.

Pillow has no decoder for HEIC; pillow-heif adds that of libheif. It is separate from decode.py, which
training imports, because a HEIC file is converted once, when it is read.
"""

import io

from PIL import Image

from unseen.data.decode import MAX_PIXELS, WHITE

FORMATS = ("HEIF",)  # the only format that Pillow may open here
# Brands of HEVC images (ISO/IEC 23008-12, annex B). AVIF has others.
BRANDS = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx"))
GENERIC_BRANDS = frozenset((b"mif1", b"msf1"))


def is_heif(encoded: bytes) -> bool:
    """Whether the first box of a file names HEIC as its brand, or as a compatible one of a generic brand."""
    length, kind, brand = int.from_bytes(encoded[:4]), encoded[4:8], encoded[8:12]
    if kind != b"ftyp" or length > len(encoded):
        return False
    compatible = {encoded[start : start + 4] for start in range(16, length, 4)}
    return brand in BRANDS or (brand in GENERIC_BRANDS and bool(compatible & BRANDS))


def readable(encoded: bytes) -> bytes:
    """The bytes of a picture that `decode` reads: HEIC as PPM, other formats unchanged.

    libheif applies the orientation; transparent pixels are blended with white. Of several images the primary
    one is used. Raises ValueError for a damaged file and one with more than `MAX_PIXELS`.
    """
    if not is_heif(encoded):
        return encoded
    import pillow_heif  # loads libheif, which few runs need

    pillow_heif.register_heif_opener(thumbnails=False)
    try:
        with Image.open(io.BytesIO(encoded), formats=FORMATS) as image:
            width, height = image.size
            if width * height <= MAX_PIXELS:
                return _ppm(image)
    except Exception as error:  # any error of a parser: ValueError, OSError, RuntimeError, EOFError
        raise ValueError(f"damaged HEIC: {str(error).strip() or type(error).__name__}") from error
    raise ValueError(f"{width} x {height} pixels exceed the limit of {MAX_PIXELS:,}")


def _ppm(image: Image.Image) -> bytes:
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, WHITE), image)
    image = image if image.mode == "RGB" else image.convert("RGB")
    return b"P6 %d %d 255\n" % image.size + image.tobytes()
