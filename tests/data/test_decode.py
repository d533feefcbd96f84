"""Decoding equals Pillow wherever Pillow is right, applies the orientation, and refuses incomplete files."""

import ast
import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
from PIL import EpsImagePlugin, Image, ImageFile, ImageOps

from unseen.data import decode as module
from unseen.data.decode import FORMATS, decode
from unseen.data.ingest.sources.folder import HEIC, SUFFIXES

Picture = Callable[..., np.ndarray]
Encoded = Callable[..., np.ndarray]


def octets(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def by_pillow(encoded: np.ndarray) -> np.ndarray:
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(encoded.tobytes()))).convert("RGB"))


def with_segment(jpeg: np.ndarray, payload: bytes) -> np.ndarray:
    """`jpeg` with an APP1 segment after its start marker."""
    return octets(
        jpeg.tobytes()[:2] + b"\xff\xe1" + struct.pack(">H", len(payload) + 2) + payload + jpeg.tobytes()[2:]
    )


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("RGB", {}),
        ("RGB", {"progressive": True}),
        ("RGB", {"subsampling": 0}),
        ("RGB", {"subsampling": 1}),
        ("RGB", {"keep_rgb": True}),
        ("RGB", {"restart_marker_rows": 1}),
        ("L", {}),
        ("L", {"progressive": True}),
    ],
)
def test_jpeg_is_bit_identical_to_pillow(
    picture: Picture, encoded: Encoded, mode: str, options: dict[str, object]
) -> None:
    jpeg = encoded(Image.fromarray(picture(101, 75)).convert(mode), "JPEG", **options)
    decoded = decode(jpeg)
    assert decoded.dtype == np.uint8
    assert decoded.flags.c_contiguous
    np.testing.assert_array_equal(decoded, by_pillow(jpeg))


def test_cmyk_and_ycck_jpeg(picture: Picture, encoded: Encoded) -> None:
    inks = np.dstack([picture(60, 40), picture(60, 40, 1)[:, :, 0]])
    cmyk = encoded(Image.fromarray(picture(60, 40)).convert("CMYK"))
    ycck = octets(simplejpeg.encode_jpeg(inks, quality=95, colorspace="CMYK"))
    assert simplejpeg.decode_jpeg_header(ycck)[2] == "YCCK"
    for jpeg in (cmyk, ycck):
        # two roundings of the same product
        assert np.abs(decode(jpeg).astype(int) - by_pillow(jpeg)).max() <= 2


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "AVIF", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(picture: Picture, encoded: Encoded, form: str, orientation: int) -> None:
    upright = picture(50, 30)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 100, "subsampling": 0}}.get(form, {})
    stored = encoded(Image.fromarray(upright), form, exif=exif, **options)
    decoded = decode(stored)
    np.testing.assert_array_equal(decoded, by_pillow(stored))
    assert decoded.flags.c_contiguous
    assert decoded.shape[:2] == ((30, 50) if orientation < 5 else (50, 30))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("kind", "form"), [(3, "HH"), (4, "I")])
def test_exif_byte_orders_and_types(
    picture: Picture, encoded: Encoded, order: str, kind: int, form: str
) -> None:
    head = (
        (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8) + struct.pack(order + "H", 2)
    )
    value = struct.pack(order + form, *((6, 0) if form == "HH" else (6,)))
    entries = (
        struct.pack(order + "HHII", 0x0100, 4, 1, 50) + struct.pack(order + "HHI", 0x0112, kind, 1) + value
    )
    jpeg = with_segment(
        encoded(Image.fromarray(picture(50, 30))), b"Exif\0\0" + head + entries + struct.pack(order + "I", 0)
    )
    np.testing.assert_array_equal(decode(jpeg), by_pillow(jpeg))
    assert decode(jpeg).shape == (50, 30, 3)


