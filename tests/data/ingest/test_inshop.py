"""In-Shop: queries and gallery, the header of the list, padded images, archives in a folder and in another
archive."""

from pathlib import Path
from typing import Any

import pytest

from tests.data.ingest import miniatures
from unseen.data.ingest.census import Count
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import IngestSettings, InshopSource
from unseen.data.ingest.sources import inshop
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError

LIST = "Eval/list_eval_partition.txt"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"train": Count(5, 2), "query": Count(4, 2), "gallery": Count(2, 2)}
    monkeypatch.setattr(inshop, "COUNTS", counts)


def run(path: Path, output: Path, processes: int = 1, **settings: Any) -> dict[str, Any]:
    return ingest(InshopSource(path=str(path)), IngestSettings(**settings), output, "inshop", processes)


def published(folder: Path, side: int = 256) -> Path:
    files, text = miniatures.inshop(side)
    miniatures.zipped(files, folder / "Img/img.zip")
    return miniatures.unpack({LIST: text}, folder)


def changed(folder: Path, old: bytes, new: bytes) -> Path:
    path = published(folder) / LIST
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    return folder


@pytest.mark.slow
def test_reads_queries_and_gallery(tmp_path: Path) -> None:
    run(published(tmp_path / "raw"), tmp_path / "out", processes=2)
    shards = Shards(tmp_path / "out", verify=True)
    assert shards.manifest["published"] == "In-Shop Clothes Retrieval"
    assert shards.class_names == ["id_00000002", "id_00000080", "id_00000001", "id_00000007"]
    states = {
        source: (str(shards.splits[row]), bool(shards.is_query[row]), bool(shards.is_gallery[row]))
        for row, source in enumerate(shards.sources)
    }
    assert states["img/WOMEN/Tees_Tanks/id_00000001/01_1_front.jpg"] == ("test", True, False)
    assert states["img/WOMEN/Tees_Tanks/id_00000001/03_3_front.jpg"] == ("test", False, True)
    assert states["img/MEN/Denim/id_00000080/01_1_front.jpg"] == ("train", True, True)
    test = shards.rows("test")
    assert (shards.is_query[test].sum(), shards.is_gallery[test].sum()) == (4, 2)
    assert set(map(tuple, shards.sizes.tolist())) == {(256, 256)}


def test_reads_the_images_from_every_layout(tmp_path: Path) -> None:
    files, text = miniatures.inshop()
    unpacked = {f"Img/{name}": content for name, content in files.items()}
    miniatures.unpack({LIST: text} | unpacked, tmp_path / "unpacked")
    miniatures.unpack({LIST: text} | files, tmp_path / "flat")
    archive = (published(tmp_path / "a") / "Img/img.zip").read_bytes()
    nested = miniatures.zipped({f"In-shop/{LIST}": text, "In-shop/Img/img.zip": archive}, tmp_path / "n.zip")
    tarred = miniatures.tgz({LIST: text, "Img/img.zip": archive}, tmp_path / "n.tgz")
    fingerprints = set()
    paths = [tmp_path / "a", tmp_path / "unpacked", tmp_path / "flat", nested, tarred]
    for number, path in enumerate(paths):
        run(path, tmp_path / f"out{number}")
        fingerprints.add(Shards(tmp_path / f"out{number}").fingerprint)
    assert len(fingerprints) == 1


def test_refuses_the_images_of_full_size(tmp_path: Path) -> None:
    expected = r"(?s)has 300 x 300 pixels: these are the images of img_highres\.zip.*padded to 256 x 256"
    with pytest.raises(UserError, match=expected):
        run(published(tmp_path / "a", side=300), tmp_path / "out")
    files, text = miniatures.inshop()
    highres = {f"Img/img_highres/{name[4:]}": content for name, content in files.items()}
    miniatures.unpack({LIST: text} | highres, tmp_path / "b")
    with pytest.raises(UserError, match=r"contains img_highres, but neither img\.zip nor the folder img"):
        run(tmp_path / "b", tmp_path / "out")


def test_names_missing_files(tmp_path: Path) -> None:
    folder = published(tmp_path / "a")
    (folder / LIST).unlink()
    expected = (
        r"(?s)contains no list_eval_partition\.txt.*Img/img\.zip and Eval/list_eval_partition\.txt.*"
        r"agreement"
    )
    with pytest.raises(UserError, match=expected):
        run(folder, tmp_path / "out")
    folder = published(tmp_path / "b")
    (folder / "Img/img.zip").unlink()
    with pytest.raises(UserError, match=r"contains neither img\.zip nor the folder img"):
        run(folder, tmp_path / "out")
    files, text = miniatures.inshop()
    files.popitem()
    miniatures.zipped(files, tmp_path / "c/Img/img.zip")
    miniatures.unpack({LIST: text}, tmp_path / "c")
    expected = r"1 of the files listed in list_eval_partition\.txt are missing: img/MEN/Jackets"
    with pytest.raises(UserError, match=expected):
        run(tmp_path / "c", tmp_path / "out")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"11\n", b"", r"begins with \['image_name"),
        (b"image_name item_id evaluation_status\n", b"", r"begins with \['11', 'img/WOMEN"),
        (b"11\n", b"12\n", r"gives a number of 12 images but lists 11"),
        (b" query", b" probe", r"list_eval_partition\.txt:8 is 'img/WOMEN"),
        (b"img/WOMEN", b"../WOMEN", r"list_eval_partition\.txt:3 is '\.\./WOMEN"),
        (b"id_00000080 train", b"id_00000009 train", r"found 5 train images of 3 classes, 4 query"),
        (b"id_00000002 train", b"id_00000002 query", r"class id_00000002 is in both splits"),
    ],
)
def test_refuses_a_list_that_is_not_the_published_one(
    tmp_path: Path, old: bytes, new: bytes, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        run(changed(tmp_path / "raw", old, new), tmp_path / "out")


def test_empty_lines_of_the_list_are_no_images(tmp_path: Path) -> None:
    run(published(tmp_path / "as published"), tmp_path / "expected")
    run(changed(tmp_path / "raw", b"id_00000001 gallery\n", b"id_00000001 gallery\n\n  \n"), tmp_path / "out")
    assert Shards(tmp_path / "out").fingerprint == Shards(tmp_path / "expected").fingerprint


def test_refuses_items_without_query_or_gallery(tmp_path: Path) -> None:
    path = changed(tmp_path / "raw", b"id_00000001 gallery", b"id_00000003 gallery")
    expected = r"2 items are only in the query or only in the gallery: id_00000001, id_00000003"
    with pytest.raises(UserError, match=expected):
        run(path, tmp_path / "out")


def test_skips_a_damaged_image_if_the_settings_allow_it(tmp_path: Path) -> None:
    files, text = miniatures.inshop()
    files["img/WOMEN/Dresses/id_00000002/01_1_front.jpg"] = b"damaged"
    miniatures.zipped(files, tmp_path / "raw/Img/img.zip")
    miniatures.unpack({LIST: text}, tmp_path / "raw")
    assert run(tmp_path / "raw", tmp_path / "out", on_error="skip")["ingest"]["skipped_images"] == 1
