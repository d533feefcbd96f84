"""The check of a JPEG without a full decode refuses and accepts the same files as the decoder, and its first
rows equal those of the decoded picture."""

import io
from collections.abc import Callable

import numpy as np
import pytest
import simplejpeg
from jaxtyping import UInt8
from PIL import Image

from tests.data.ingest.pictures import encode, pixels
from unseen.data.decode import decode, jpeg_header
from unseen.data.ingest.completeness import RowReader, checked_rows, mode_of, require_complete

NOISE = np.random.default_rng(0).integers(-30, 30, (61, 75, 3))
PICTURE = np.clip(pixels(0, 75, 61) + NOISE, 0, 255).astype(np.uint8)
CMYK = io.BytesIO()
Image.fromarray(PICTURE).convert("CMYK").save(CMYK, "JPEG")
CHECKED = {
    "4:4:4": encode(PICTURE, subsampling=0),
    "4:2:2": encode(PICTURE, subsampling=1),
    "4:2:0": encode(PICTURE, subsampling=2, quality=80),
    "4:4:0": simplejpeg.encode_jpeg(PICTURE, 90, "RGB", "440", fastdct=False),
    "4:1:1": simplejpeg.encode_jpeg(PICTURE, 90, "RGB", "411", fastdct=False),
    "4:2:0, restart in a row": encode(PICTURE, subsampling=2, restart_marker_blocks=3),
    "4:2:0, restart after each row": encode(PICTURE, subsampling=2, restart_marker_rows=1),
    "RGB without conversion": encode(PICTURE, keep_rgb=True),
    "grey": encode(PICTURE[..., 0].copy()),
    "one row": encode(PICTURE[:1]),
    "one column": encode(PICTURE[:, :1].copy()),
    "white above": encode(np.concatenate([np.full((40, 75, 3), 255, np.uint8), PICTURE[:21]])),
}
DECODED = {
    "progressive": encode(PICTURE, progressive=True),
    "grey, progressive": encode(PICTURE[..., 0].copy(), progressive=True),
    "CMYK": CMYK.getvalue(),
}


def rows_of(octets: UInt8[np.ndarray, "bytes"]) -> RowReader | None:
    """The row reader of a JPEG whose orientation is 1, if it has one."""
    header = jpeg_header(octets)
    return checked_rows(octets, header) if header and header.orientation == 1 else None


def test_first_rows_equal_those_of_the_decoded_picture() -> None:
    for kind, encoded in CHECKED.items():
        octets = np.frombuffer(encoded, np.uint8)
        picture, rows = decode(octets), rows_of(octets)
        assert rows is not None, kind
        for count in range(1, len(picture) + 1):
            assert np.array_equal(rows(count), picture[:count]), (kind, count)


@pytest.mark.parametrize("kind", DECODED)
def test_returns_none_for_kinds_that_need_a_full_decode(kind: str) -> None:
    assert rows_of(np.frombuffer(DECODED[kind], np.uint8)) is None


def test_returns_none_for_scans_of_one_component() -> None:
    octets = np.frombuffer(CHECKED["4:4:4"], np.uint8).copy()
    assert rows_of(octets) is not None
    octets[CHECKED["4:4:4"].index(b"\xff\xda") + 4] = 1
    assert rows_of(octets) is None


@pytest.mark.parametrize(
    ("kind", "mode"), [("grey", "L"), ("4:2:0", "RGB"), ("CMYK", "CMYK"), ("progressive", "RGB")]
)
def test_modes_equal_those_of_pillow(kind: str, mode: str) -> None:
    encoded = np.frombuffer((CHECKED | DECODED)[kind], np.uint8)
    header = jpeg_header(encoded)
    assert header is not None
    assert mode_of(encoded, header) == mode == Image.open(io.BytesIO(encoded.data)).mode


def damaged(encoded: bytes, how: str, generator: np.random.Generator) -> bytes:
    octets = bytearray(encoded)
    scan = encoded.index(b"\xff\xda")
    position = int(generator.integers(scan, len(octets)))
    match how:
        case "cut":
            return encoded[:position]
        case "cut, with an end":
            return encoded[:position] + b"\xff\xd9"
        case "bits flipped":
            for _ in range(int(generator.integers(1, 4))):
                octets[int(generator.integers(scan, len(octets)))] ^= 1 << int(generator.integers(8))
        case "bytes lost":
            del octets[position : position + int(generator.integers(1, 9))]
        case "bytes added":
            octets[position:position] = generator.bytes(int(generator.integers(1, 9)))
        case "zeros":
            octets[position : position + 20] = bytes(20)
        case "marker":
            octets[position : position + 2] = bytes([255, int(generator.integers(256))])
        case "header":
            octets[int(generator.integers(2, scan + 12))] = int(generator.integers(256))
        case "tail":
            octets += generator.bytes(30)
    return bytes(octets)


def result_of(
    function: Callable[[UInt8[np.ndarray, "bytes"]], object], octets: np.ndarray
) -> tuple[str | None, object]:
    try:
        return None, function(octets)
    except ValueError as error:
        return str(error), None


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    "how",
    [
        *("cut", "cut, with an end", "bits flipped", "bytes lost", "bytes added"),
        *("zeros", "marker", "header", "tail"),
    ],
)
def test_refuses_the_same_damaged_files_as_the_decoder_with_the_same_message(how: str) -> None:
    generator = np.random.default_rng(0)
    refused = accepted = 0
    for kind, encoded in CHECKED.items():
        for _ in range(40):
            octets = np.frombuffer(damaged(encoded, how, generator), np.uint8)
            expected, picture = result_of(decode, octets)
            reason, rows = result_of(rows_of, octets)
            if reason is None and rows is None:  # the file needs a full decode
                continue
            assert reason == expected, kind
            if rows is None:
                refused += 1
            else:
                assert np.array_equal(rows(6), picture[:6]), kind
                accepted += 1
    assert refused > 30 or how == "tail"
    assert accepted > 30 or how in ("cut", "cut, with an end", "marker")


@pytest.mark.parametrize("kind", [*CHECKED, *DECODED, "PNG", "turned"])
def test_require_complete_refuses_what_decode_refuses(kind: str) -> None:
    others = {"PNG": encode(PICTURE, "PNG"), "turned": encode(PICTURE, orientation=6)}
    octets = np.frombuffer((CHECKED | DECODED | others)[kind], np.uint8)
    require_complete(octets)
    for size in (len(octets) - 30, len(octets) // 2, 12):
        reason, _ = result_of(require_complete, octets[:size])
        assert reason is not None
        assert reason == result_of(decode, octets[:size])[0]
