"""A published set by its names, packed or not; and the compact list of a zip archive."""

import pickle
import struct
import zipfile
from pathlib import Path

import pytest

from pipeline.ingest.census import Count, census, require_counts
from pipeline.ingest.collection import Picture
from pipeline.ingest.files.archive import Zip
from pipeline.ingest.files.tree import Tree
from pipeline.ingest.releases import PUBLISHED
from pipeline.ingest.sources import cars, cub, inshop, sop
from pipeline.runtime.errors import UserError
from tests.ingest import miniatures


def test_what_the_papers_say_adds_up() -> None:
    """The identities of the published counts: CRT section 4.1, and the list files themselves."""
    expected = {cub: (11_788, 200), cars: (16_185, 196), sop: (120_053, 22_634)}
    for source, (images, classes) in expected.items():
        assert sum(count.images for count in source.COUNTS.values()) == images
        assert sum(count.classes for count in source.COUNTS.values()) == classes
        assert set(source.COUNTS) == {"train", "test"}
    assert cub.COUNTS == {"train": (5_864, 100), "test": (5_924, 100)}
    assert cars.COUNTS == {"train": (8_054, 98), "test": (8_131, 98)}
    assert sop.COUNTS == {"train": (59_551, 11_318), "test": (60_502, 11_316)}
    assert inshop.COUNTS == {"train": (25_882, 3_997), "query": (14_218, 3_985), "gallery": (12_612, 3_985)}
    assert sum(count.images for count in inshop.COUNTS.values()) == 52_712
    assert inshop.COUNTS["train"].classes + inshop.COUNTS["query"].classes == 7_982
    assert (cub.LAST_TRAIN_CLASS, cars.LAST_TRAIN_CLASS) == (100, 98)


def test_the_registry_holds_what_was_published() -> None:
    for published in PUBLISHED.values():
        for file in published.files:
            assert file.md5 is None or (len(file.md5) == 32 and int(file.md5, 16))
            assert file.sha256 is None or (len(file.sha256) == 64 and int(file.sha256, 16))
            assert file.url is None or file.url.startswith(("https://", "http://"))
    assert [file.name for file in PUBLISHED["cars"].layouts[0]] == ["car_ims.tgz", "cars_annos.mat"]


def test_census_and_classes_in_both_splits() -> None:
    pictures = [
        Picture("1", "a", "train"),
        Picture("2", "a", "train"),
        Picture("3", "b", "test"),
        Picture("4", "b", "test", is_query=True, is_gallery=False),
        Picture("5", "c", "test", is_query=False, is_gallery=True),
    ]
    found = {"train": Count(2, 1), "test": Count(1, 1), "query": Count(1, 1), "gallery": Count(1, 1)}
    assert census(pictures) == found
    require_counts(pictures, found, "here", "the set", "")
    with pytest.raises(
        UserError,
        match=r"(?s)here is not the set: found 2 train images of 1 classes, .*expected 3 train.*\n  because",
    ):
        require_counts(pictures, found | {"train": Count(3, 1)}, "here", "the set", "because")
    with pytest.raises(UserError, match=r"class a is in both splits"):
        require_counts([*pictures, Picture("6", "a", "test")], found, "here", "the set", "because")
    with pytest.raises(UserError, match=r"4 is listed twice"):
        require_counts([*pictures, pictures[3]], found, "here", "the set", "because")
    with pytest.raises(UserError, match=r"found no images; expected 2 train"):
        require_counts([], found, "here", "the set", "because")


