"""CUB-200-2011: packed and unpacked, the split, and refusal of other or damaged files."""

from pathlib import Path
from typing import Any

import pytest

from tests.data.ingest import miniatures
from unseen.data.ingest.census import Count
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import CubSource, IngestSettings
from unseen.data.ingest.sources import cub
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cub, "COUNTS", {"train": Count(6, 2), "test": Count(6, 2)})
    monkeypatch.setattr(cub, "LAST_TRAIN_CLASS", 2)


def run(path: Path, output: Path, processes: int = 1, **settings: Any) -> dict[str, Any]:
    return ingest(CubSource(path=str(path)), IngestSettings(**settings), output, "cub", processes)


@pytest.mark.slow
def test_archives_and_folders_give_equal_shards(tmp_path: Path) -> None:
    files = miniatures.cub()
    miniatures.tgz(files, tmp_path / "packed/CUB_200_2011.tgz")
    miniatures.tgz(files, tmp_path / "plain/CUB_200_2011.tar", "w")
    miniatures.zipped(files, tmp_path / "zip/CUB_200_2011.zip")
    miniatures.unpack(files, tmp_path / "unpacked")
    miniatures.tgz(files, tmp_path / "both/CUB_200_2011.tgz")
    miniatures.unpack(files, tmp_path / "both")
    miniatures.unpack(miniatures.cub(root=""), tmp_path / "inner")
    paths = ["packed", "packed/CUB_200_2011.tgz", "plain", "zip"]
    paths += ["unpacked", "unpacked/CUB_200_2011", "both", "inner"]
    outputs = [tmp_path / "out" / str(number) for number in range(len(paths))]
    for path, output in zip(paths, outputs, strict=True):
        run(tmp_path / path, output, processes=2 if path == "packed" else 1)
    contents = [[path.read_bytes() for path in sorted(output.iterdir())] for output in outputs]
    assert all(content == contents[0] for content in contents)
    assert sorted((tmp_path / "out").iterdir()) == outputs, "scratch directories are removed"


def test_splits_by_class_and_ignores_the_split_of_classification(tmp_path: Path) -> None:
    miniatures.tgz(miniatures.cub(), tmp_path / "raw/CUB_200_2011.tgz")
    manifest = run(tmp_path / "raw", tmp_path / "out")
    shards = Shards(tmp_path / "out", verify=True)
    assert shards.class_names == [f"{number:03d}.{name}" for number, name in miniatures.BIRDS.items()]
    assert shards.splits.tolist() == ["train"] * 6 + ["test"] * 6
    assert shards.labels.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert shards.sources[0] == "001.Black_footed_Albatross/Black_footed_Albatross_0000_1.jpg"
    assert not any("._" in source for source in shards.sources)
    assert manifest["ingest"]["formats"] == {"JPEG RGB": 10, "JPEG L": 1, "PNG 1": 1}
    assert manifest["published"] == "CUB-200-2011"


def test_describes_the_missing_archive(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    published = r"CUB_200_2011\.tgz \(1,150,585,339 bytes, md5 97ece"
    expected = rf"(?s)contains no images\.txt\..*{published}.*unseen data cub.*caltech"
    with pytest.raises(UserError, match=expected):
        run(tmp_path / "raw", tmp_path / "out")
    expected = r"(?s)gone does not exist\..*CUB_200_2011\.tgz \(1,150,585,339 bytes, md5 97ece"
    with pytest.raises(UserError, match=expected):
        run(tmp_path / "gone", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_detects_cub_200_of_2010(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cub, "IMAGES_OF_2010", 4)
    old = {f"images/001.Black_footed_Albatross/{number}.jpg": b"" for number in range(4)}
    old["lists/files.txt"] = b""
    expected = r"contains no images\.txt and 4 images: this is CUB-200 of 2010, not CUB-200-2011"
    with pytest.raises(UserError, match=expected):
        run(miniatures.unpack(old, tmp_path / "raw"), tmp_path / "out")


def test_refuses_other_counts_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cub, "COUNTS", {"train": Count(5_864, 100), "test": Count(5_924, 100)})
    miniatures.unpack(miniatures.cub(), tmp_path / "raw")
    expected = (
        r"(?s)raw is not CUB-200-2011: found 6 train images of 2 classes, 6 test images of 2 classes "
        r"\(12 images\); expected 5,864 train images of 100 classes, 5,924 test images of 100 classes "
        r"\(11,788 images\)\..*truncated"
    )
    with pytest.raises(UserError, match=expected):
        run(tmp_path / "raw", tmp_path / "out")
    monkeypatch.setattr(cub, "IMAGES_OF_2010", 12)
    with pytest.raises(UserError, match=r"(?s)found 6 train.*images of CUB-200 of 2010"):
        run(tmp_path / "raw", tmp_path / "out")


def test_refuses_missing_files(tmp_path: Path) -> None:
    files = miniatures.cub()
    for name in [name for name in files if "/004." in name]:
        del files[name]
    expected = r"3 of the files listed in images\.txt are missing: 004\.Groove_billed_Ani/"
    with pytest.raises(UserError, match=expected):
        run(miniatures.unpack(files, tmp_path / "raw"), tmp_path / "out")
    labels = miniatures.cub()
    del labels["CUB_200_2011/image_class_labels.txt"]
    with pytest.raises(UserError, match=r"contains no image_class_labels\.txt beside images\.txt"):
        run(miniatures.unpack(labels, tmp_path / "raw2"), tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("images.txt", b"1 001.Black", b"1 ../001.Black", r"image 1 of images\.txt is '\.\./001\.Black"),
        ("images.txt", b"1 001.Black", b"1 002.Black", r"image 1 of images\.txt is '002\.Black.*class '1'"),
        ("images.txt", b"\n2 ", b"\n1 ", r"images\.txt:2 is '1 001"),
        ("images.txt", b"\n2 001", b"\ntwo 001", r"images\.txt:2 is 'two 001"),
        ("images.txt", b"1 001.", b"1 001. ", r"images\.txt:1 is '1 001\. Black"),
        ("image_class_labels.txt", b"12 4\n", b"", r"contain different image numbers"),
        ("images.txt", b"1 001", b"\xff 001", r"images\.txt is not a text file"),
    ],
)
def test_refuses_a_list_that_is_not_the_published_one(
    tmp_path: Path, name: str, old: bytes, new: bytes, message: str
) -> None:
    files = miniatures.cub()
    assert old in files[f"CUB_200_2011/{name}"]
    files[f"CUB_200_2011/{name}"] = files[f"CUB_200_2011/{name}"].replace(old, new, 1)
    with pytest.raises(UserError, match=message):
        run(miniatures.unpack(files, tmp_path / "raw"), tmp_path / "out")


def test_a_damaged_image_stops_the_run_or_is_excluded(tmp_path: Path) -> None:
    files = miniatures.cub()
    name = next(name for name in files if name.endswith("0002_4.jpg"))
    files[name] = files[name][: len(files[name]) // 2]
    path = miniatures.tgz(files, tmp_path / "raw/CUB_200_2011.tgz")
    expected = r"004\.Groove_billed_Ani/Groove_billed_Ani_0002_4\.jpg is not a complete image"
    with pytest.raises(UserError, match=expected):
        run(path, tmp_path / "out")
    manifest = run(path, tmp_path / "out", on_error="skip")
    assert manifest["ingest"]["skipped_images"] == 1
    assert manifest["counts"]["test"] == {"images": 5, "classes": 2}
