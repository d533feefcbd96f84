"""Properties of JPEG headers and of decoding: any bytes are read or refused with ValueError."""

import io
import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image

from unseen.data.decode import MAX_PIXELS, Jpeg, decode, jpeg_header
from unseen.data.scratch import Scratch

pytestmark = pytest.mark.timeout(60)  # a hang is a failure
WIDTH, HEIGHT = 24, 20
MOST_PIXELS = 1 << 20  # of a picture that is decoded; a larger one takes long


def picture(mode: str = "RGB", **options: object) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, "JPEG", exif=exif, **options)
    return stream.getvalue()


JPEGS = (
    picture(),
    picture("L"),
    picture("CMYK"),
    picture(progressive=True),
    picture(subsampling=0, restart_marker_rows=1),
)
MARKERS = (0x00, 0x01, 0xC0, 0xC1, 0xC2, 0xC4, 0xCC, 0xD0, 0xD8, 0xD9, 0xDA, 0xDB, 0xE1, 0xFE, 0xFF)
STARTS = (b"", b"Exif\0\0", b"Exif\0\0II*\0", b"Exif\0\0MM\0*")
SEGMENTS = st.tuples(
    st.sampled_from(MARKERS),
    st.none() | st.integers(0, 0xFFFF),
    st.sampled_from(STARTS),
    st.binary(max_size=24),
)


def segment(marker: int, length: int | None, head: bytes, body: bytes) -> bytes:
    """A segment; length None is the right one."""
    content = head + body
    return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2 if length is None else length) + content


HEADERS = st.lists(SEGMENTS, max_size=6).map(
    lambda segments: b"\xff\xd8" + b"".join(segment(*parts) for parts in segments)
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid JPEG cut short, with bytes changed, removed or inserted."""
    content = bytearray(draw(st.sampled_from(JPEGS)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(content)))
        kind = draw(st.sampled_from(["cut", "change", "remove", "insert"]))
        if kind == "cut":
            del content[place:]
        elif kind == "remove":
            del content[place : place + draw(st.integers(1, 30))]
        else:
            value = draw(st.binary(min_size=1, max_size=4))
            content[place : place + (len(value) if kind == "change" else 0)] = value
    return bytes(content)


def octets(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)


def header_of(content: bytes) -> Jpeg | None:
    """The header; None for bytes that are refused or another format."""
    with suppress(ValueError):
        return jpeg_header(octets(content))
    return None


def decoded(content: bytes, scratch: Scratch | None = None) -> np.ndarray | None:
    """The pixels; None for bytes that are refused."""
    with suppress(ValueError):
        return decode(octets(content), scratch)
    return None


@pytest.mark.slow
@given(content=st.binary(max_size=64) | st.binary(max_size=64).map(b"\xff\xd8\xff".__add__) | HEADERS)
@settings(max_examples=300)
def test_any_header_is_read_or_refused(content: bytes) -> None:
    jpeg = header_of(content)
    if jpeg is not None:
        assert 0 < jpeg.width * jpeg.height <= MAX_PIXELS
        assert 1 <= jpeg.orientation <= 8
        assert content[jpeg.frame] == 0xFF
        assert 0xC0 <= content[jpeg.frame + 1] <= 0xCF


@pytest.mark.slow
@given(content=damaged() | HEADERS | st.binary(max_size=64))
@settings(max_examples=300)
def test_any_bytes_are_decoded_or_refused(content: bytes) -> None:
    jpeg = header_of(content)
    assume(jpeg is None or jpeg.width * jpeg.height <= MOST_PIXELS)
    pixels = decoded(content)
    with_scratch = decoded(content, Scratch())
    assert (pixels is None) == (with_scratch is None)
    if pixels is not None and with_scratch is not None:
        assert pixels.dtype == np.uint8
        assert pixels.flags.c_contiguous
        np.testing.assert_array_equal(pixels, with_scratch)
    if jpeg is not None and pixels is not None:
        upright = (jpeg.height, jpeg.width) if jpeg.orientation < 5 else (jpeg.width, jpeg.height)
        assert pixels.shape == (*upright, 3)