@pytest.mark.parametrize(
    "payload",
    [
        b"Exif\0\0",
        b"Exif\0\0XX*\0",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0II*\0\x08\0\0\0\xff\xff",
        b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x63\0\0\0",
    ],
)
def test_malformed_exif_leaves_the_picture_as_stored(
    picture: Picture, encoded: Encoded, payload: bytes
) -> None:
    without_exif = encoded(Image.fromarray(picture(50, 30)))
    np.testing.assert_array_equal(decode(with_segment(without_exif, payload)), decode(without_exif))


def test_applies_xmp_orientation_without_exif_orientation(picture: Picture, encoded: Encoded) -> None:
    without_exif = encoded(Image.fromarray(picture(50, 30)))
    xmp = b'http://ns.adobe.com/xap/1.0/\0<x:xmpmeta><rdf:Description tiff:Orientation="8"/></x:xmpmeta>'
    exif = b"Exif\0\0" + b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x03\0\0\0\0\0\0\0"
    for jpeg, shape in (
        (with_segment(without_exif, xmp), (50, 30, 3)),
        (with_segment(with_segment(without_exif, exif), xmp), (30, 50, 3)),
    ):
        assert decode(jpeg).shape == shape
        np.testing.assert_array_equal(decode(jpeg), by_pillow(jpeg))


@pytest.mark.parametrize(
    ("form", "mode"),
    [
        ("PNG", "1"),
        ("PNG", "L"),
        ("PNG", "P"),
        ("GIF", "P"),
        ("BMP", "RGB"),
        ("TIFF", "CMYK"),
        ("PPM", "RGB"),
    ],
)
def test_other_formats_equal_pillow(picture: Picture, encoded: Encoded, form: str, mode: str) -> None:
    stored = encoded(Image.fromarray(picture(33, 21)).convert(mode), form)
    np.testing.assert_array_equal(decode(stored), by_pillow(stored))


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_is_composited_on_white(picture: Picture, encoded: Encoded, mode: str) -> None:
    opaque = Image.fromarray(picture(40, 30)).convert(mode[:-1])
    alpha = np.zeros((30, 40), np.uint8)
    alpha[:10], alpha[10:20] = 255, 128
    opaque.putalpha(Image.fromarray(alpha))
    decoded = decode(encoded(opaque, "PNG")).astype(int)
    color = np.asarray(opaque.convert("RGB")).astype(int)
    np.testing.assert_array_equal(decoded[:10], color[:10])
    assert np.abs(decoded[10:20] - (color[10:20] * 128 + 255 * 127) / 255).max() <= 1
    assert (decoded[20:] == 255).all()


def test_transparent_colours_of_palette_rgb_and_16_bit_images(encoded: Encoded) -> None:
    palette = Image.new("P", (4, 2))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putdata([0, 1] * 4)
    for options in ({"transparency": 0}, {"transparency": b"\0\xff"}):
        decoded = decode(encoded(palette, "PNG", **options))
        assert decoded[0, :2].tolist() == [[255, 255, 255], [40, 50, 60]]
    assert decode(encoded(palette, "GIF", transparency=0))[0, 0].tolist() == [255, 255, 255]
    rgb = Image.fromarray(np.uint8([[[1, 2, 3], [4, 5, 6]]]))
    assert decode(encoded(rgb, "PNG", transparency=(1, 2, 3)))[0].tolist() == [[255, 255, 255], [4, 5, 6]]
    deep = Image.fromarray(np.uint16([[0x1234, 0xFF00]]))
    assert decode(encoded(deep, "PNG", transparency=0x1234))[0].tolist() == [[255] * 3, [255] * 3]


