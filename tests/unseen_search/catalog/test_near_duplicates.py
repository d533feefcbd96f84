"""Near-duplicates: copies in another size, quality or format are one group; other pictures are not."""

import io
import os
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.photos import age, save_model
from unseen.cli import main as cli
from unseen_search.catalog import Catalog, build
from unseen_search.catalog.duplicates import DIFFERENCE, duplicates
from unseen_search.indexing import write_catalog


def picture(seed: int, form: str) -> bytes:
    """A smooth picture, as photos are at 32 x 32 pixels."""
    corners = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(corners).resize((96, 80), Image.Resampling.BICUBIC).save(stream, form)
    return stream.getvalue()


def copied(source: bytes, form: str, scale: float = 1.0, **options: int) -> bytes:
    image = Image.open(io.BytesIO(source))
    size = (round(image.width * scale), round(image.height * scale))
    stream = io.BytesIO()
    image.resize(size, Image.Resampling.BICUBIC).save(stream, form, **options)
    return stream.getvalue()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "a").mkdir(parents=True)
    (folder / "b").mkdir()
    for number in range(6):
        (folder / f"a/{number}.png").write_bytes(picture(number, "PNG"))
    first = picture(0, "PNG")
    (folder / "b/bytes.png").write_bytes(first)
    (folder / "b/format.webp").write_bytes(copied(first, "WEBP", quality=90))
    (folder / "a/half.png").write_bytes(copied(first, "PNG", 0.5))
    (folder / "a/quality.jpg").write_bytes(copied(picture(1, "PNG"), "JPEG", quality=40))
    return folder


def test_groups_copies_in_other_sizes_qualities_and_formats(photos: Path, tmp_path: Path) -> None:
    catalog = build(
        photos, tmp_path / "catalog", save_model(tmp_path / "model", 1), labels="folders", processes=1
    )
    groups, unread = duplicates(catalog, similarity=-1.0)
    names = [[copy.path for copy in group.pictures] for group in groups]
    assert names == [["a/0.png", "a/half.png", "b/bytes.png", "b/format.webp"], ["a/1.png", "a/quality.jpg"]]
    assert [group.contradictory for group in groups] == [True, False]
    assert unread == []
    differences = {copy.path: copy.difference for group in groups for copy in group.pictures}
    assert differences["b/bytes.png"] == 0
    assert all(value is not None and 0 <= value <= DIFFERENCE for value in differences.values())
    first, copy = (
        cv2.resize(cv2.imread(str(photos / name)), (32, 32), interpolation=cv2.INTER_AREA).astype(float)
        for name in ("a/1.png", "a/quality.jpg")
    )
    assert differences["a/quality.jpg"] == pytest.approx(np.sqrt(((first - copy) ** 2).mean()), rel=1e-5)
    assert duplicates(catalog, similarity=1.01).groups == []
    equal = duplicates(catalog, similarity=-1.0, difference=0.0).groups
    assert [[copy.path for copy in group.pictures] for group in equal] == [["a/0.png", "b/bytes.png"]]


def test_reports_pictures_that_cannot_be_compared(photos: Path, tmp_path: Path) -> None:
    build(photos, tmp_path / "catalog", save_model(tmp_path / "model", 1), processes=1)
    (photos / "a/quality.jpg").unlink()
    groups, unread = duplicates(Catalog(tmp_path / "catalog"), similarity=-1.0)
    assert unread == ["a/quality.jpg"]
    assert len(groups) == 1


def test_the_command_states_pictures_that_cannot_be_compared(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    age(photos, 3600)
    damaged, html = photos / "b/bytes.png", tmp_path / "copies.html"
    build(photos, tmp_path / "catalog", save_model(tmp_path / "model", 1), processes=1)
    before = damaged.stat()
    damaged.write_bytes(bytes(before.st_size))
    os.utime(damaged, ns=(before.st_atime_ns, before.st_mtime_ns))
    write_catalog(photos, tmp_path / "catalog", None, None, None, False, html, workers=1, onnx=False)
    printed = capsys.readouterr().out
    assert printed.endswith("\n1 files are missing and could not be compared, first b/bytes.png\n")


@pytest.mark.slow
def test_the_command_prints_groups_and_writes_a_page(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, html = save_model(tmp_path / "model", 1), tmp_path / "copies.html"
    arguments = [
        "index",
        str(photos),
        str(tmp_path / "catalog"),
        "--model",
        str(model),
        "--labels",
        "folders",
    ]
    cli.main([*arguments, "--duplicates", str(html)])
    lines = capsys.readouterr().out.splitlines()
    groups = lines.index("2 groups of near-duplicates with 6 pictures")
    assert lines[groups + 1] == "  a/0.png, a/half.png, b/bytes.png, b/format.webp  (different labels)"
    text = html.read_text(encoding="utf-8")
    assert text.count("<img") == 6
    assert "with different labels" in text
    assert "http" not in text


def test_differing_pictures_of_one_vector_are_no_group(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(2):
        pixels = np.full((40, 40, 3), 100 + 20 * number, np.uint8)
        pixels[::2] += 50
        Image.fromarray(pixels).save(tmp_path / f"photos/{number}.png")
    catalog = build(tmp_path / "photos", tmp_path / "catalog", save_model(tmp_path / "model", 1), processes=1)
    assert duplicates(catalog, similarity=-1.0).groups == []
