"""Ingest of a folder: images that are stored unchanged, changed or refused, and shards that depend only on
the pictures."""

import errno
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.data.ingest.pictures import encode, folder, pixels
from unseen.data import shard_writer
from unseen.data.decode import decode
from unseen.data.ingest import workers
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import FolderSource, IngestSettings
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError


def run(
    root: Path, output: Path, processes: int | None = 1, source: dict[str, Any] | None = None, **settings: Any
) -> dict[str, Any]:
    return ingest(
        FolderSource(path=str(root), **source or {}), IngestSettings(**settings), output, "mine", processes
    )


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def psnr(first: np.ndarray, second: np.ndarray) -> float:
    return float(10 * np.log10(255**2 / np.mean((first.astype(float) - second) ** 2)))


def test_stores_jpeg_files_unchanged_and_numbers_labels_by_name(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw")
    manifest = run(root, tmp_path / "out", source={"order": "name"})
    shards = Shards(tmp_path / "out", verify=True)
    assert shards.class_names == ["c0", "c1", "c2", "c3"]
    assert shards.sources == [f"c{c}/{i}.jpg" for c in range(4) for i in range(3)]
    assert shards.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert shards.splits.tolist() == ["train"] * 6 + ["test"] * 6
    assert shards.sizes.tolist() == [[40, 30]] * 12
    for row, source in enumerate(shards.sources):
        assert shards.image(row).tobytes() == (root / source).read_bytes()
    assert manifest["counts"] == {"train": {"images": 6, "classes": 2}, "test": {"images": 6, "classes": 2}}
    assert manifest["ingest"]["formats"] == {"JPEG RGB": 12}
    assert manifest["ingest"]["upright"] == manifest["ingest"]["resized"] == 0
    assert manifest == json.loads((tmp_path / "out" / "manifest.json").read_text())


def test_train_classes_have_the_first_labels(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw", classes=8, images=2)
    run(root, tmp_path / "out", source={"seed": 3})
    shards = Shards(tmp_path / "out")
    assert sorted(shards.class_names) == [f"c{c}" for c in range(8)]
    assert shards.class_names[:4] == sorted(shards.class_names[:4])
    assert shards.class_names[4:] == sorted(shards.class_names[4:])
    assert shards.class_names != sorted(shards.class_names), "this seed mixes names between the splits"
    assert set(shards.labels[shards.rows("train")]) == {0, 1, 2, 3}
    assert [source.split("/")[0] for source in shards.sources] == [
        shards.class_names[label] for label in shards.labels
    ]


@pytest.mark.slow
def test_bytes_are_equal_for_any_file_order_and_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = folder(tmp_path / "a", classes=6, images=7)
    copy = tmp_path / "b"
    for path in sorted(root.rglob("*.jpg"), reverse=True):
        (copy / path.parent.name).mkdir(parents=True, exist_ok=True)
        (copy / path.parent.name / path.name).write_bytes(path.read_bytes())
    run(root, tmp_path / "first", resize=24)
    walk = os.walk

    def reversed_walk(top: Any, **options: Any) -> Iterator[tuple[str, list[str], list[str]]]:
        for directory, folders, files in walk(top, **options):
            yield directory, folders, files[::-1]

    monkeypatch.setattr(os, "walk", reversed_walk)
    monkeypatch.setattr(workers, "CHUNK", 4)
    run(copy, tmp_path / "second", processes=2, resize=24)
    assert content(tmp_path / "first") == content(tmp_path / "second")


def test_shrinks_by_area_averaging_and_never_enlarges(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw")
    large, small = pixels(1, 90, 60), pixels(2, 15, 50)
    (root / "c0" / "large.jpg").write_bytes(encode(large))
    (root / "c0" / "large.png").write_bytes(encode(large, "PNG"))
    (root / "c0" / "small.png").write_bytes(encode(small, "PNG"))
    manifest = run(root, tmp_path / "out", resize=20, quality=90)
    shards = Shards(tmp_path / "out")
    rows = {source: row for row, source in enumerate(shards.sources)}
    assert shards.sizes[rows["c0/large.jpg"]].tolist() == [30, 20]
    stored = shards.image(rows["c0/large.png"])
    assert stored[:3].tobytes() == b"\xff\xd8\xff", "shrunk images are stored as JPEG"
    expected = cv2.resize(large, (30, 20), interpolation=cv2.INTER_AREA)
    assert psnr(decode(stored), expected) > 35
    assert shards.image(rows["c0/small.png"]).tobytes() == (root / "c0" / "small.png").read_bytes()
    assert manifest["ingest"]["resize"] == 20
    assert manifest["ingest"]["quality"] == 90
    assert manifest["ingest"]["resized"] == 14
    assert manifest["ingest"]["formats"] == {"JPEG RGB": 13, "PNG RGB": 2}


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize(
    ("orientation", "stored"),
    [(3, lambda a: a[::-1, ::-1]), (6, lambda a: np.rot90(a, 1)), (8, lambda a: np.rot90(a, -1))],
)
def test_stores_rotated_images_upright(tmp_path: Path, kind: str, orientation: int, stored: Any) -> None:
    root = folder(tmp_path / "raw")
    picture = pixels(7, 50, 32)
    file = encode(np.ascontiguousarray(stored(picture)), kind, orientation)
    (root / "c1" / f"turned.{kind.lower()}").write_bytes(file)
    manifest = run(root, tmp_path / "out")
    shards = Shards(tmp_path / "out")
    row = shards.sources.index(f"c1/turned.{kind.lower()}")
    assert shards.sizes[row].tolist() == [50, 32]
    image = Image.open(io.BytesIO(shards.image(row).tobytes()))
    assert image.format == kind
    assert 0x0112 not in image.getexif()
    if kind == "PNG":
        assert np.array_equal(np.asarray(image), picture)
    else:
        assert psnr(np.asarray(image), picture) > 35
    assert manifest["ingest"]["upright"] == 1


def test_stores_other_formats_unchanged(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw")
    ink = pixels(3)[..., 0] > 128
    (root / "c0" / "ink.png").write_bytes(encode(ink, "PNG"))
    (root / "c0" / "grey.jpg").write_bytes(encode(pixels(4)[..., 0]))
    (root / "c0" / "notes.txt").write_text("no image")
    (root / "c0" / ".DS_Store").write_text("hidden")
    manifest = run(root, tmp_path / "out")
    shards = Shards(tmp_path / "out")
    decoded = decode(shards.image(shards.sources.index("c0/ink.png")))
    assert np.array_equal(decoded, np.repeat(ink[..., None] * np.uint8(255), 3, axis=2))
    assert manifest["ingest"]["formats"] == {"JPEG L": 1, "JPEG RGB": 12, "PNG 1": 1}
    assert manifest["other_files"] == {".txt": 1}


def test_counts_duplicates_within_and_across_classes(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw")
    picture = pixels(50)
    (root / "c0" / "x.png").write_bytes(encode(picture, "PNG"))
    (root / "c0" / "y.bmp").write_bytes(encode(picture, "BMP"))  # same pixels in another file
    (root / "c1" / "z.png").write_bytes(encode(picture, "PNG", compress_level=1))
    (root / "c3" / "copy.jpg").write_bytes((root / "c1" / "1.jpg").read_bytes())
    manifest = run(root, tmp_path / "out", source={"order": "name"})
    assert manifest["duplicates"] == {
        "images": 3,
        "across_classes": 2,
        "across_splits": 1,
        "pairs": [["c0/x.png", "c1/z.png"], ["c1/1.jpg", "c3/copy.jpg"], ["c0/x.png", "c0/y.bmp"]],
    }


DAMAGE = {
    "truncated": encode(pixels(9, 200, 150))[:-400],
    "corrupt": b"\xff\xd8\xff" + bytes(500),
    "truncated.png": encode(np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8), "PNG")[:3000],
    "no image at all": b"hello",
    "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n",
    "empty": b"",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_image_stops_the_run_without_output(tmp_path: Path, damage: str) -> None:
    root = folder(tmp_path / "raw")
    (root / "c2" / "1.jpg").write_bytes(DAMAGE[damage])
    expected = (
        r"(?s)raw: c2/1\.jpg is not a complete image: .+Replace or remove that file.*"
        r"ingest\.on_error: skip"
    )
    with pytest.raises(UserError, match=expected):
        run(root, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_skips_and_lists_damaged_images(tmp_path: Path, processes: int) -> None:
    root = folder(tmp_path / "raw", classes=5)
    damages = ("truncated", "empty", "corrupt", "PostScript")
    names = ("c0/1.jpg", "c1/0.jpg", "c1/1.jpg", "c1/2.jpg")
    for name, damage in zip(names, damages, strict=True):
        (root / name).write_bytes(DAMAGE[damage])
    source = {"order": "name", "test_share": 0.4}
    manifest = run(root, tmp_path / "out", processes, source, on_error="skip")
    assert manifest["ingest"]["skipped_images"] == 4
    assert [entry["source"] for entry in manifest["ingest"]["skipped"]] == list(names)
    assert all(entry["reason"] and "0x" not in entry["reason"] for entry in manifest["ingest"]["skipped"])
    assert manifest["ingest"]["dropped_classes"] == ["c1"]
    shards = Shards(tmp_path / "out", verify=True)
    assert shards.class_names == ["c0", "c2", "c3", "c4"]
    assert shards.labels.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert manifest["counts"]["train"] == {"images": 5, "classes": 2}


def test_refuses_a_set_that_is_unusable_without_its_damaged_images(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw")
    for image in range(3):
        (root / "c3" / f"{image}.jpg").write_bytes(b"")
    expected = r"without its 3 damaged images: 1 of 3 classes are in the test split"
    with pytest.raises(UserError, match=expected):
        run(root, tmp_path / "out", source={"order": "name"}, on_error="skip")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_the_earlier_output_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = folder(tmp_path / "raw")

    class FullDisk(io.FileIO):
        def write(self, data: Any) -> int:
            if self.tell() + len(data) > 2000:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(data)

    monkeypatch.setattr(shard_writer, "open", lambda path, mode: FullDisk(path, mode), raising=False)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "earlier").write_text("content")
    with pytest.raises(UserError, match=r"(?s)The disk is full: .*out could not be written.*Make space"):
        run(root, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "raw"]
    assert content(tmp_path / "out") == {"earlier": b"content"}


def test_replaces_an_earlier_output(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw")
    run(root, tmp_path / "out")
    before = content(tmp_path / "out")
    run(root, tmp_path / "out")
    assert content(tmp_path / "out") == before


def test_accepts_and_counts_single_image_classes(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw", classes=6, images=1)
    for c in (0, 1, 4):
        (root / f"c{c}" / "more.jpg").write_bytes(encode(pixels(900 + c)))
    manifest = run(root, tmp_path / "out", source={"order": "name"})
    assert manifest["single_image_classes"] == {"train": 1, "test": 2}


class TestUnusableSets:
    def test_refuses_a_missing_folder(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"(?s)nowhere does not exist.*Put the images there"):
            run(tmp_path / "nowhere", tmp_path / "out")

    def test_refuses_an_empty_folder(self, tmp_path: Path) -> None:
        (tmp_path / "raw" / "c0").mkdir(parents=True)
        expected = r"(?s)raw contains no image\..*one directory of images per class"
        with pytest.raises(UserError, match=expected):
            run(tmp_path / "raw", tmp_path / "out")

    def test_refuses_one_class(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"contains only one class, c0\."):
            run(folder(tmp_path / "raw", classes=1), tmp_path / "out")

    def test_refuses_train_classes_of_one_image(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="every train class has only one image"):
            run(folder(tmp_path / "raw", images=1), tmp_path / "out")

    def test_refuses_test_classes_of_one_image(self, tmp_path: Path) -> None:
        root = folder(tmp_path / "raw", images=1)
        (root / "c0" / "more.jpg").write_bytes(encode(pixels(77)))
        with pytest.raises(UserError, match="every test class has only one image"):
            run(root, tmp_path / "out", source={"order": "name"})

    @pytest.mark.parametrize(("share", "split"), [(0.05, "test"), (0.95, "train")])
    def test_refuses_a_share_that_leaves_a_split_without_classes(
        self, tmp_path: Path, share: float, split: str
    ) -> None:
        with pytest.raises(UserError, match=rf"(?s)0 of 4 classes are in the {split} split.*test_share"):
            run(folder(tmp_path / "raw"), tmp_path / "out", source={"test_share": share})