def test_16_bit_keeps_the_high_byte(encoded: Encoded) -> None:
    values = np.uint16([[0, 255, 256, 0x7FFF], [0x8000, 0xABCD, 0xFF00, 0xFFFF]])
    for form in ("PNG", "TIFF", "PPM"):
        decoded = decode(encoded(Image.fromarray(values), form))
        np.testing.assert_array_equal(
            decoded, np.repeat((values >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
        )


def test_refuses_pixels_without_a_defined_range(encoded: Encoded) -> None:
    with pytest.raises(ValueError, match="floating-point"):
        decode(encoded(Image.fromarray(np.float32([[0.5, 2.0]])), "TIFF"))
    with pytest.raises(ValueError, match="from -5 to 70000"):
        decode(encoded(Image.fromarray(np.int32([[-5, 70000]])), "TIFF"))


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9, 0.99, 1.0])
@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("PNG", {}),
        ("GIF", {}),
        ("BMP", {}),
        ("TIFF", {}),
        ("WEBP", {"lossless": True}),
        ("AVIF", {}),
        ("PPM", {}),
    ],
)
def test_refuses_truncated_files(
    picture: Picture, encoded: Encoded, form: str, options: dict[str, object], share: float
) -> None:
    stored = encoded(Image.fromarray(picture(90, 80)), form, **options)
    # the pixel data of these formats end before the file
    tail = {"PNG": 24, "GIF": 16, "BMP": 4}.get(form, 1)
    with pytest.raises(ValueError, match=r"\w"):
        decode(stored[: min(int(share * len(stored)), len(stored) - tail)])


def test_refuses_damaged_jpeg_data(picture: Picture, encoded: Encoded) -> None:
    """libjpeg only warns of such data and fills the picture with grey."""
    stored = encoded(Image.fromarray(picture(200, 150)))
    scan = stored.tobytes().index(b"\xff\xda") + 14
    for position in np.linspace(scan, len(stored) - 40, 12).astype(int):
        damaged = stored.copy()
        damaged[position : position + 4] = (0xFF, 0xD9, 0xFF, 0xD9)  # an early end
        with pytest.raises(ValueError, match=r"(?i)premature|corrupt"):
            decode(damaged)
    out_of_step = stored.tobytes()[:-2] + bytes(40) + stored.tobytes()[-2:]
    with pytest.raises(ValueError, match="extraneous bytes"):
        decode(octets(out_of_step))


