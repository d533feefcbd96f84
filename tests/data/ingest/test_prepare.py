"""Preparation of pictures without files, of boxes, and tables beside the shards."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageOps

from tests.data.ingest.pictures import encode, pixels
from unseen.data.decode import decode
from unseen.data.ingest.collection import Box, Collection, Picture, RowOf
from unseen.data.ingest.ingest import write
from unseen.data.ingest.prepare import pixels_of, prepare, stored_box
from unseen.data.ingest.settings import IngestSettings
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError


class TestPixels:
    @pytest.mark.parametrize("mode", ["RGB", "L"])
    def test_are_stored_without_loss(self, mode: str) -> None:
        picture = np.random.default_rng(0).integers(0, 256, (5, 7, 3) if mode == "RGB" else (5, 7), np.uint8)
        result = prepare(picture, None, 95)
        image = Image.open(io.BytesIO(result.image))
        assert (image.format, image.mode) == ("PNG", mode)
        assert np.array_equal(np.asarray(image), picture)
        assert (result.width, result.height, result.format) == (7, 5, f"pixels {mode}")
        assert not result.upright
        assert not result.resized

    def test_shrink_like_a_file_of_the_same_pixels(self) -> None:
        picture = pixels(0, 60, 40)
        array, file = prepare(picture, 20, 90), prepare(encode(picture, "PNG"), 20, 90)
        assert array._replace(format="") == file._replace(format="")
        assert (array.width, array.height, array.resized) == (30, 20, True)

    def test_are_duplicates_of_a_file_with_the_same_pixels(self) -> None:
        picture = pixels(0)
        assert pixels_of(picture) == pixels_of(encode(picture, "PNG"))


class TestBoxes:
    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_turn_with_the_picture(self, orientation: int) -> None:
        stored = np.zeros((30, 40, 3), np.uint8)
        box: Box = (5.0, 8.0, 17.0, 12.0)
        stored[8:12, 5:17] = 255
        file = encode(stored, "PNG", orientation)
        result = prepare(file, None, 95)
        x0, y0, x1, y1 = stored_box(box, result)
        upright = decode(np.frombuffer(result.image, np.uint8))
        assert np.array_equal(upright, np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(file)))))
        expected = np.zeros_like(upright)
        expected[int(y0) : int(y1), int(x0) : int(x1)] = 255
        assert np.array_equal(upright, expected)

    def test_shrink_with_the_picture(self) -> None:
        result = prepare(encode(pixels(0, 80, 40), "PNG", 6), 20, 95)
        assert (result.width, result.height, result.orientation) == (20, 40, 6)
        # The upright box is 28, 10, 36, 30.
        assert stored_box((10.0, 4.0, 30.0, 12.0), result) == (14.0, 5.0, 18.0, 15.0)

    def test_may_extend_beyond_the_picture(self) -> None:
        result = prepare(encode(pixels(0, 40, 30)), None, 95)
        assert stored_box((-3.0, -2.5, 43.0, 31.0), result) == (-3.0, -2.5, 43.0, 31.0)

    @pytest.mark.parametrize(
        "box",
        [
            *((0.0, 0.0, 0.0, 9.0), (9.0, 0.0, 3.0, 9.0), (0.0, 0.0, float("inf"), 9.0)),
            *((40.0, 0.0, 50.0, 9.0), (-9.0, 0.0, 0.0, 9.0)),
        ],
    )
    def test_must_overlap_the_picture(self, box: Box) -> None:
        result = prepare(encode(pixels(0, 40, 30)), None, 95)
        with pytest.raises(ValueError, match="is not within the 40 x 30 picture"):
            stored_box(box, result)


def run(collection: Collection, output: Path) -> None:
    write(collection, collection.in_order(), IngestSettings(on_error="skip"), output, "set", 1)


class TestExtras:
    """Tables of a source beside its shards, with row ids."""

    def collection(self, names: list[str], by_class: bool = False) -> Collection:
        def table(row_of: RowOf) -> pa.Table:
            return pa.table({"row": [row_of(name) for name in names]})

        def read(source: str) -> bytes:
            return b"no image" if source == "c" else encode(pixels(ord(source)))

        pictures = [Picture(name, "all", "test") for name in "dacb"]
        return Collection(
            "the set", pictures, read, extras={"order": table, "again": table}, by_class=by_class
        )

    def test_contain_row_ids(self, tmp_path: Path) -> None:
        collection = self.collection(["d", "a", "d"])
        run(collection, tmp_path / "out")
        shards = Shards(tmp_path / "out", verify=True)
        assert shards.sources == ["a", "b", "d"]
        assert shards.extra("order")["row"].to_pylist() == [2, 0, 2]
        manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
        assert sorted(manifest["extras"]) == ["again.parquet", "order.parquet"]

    def test_refuse_an_excluded_picture(self, tmp_path: Path) -> None:
        collection = self.collection(["c"])
        with pytest.raises(UserError, match="the set: its ground truth names c, which was excluded"):
            run(collection, tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_classes_are_checked_only_if_they_define_matches(self, tmp_path: Path) -> None:
        collection = self.collection([], by_class=True)
        with pytest.raises(UserError, match="contains only one class"):
            run(collection, tmp_path / "out")
