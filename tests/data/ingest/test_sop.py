"""Stanford Online Products: the split of its lists, the count of copies, and refusal of other files."""

from pathlib import Path
from typing import Any

import pytest

from tests.data.ingest import miniatures
from unseen.data.ingest.census import Count
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import IngestSettings, SopSource
from unseen.data.ingest.sources import sop
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError

ROOT = "Stanford_Online_Products/"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sop, "COUNTS", {"train": Count(7, 3), "test": Count(5, 2)})


def run(path: Path, output: Path, processes: int = 1) -> dict[str, Any]:
    return ingest(SopSource(path=str(path)), IngestSettings(), output, "sop", processes)


@pytest.mark.slow
def test_reads_the_split_from_the_lists_and_counts_exact_copies(tmp_path: Path) -> None:
    miniatures.zipped(miniatures.sop(), tmp_path / "raw/Stanford_Online_Products.zip")
    manifest = run(tmp_path / "raw", tmp_path / "out", processes=2)
    shards = Shards(tmp_path / "out", verify=True)
    assert shards.class_names == ["00001", "00002", "00003", "00004", "00005"]
    assert shards.splits.tolist() == ["train"] * 7 + ["test"] * 5
    assert shards.sources[0] == "bicycle_final/111085122871_0.JPG"
    assert manifest["published"] == "Stanford Online Products"
    assert manifest["duplicates"]["images"] == 2
    assert manifest["duplicates"]["across_classes"] == 1
    assert manifest["duplicates"]["across_splits"] == 1
    miniatures.unpack(miniatures.sop(), tmp_path / "unpacked")
    for number, path in enumerate(["unpacked", f"unpacked/{ROOT}", "raw/Stanford_Online_Products.zip"]):
        run(tmp_path / path, tmp_path / f"out{number}")
        assert Shards(tmp_path / f"out{number}").fingerprint == shards.fingerprint


def test_refuses_other_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sop, "COUNTS", {"train": Count(59_551, 11_318), "test": Count(60_502, 11_316)})
    path = miniatures.zipped(miniatures.sop(), tmp_path / "s.zip")
    expected = (
        r"found 7 train images of 3 classes, 5 test .*expected 59,551 train images of 11,318 .*"
        r"\(120,053 images\)"
    )
    with pytest.raises(UserError, match=expected):
        run(path, tmp_path / "out")


def test_names_missing_files(tmp_path: Path) -> None:
    files = miniatures.sop()
    del files[f"{ROOT}Ebay_test.txt"]
    expected = r"(?s)contains no Ebay_test\.txt.*3,083,860,082 bytes, md5 7f73d41a.*lifted_struct"
    with pytest.raises(UserError, match=expected):
        run(miniatures.unpack(files, tmp_path / "a"), tmp_path / "out")
    files = miniatures.sop()
    del files[f"{ROOT}toaster_final/261215155238_1.JPG"]
    expected = r"1 of the files listed in Ebay_train.* are missing: toaster_final/261215155238_1\.JPG"
    with pytest.raises(UserError, match=expected):
        run(miniatures.unpack(files, tmp_path / "b"), tmp_path / "out")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"image_id class_id super_class_id path\n", b"", r"Ebay_train\.txt begins with '1 1 1 bicycle"),
        (b"\n2 1 1 ", b"\n1 1 1 ", r"Ebay_train\.txt:3 is '1 1 1 bicycle"),
        (b"\n3 ", b"\n2 ", r"Ebay_train\.txt:4 is '2 "),
        (b"\n2 1 1 ", b"\n2 one 1 ", r"Ebay_train\.txt:3 is '2 one 1"),
        (b"\n2 1 1 ", b"\n2 1 1 /etc/", r"Ebay_train\.txt:3 is '2 1 1 /etc/bicycle"),
        (b"\n2 1 1 ", b"\n2 1 ", r"Ebay_train\.txt:3"),
    ],
)
def test_refuses_a_list_that_is_not_the_published_one(
    tmp_path: Path, old: bytes, new: bytes, message: str
) -> None:
    files = miniatures.sop()
    assert old in files[f"{ROOT}Ebay_train.txt"]
    files[f"{ROOT}Ebay_train.txt"] = files[f"{ROOT}Ebay_train.txt"].replace(old, new, 1)
    with pytest.raises(UserError, match=message):
        run(miniatures.unpack(files, tmp_path / "raw"), tmp_path / "out")
