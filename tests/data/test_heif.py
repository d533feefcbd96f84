"""HEIC files, written by pillow-heif: the pixels of Pillow, upright; damaged files are errors."""

import importlib.util
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.packages import require
from tests.photos import save_model
from unseen.data import heif
from unseen.data.decode import decode
from unseen.data.heif import is_heif, readable
from unseen.data.ingest.settings import FolderSource
from unseen.data.ingest.sources.folder import collection
from unseen.frozen.embedder import Embedder
from unseen.frozen.pictures import listed


def photo(mode: str = "RGB", **options: Any) -> tuple[bytes, Image.Image]:
    """A lossless HEIC file of a smooth picture of 40 x 24 pixels, and the picture."""
    require("", importlib.util.find_spec("pillow_heif"))
    import pillow_heif

    corners = np.random.default_rng(0).integers(0, 256, (4, 5, 4), np.uint8)
    image = Image.fromarray(corners, "RGBA").resize((40, 24), Image.Resampling.BICUBIC).convert(mode)
    pillow_heif.register_heif_opener()
    stream = io.BytesIO()
    image.save(stream, "HEIF", quality=-1, chroma=444, matrix_coefficients=0, **options)
    return stream.getvalue(), image


def pixels(encoded: bytes) -> np.ndarray:
    return decode(np.frombuffer(readable(encoded), np.uint8))


def test_reads_the_pixels_of_the_file() -> None:
    encoded, image = photo()
    assert is_heif(encoded)
    assert np.array_equal(pixels(encoded), np.asarray(image))


def test_applies_the_orientation_once() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    encoded, image = photo(exif=exif.tobytes())
    assert np.array_equal(pixels(encoded), np.rot90(np.asarray(image), -1))


def test_blends_transparent_pixels_with_white() -> None:
    encoded, image = photo("RGBA")
    expected = Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255, 255)), image)
    assert np.array_equal(pixels(encoded), np.asarray(expected.convert("RGB")))


def test_leaves_other_formats_unchanged() -> None:
    for form in ("JPEG", "AVIF", "PNG"):
        stream = io.BytesIO()
        Image.new("RGB", (16, 16)).save(stream, form)
        assert not is_heif(stream.getvalue())
        assert readable(stream.getvalue()) == stream.getvalue()
    assert not is_heif(b"")
    assert not is_heif(b"\0\0\0\x20ftypheic")


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_refuses_a_truncated_file(share: float) -> None:
    encoded, _ = photo()
    with pytest.raises(ValueError, match="damaged HEIC"):
        readable(encoded[: int(len(encoded) * share)])


def test_refuses_too_many_pixels_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, _ = photo()
    monkeypatch.setattr(heif, "MAX_PIXELS", 40 * 24 - 1)
    monkeypatch.setattr(Image.Image, "load", None)
    with pytest.raises(ValueError, match="40 x 24 pixels exceed the limit of 959"):
        readable(encoded)


def test_catalogs_and_folders_read_heic(tmp_path: Path) -> None:
    encoded, image = photo()
    (tmp_path / "photos/class").mkdir(parents=True)
    (tmp_path / "photos/class/phone.HEIC").write_bytes(encoded)
    (tmp_path / "photos/class/cut.heic").write_bytes(encoded[:-200])
    image.save(tmp_path / "same.png")
    pictures = listed(tmp_path / "photos", 1)
    assert pictures.paths == ["class/phone.HEIC"]
    assert pictures.damaged["class/cut.heic"].startswith("damaged HEIC")
    embedder = Embedder(save_model(tmp_path / "model", 1))
    first, second = embedder([tmp_path / "photos/class/phone.HEIC", tmp_path / "same.png"])
    assert np.array_equal(first, second)
    source = collection(FolderSource(path=str(tmp_path / "photos")))
    content = source.read("class/phone.HEIC")
    assert isinstance(content, bytes)
    assert np.array_equal(decode(np.frombuffer(content, np.uint8)), np.asarray(image))