def test_accepts_harmless_irregularities(picture: Picture, encoded: Encoded) -> None:
    stored = encoded(Image.fromarray(picture(50, 30))).tobytes()
    for variant in (
        stored + b"trailing",
        stored[:-2] + bytes(12) + stored[-2:],
        stored[:2] + b"\xff\xff" + stored[2:],
    ):
        np.testing.assert_array_equal(decode(octets(variant)), decode(octets(stored)))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no image format"),
        (b"plain text, no picture", "no image format"),
        (b"\xff\xd8\xff\xd9\0\0", "without a frame"),
        (b"\xff\xd8\xff\xe0", "truncated"),
        (b"\xff\xd8\xff\xe0\0\x04ab????", "corrupt JPEG header at byte 8"),
        (b"\xff\xd8\xff\xc0\0\x0b\x08\0\0\0\x05\x01\x01\x11\0", "size of 5 x 0"),
        (b"\xff\xd8\xff\xc0\0\x0b\x08\xff\xff\xff\xff\x01\x01\x11\0", "exceed the limit of"),
    ],
)
def test_refuses_files_that_are_no_image(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode(octets(data))


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"


def test_postscript_does_not_start_ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ghostscript = tmp_path / "gs"
    ghostscript.write_text(f"#!/bin/sh\ntouch '{tmp_path}/started'\n")
    ghostscript.chmod(0o755)
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", str(ghostscript))
    with pytest.raises(ValueError, match=r"no image format that is read \(JPEG, PNG, "):
        decode(octets(POSTSCRIPT))
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("form", ["TGA", "ICO", "PCX", "JPEG2000"])
def test_refuses_a_format_outside_the_list(picture: Picture, encoded: Encoded, form: str) -> None:
    with pytest.raises(ValueError, match="no image format that is read"):
        decode(encoded(Image.fromarray(picture(32, 32)), form))


@pytest.mark.parametrize("suffix", sorted(SUFFIXES - {*HEIC}))
def test_a_format_of_every_suffix_is_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"image{suffix}"
    Image.new("1", (9, 7), 1).convert("L" if suffix != ".pbm" else "1").save(path)
    assert decode(octets(path.read_bytes())).shape == (7, 9, 3)


@pytest.mark.slow
def test_every_image_is_opened_with_the_list_of_formats() -> None:
    """`Image.open` without `formats` tries all formats of Pillow."""
    root = Path(__file__).parents[2]
    calls = 0
    for path in (
        path
        for folder in ("pipeline", "stages", "unseen_search", "benchmarks")
        for path in (root / folder).rglob("*.py")
    ):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Image.open":
                calls += 1
                formats = [ast.unparse(word.value) for word in node.keywords if word.arg == "formats"]
                assert formats in (["FORMATS"], ["HEIF_FORMATS"]), f"{path}:{node.lineno}"
    assert calls >= 2
    assert FORMATS == ("JPEG", "PNG", "WEBP", "AVIF", "BMP", "GIF", "TIFF", "PPM")


def test_refuses_a_huge_image_of_another_format_before_decoding(
    encoded: Encoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_PIXELS", 99)
    with pytest.raises(ValueError, match="10 x 10 pixels exceed"):
        decode(encoded(Image.new("L", (10, 10)), "PNG"))


def tiff(values: np.ndarray, **options: Any) -> np.ndarray:
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "TIFF", **options)
    return octets(buffer.getvalue())


def test_a_grey_tiff_of_many_bits_is_read_as_a_viewer_shows_it() -> None:
    values = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    assert (decode(tiff(values, tiffinfo={262: 0}))[:, :, 0] == 255 - (values >> 8)).all()
    odd, even = values.reshape(-1, 2).T >> 4  # 12 bits: two values in three bytes
    packed = np.stack([odd >> 4, (odd & 15) << 4 | even >> 8, even & 255], axis=1).astype(np.uint8).tobytes()
    tags = {256: 8, 257: 8, 258: 12, 259: 1, 262: 1, 273: 130, 277: 1, 278: 8, 279: len(packed)}
    entries = b"".join(
        struct.pack("<HHII", tag, 4 if value > 8 else 3, 1, value) for tag, value in tags.items()
    )
    header = struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + entries
    file = octets(header.ljust(tags[273], b"\0") + packed)
    assert (decode(file)[:, :, 0] == values >> 8).all()


def test_a_damaged_png_is_refused() -> None:
    buffer = io.BytesIO()
    squares = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    Image.fromarray(np.kron(squares, np.ones((8, 8, 1), np.uint8))).save(buffer, "PNG")
    file = octets(buffer.getvalue())
    for place in range(40, len(file) - 24, 40):  # Pillow decodes some of them
        damaged = file.copy()
        damaged[place : place + 8] ^= 0x5A
        with pytest.raises(ValueError, match=r"\w"):
            decode(damaged)


@pytest.mark.parametrize("compression", ["tiff_adobe_deflate", "tiff_deflate"])
def test_a_damaged_deflate_tiff_is_refused(compression: str, picture: Picture) -> None:
    file = tiff(picture(48, 64), compression=compression)
    assert decode(file).shape[2] == 3
    for place in np.linspace(40, len(file) * 3 // 4, 12).astype(int):
        damaged = file.copy()
        damaged[place : place + 8] ^= 0x5A
        with pytest.raises(ValueError, match=r"\w"):
            decode(damaged)


@pytest.mark.parametrize("form", ["PNG", "GIF", "BMP", "PPM", "TIFF"])
def test_a_truncated_file_is_refused_whatever_the_caller_accepts(
    form: str, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = io.BytesIO()
    Image.fromarray(picture(48, 64)).save(buffer, form)
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(ValueError, match=r"\w"):
        decode(octets(buffer.getvalue()[: len(buffer.getvalue()) // 3]))
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "LA", "1"])
def test_bands_of_a_large_picture_are_converted_as_a_whole_one(
    picture: Picture, encoded: Encoded, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = encoded(Image.fromarray(picture(40, 30)).convert(mode), "PNG")
    whole = decode(content)
    monkeypatch.setattr(module, "_BAND", 7 * whole.shape[1])
    np.testing.assert_array_equal(decode(content), whole)
