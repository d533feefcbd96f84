"""Duplicates are exactly the pictures with equal upright pixels, although most pictures are not decoded in
full."""

import io
import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.ingest.pictures import encode, pixels
from unseen.data.ingest.collection import Collection, Content, Picture
from unseen.data.ingest.duplicates import Candidates, fingerprint, summary
from unseen.data.ingest.ingest import write
from unseen.data.ingest.prepare import pixels_of, prepare
from unseen.data.ingest.settings import IngestSettings
from unseen.runtime.errors import UserError


def again_as_png(encoded: bytes) -> bytes:
    stream = io.BytesIO()
    Image.open(io.BytesIO(encoded)).convert("RGB").save(stream, "PNG")
    return stream.getvalue()


def with_comment(jpeg: bytes) -> bytes:
    return jpeg[:2] + b"\xff\xfe\x00\x07hello" + jpeg[2:]


WHITE = np.full((50, 40, 3), 255, np.uint8)


def white_above(rows: int, seed: int) -> np.ndarray:
    """A white picture whose last rows are not white."""
    picture = WHITE.copy()
    picture[-rows:] = pixels(seed, 40, rows)
    return picture


PICTURES = {
    "usual": pixels(1),
    "low": pixels(2, 40, 5),
    "white above": white_above(30, 1),
    "white except the last rows": white_above(3, 0),
    "white": WHITE,
}


class TestFingerprints:
    @pytest.mark.parametrize("subsampling", [0, 1, 2])
    @pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES.keys())
    def test_is_equal_for_a_picture_saved_again_without_loss(
        self, picture: np.ndarray, subsampling: int
    ) -> None:
        encoded = encode(picture, subsampling=subsampling)
        expected = prepare(encoded, None, 95).fingerprint
        for other in (
            again_as_png(encoded),
            with_comment(encoded),
            np.asarray(Image.open(io.BytesIO(encoded))),
        ):
            assert prepare(other, None, 95).fingerprint == expected
            assert prepare(other, 20, 95).fingerprint == expected
            assert pixels_of(other) == pixels_of(encoded)

    def test_is_computed_from_the_upright_picture(self) -> None:
        turned = encode(pixels(3), orientation=6)
        upright = prepare(turned, None, 95)
        assert upright.upright
        stream = io.BytesIO()
        Image.open(io.BytesIO(turned)).transpose(Image.Transpose.ROTATE_270).save(stream, "PNG")
        assert prepare(stream.getvalue(), None, 95).fingerprint == upright.fingerprint

    def test_is_equal_for_grey_and_colour_files_of_the_same_pixels(self) -> None:
        grey = pixels(4)[..., 0].copy()
        colour = np.repeat(grey[..., None], 3, axis=2)
        assert prepare(grey, None, 95).fingerprint == prepare(colour, None, 95).fingerprint

    def test_includes_rows_below_a_uniform_top(self) -> None:
        fingerprints = {
            prepare(encode(white_above(rows, seed), "PNG"), None, 95).fingerprint
            for rows in (1, 20, 44)
            for seed in (0, 1)
        }
        assert len(fingerprints) == 6

    def test_differs_for_other_sizes(self) -> None:
        blank = np.zeros((30, 20, 3), np.uint8)
        assert len({fingerprint(h, w, lambda n: blank[:n]) for h, w in ((30, 20), (20, 30))}) == 2

    def test_reads_only_as_many_rows_as_necessary(self) -> None:
        counts: list[int] = []

        def rows(picture: np.ndarray, count: int) -> np.ndarray:
            counts.append(count)
            return picture[:count]

        for picture in (pixels(0, 40, 50), white_above(30, 0), WHITE, WHITE[:4]):
            fingerprint(len(picture), 40, lambda count, picture=picture: rows(picture, count))
        assert counts == [6, 6, 30, 6, 30, 50, 4]


def test_candidates_are_the_rows_that_share_a_fingerprint() -> None:
    candidates = Candidates()
    for row, letter in enumerate("abcadeab"):
        candidates.add(row, letter.encode())
    assert candidates.rows() == [0, 1, 3, 6, 7]


def test_summary_equals_that_of_all_pairs() -> None:
    generator = random.Random(0)
    for _ in range(50):
        pictures = [
            (
                Picture(f"{n}", generator.choice("xyz"), generator.choice(["train", "test"])),
                generator.choice("abc"),
            )
            for n in range(9)
        ]
        duplicates = []  # each with the earlier pictures of the same pixels
        for row, (picture, digest) in enumerate(pictures):
            if earlier := [other for other, other_digest in pictures[:row] if other_digest == digest]:
                duplicates.append((picture, earlier))
        across, within = [], []
        for picture, earlier in duplicates:
            same_class = all(other.class_name == picture.class_name for other in earlier)
            (within if same_class else across).append([earlier[0].source, picture.source])
        assert summary((picture, digest.encode()) for picture, digest in pictures) == {
            "images": len(duplicates),
            "across_classes": len(across),
            "across_splits": sum(earlier[0].split != picture.split for picture, earlier in duplicates),
            "pairs": across + within,
        }


class TestManifest:
    def duplicates(self, files: dict[str, bytes], output: Path, processes: int = 1) -> dict[str, object]:
        pictures = [Picture(name, "all", "test") for name in sorted(files)]
        collection = Collection("the set", pictures, files.__getitem__, by_class=False)
        manifest = write(collection, pictures, IngestSettings(), output, "set", processes)
        duplicates: dict[str, object] = manifest["duplicates"]
        return duplicates

    @pytest.mark.slow
    def test_equal_first_rows_alone_are_not_duplicates(self, tmp_path: Path) -> None:
        original = pixels(0, 40, 30)
        other_end, other_pixel = original.copy(), original.copy()
        other_end[20:] = 255 - other_end[20:]
        other_pixel[-1, -1, 2] ^= 1
        pictures = {"a": original, "b": other_end, "c": other_pixel, "d": original, "e": other_end}
        files = {name: encode(picture, "PNG") for name, picture in pictures.items()}
        assert len({prepare(file, None, 95).fingerprint for file in files.values()}) == 1
        expected = {"images": 2, "across_classes": 0, "across_splits": 0, "pairs": [["a", "d"], ["b", "e"]]}
        assert self.duplicates(files, tmp_path / "serial") == expected
        assert self.duplicates(files, tmp_path / "parallel", 2) == expected

    def test_finds_copies_in_other_files(self, tmp_path: Path) -> None:
        jpeg = encode(pixels(0), subsampling=2)
        files = {
            "a": jpeg,
            "b": with_comment(jpeg),
            "c": again_as_png(jpeg),
            "d": encode(pixels(0), quality=94),
            "e": jpeg + b"behind the end",
        }
        assert self.duplicates(files, tmp_path / "out")["pairs"] == [["a", "b"], ["a", "c"], ["a", "e"]]

    def test_names_a_picture_that_cannot_be_read_again(self, tmp_path: Path) -> None:
        reads: list[str] = []

        def read(source: str) -> Content:
            reads.append(source)
            return encode(pixels(0)) if reads.count(source) == 1 else b""

        pictures = [Picture(name, "all", "test") for name in "ab"]
        collection = Collection("the set", pictures, read, by_class=False)
        expected = r"(?s)the set: a was readable before and now is not: .+Run ingest again"
        with pytest.raises(UserError, match=expected):
            write(collection, pictures, IngestSettings(), tmp_path / "out", "set", 1)
        assert not (tmp_path / "out").exists()