def test_names_packed_and_unpacked_and_pickled(tmp_path: Path) -> None:
    files = miniatures.sop()
    miniatures.zipped(files, tmp_path / "deep/er/Stanford_Online_Products.zip")
    miniatures.zipped({"secret.txt": b""}, tmp_path / "deep/other.zip")
    tree = Tree(tmp_path, PUBLISHED["sop"], tmp_path)
    assert {f"deep/er/{name}" for name in files} <= tree.names()
    assert not any("secret" in name for name in tree.names()), "archives of another name are left alone"
    branch = tree.below("Ebay_train.txt")
    assert branch is not None
    assert branch.root == "deep/er/Stanford_Online_Products/"
    assert "Ebay_test.txt" in branch
    read = pickle.loads(pickle.dumps(branch.read))
    assert read("Ebay_test.txt") == files["Stanford_Online_Products/Ebay_test.txt"]
    assert tree.below("bicycle_final/").root == branch.root
    assert tree.below("rain.txt") is None
    assert tree.below("icycle_final/") is None
    with pytest.raises(FileNotFoundError):
        tree.read("nothing")
    with pytest.raises(KeyError):
        Tree(tmp_path / "deep/er/Stanford_Online_Products.zip", PUBLISHED["sop"], tmp_path).read("nothing")


def test_the_shallowest_place_wins_and_desktop_leftovers_do_not(tmp_path: Path) -> None:
    miniatures.unpack({"a/b/images.txt": b"", "z/images.txt": b"", "__MACOSX/images.txt": b""}, tmp_path)
    assert Tree(tmp_path, PUBLISHED["cub"], tmp_path).below("images.txt").root == "z/"


def test_a_zip_of_many_members_reads_as_zipfile_does(tmp_path: Path) -> None:
    contents = {
        f"d{number % 7}/{number:05d}.bin": bytes([number % 256]) * (number % 3000) for number in range(2000)
    }
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for number, (name, content) in enumerate(contents.items()):
            archive.writestr(name, content, zipfile.ZIP_DEFLATED if number % 2 else zipfile.ZIP_STORED)
    ours = Zip(tmp_path / "x.zip")
    assert ours.names() == sorted(contents)
    assert all(ours.read(name) == content for name, content in contents.items())
    assert len(pickle.dumps(ours)) < 2000 * 100
    with open(tmp_path / "copy", "wb") as sink:
        ours.copy("d0/00007.bin", sink)
    assert (tmp_path / "copy").read_bytes() == contents["d0/00007.bin"]


def test_a_zip_behind_other_bytes_is_read(tmp_path: Path) -> None:
    miniatures.zipped({"a/1.jpg": b"one", "a/2.jpg": b"two"}, tmp_path / "x.zip")
    (tmp_path / "x.zip").write_bytes(b"#!/bin/sh\n" + (tmp_path / "x.zip").read_bytes())
    assert Zip(tmp_path / "x.zip").read("a/2.jpg") == b"two"


def test_members_that_lie_about_their_size_or_place(tmp_path: Path) -> None:
    path = miniatures.zipped({"a/1.jpg": bytes(range(256)) * 40}, tmp_path / "x.zip")
    content = path.read_bytes()
    central = content.index(b"PK\1\2")
    for offset, value, found in [
        (24, 10_000, r"announces 10,000 bytes and holds 10,001"),
        (24, 10_500, r"announces 10,500 bytes and holds 10,240"),
        (42, 3, r"no member begins where its list says"),
        (16, 12345, r"Bad CRC-32"),
    ]:
        path.write_bytes(
            content[: central + offset] + struct.pack("<I", value) + content[central + offset + 4 :]
        )
        with pytest.raises(ValueError, match=found):
            Zip(path).read("a/1.jpg")


def test_members_that_overlap_or_use_another_compression(tmp_path: Path) -> None:
    path = miniatures.zipped(
        {"a/1.jpg": bytes(range(256)) * 40, "a/2.jpg": bytes(range(256)) * 40}, tmp_path / "x.zip"
    )
    content = bytearray(path.read_bytes())
    first = content.index(b"PK\1\2")
    for entry in (first, content.index(b"PK\1\2", first + 4)):
        content[entry + 20 : entry + 24] = struct.pack("<I", 600)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"overlap|not a readable zip"):
        Zip(path).names()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a/1.jpg", b"one")
    with pytest.raises(UserError, match=r"member 'a/1\.jpg' is compressed by method 14, not by deflate"):
        Zip(path).names()
