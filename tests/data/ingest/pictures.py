"""Small image files for the tests of ingest."""

import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image


def pixels(seed: int, width: int = 40, height: int = 30) -> np.ndarray:
    """A smooth random picture, which JPEG changes only slightly."""
    generator = np.random.default_rng(seed)
    coarse = Image.fromarray(generator.integers(0, 256, (4, 4, 3), np.uint8))
    return np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))


def encode(array: np.ndarray, kind: str = "JPEG", orientation: int | None = None, **options: object) -> bytes:
    stream = io.BytesIO()
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    defaults = {"quality": 95} if kind == "JPEG" else {}
    Image.fromarray(array).save(stream, kind, exif=exif, **defaults | options)
    return stream.getvalue()


def folder(root: Path, classes: int = 4, images: int = 3) -> Path:
    """`classes` directories c0, c1, ... with `images` different JPEG files each."""
    for c in range(classes):
        (root / f"c{c}").mkdir(parents=True, exist_ok=True)
        for image in range(images):
            (root / f"c{c}" / f"{image}.jpg").write_bytes(encode(pixels(100 * c + image)))
    return root


def pack(root: Path, archive: Path, prefix: str = "") -> Path:
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(root.rglob("*"), reverse=True):
            if path.is_file():
                file.write(path, prefix + path.relative_to(root).as_posix())
    return archive
