"""A published set by file names, packed or unpacked, and the compact list of members of a zip archive."""

import pickle
import struct
import zipfile
from pathlib import Path

import pytest

from tests.data.ingest import miniatures
from unseen.data.ingest.census import Count, census, require_counts
from unseen.data.ingest.collection import Picture
from unseen.data.ingest.files.archive import Zip
from unseen.data.ingest.files.tree import Tree
from unseen.data.ingest.releases import PUBLISHED
from unseen.data.ingest.sources import cars, cub, inshop, sop
from unseen.runtime.errors import UserError


def test_published_counts_are_consistent() -> None:
    """The counts of the modules equal those of CRT section 4.1 and of the list files."""
    sizes = {cub: (11_788, 200), cars: (16_185, 196), sop: (120_053, 22_634)}
    for source, (images, classes) in sizes.items():
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


def test_registry_has_valid_hashes_and_links() -> None:
    for published in PUBLISHED.values():
        for file in published.files:
            assert file.md5 is None or (len(file.md5) == 32 and int(file.md5, 16))
            assert file.sha256 is None or (len(file.sha256) == 64 and int(file.sha256, 16))
            assert file.url is None or file.url.startswith(("https://", "http://"))
    assert [file.name for file in PUBLISHED["cars"].layouts[0]] == ["car_ims.tgz", "cars_annos.mat"]


def test_only_known_files_have_neither_tls_nor_a_published_hash() -> None:
    """Their publisher offers neither. SECURITY.md names them."""
    files = [file for published in PUBLISHED.values() for file in published.files]
    insecure = [file for file in files if file.url is not None and not file.url.startswith("https://")]
    unverified = {file.name for file in insecure if file.md5 is None and file.sha256 is None}
    truth = {"gnd_roxford5k.pkl", "gnd_rparis6k.pkl", "retrieval-SfM-120k.pkl"}
    assert unverified == truth | {"ims.tar.gz"}


def test_counts_parts_and_refuses_other_counts_and_mixed_splits() -> None:
    pictures = [
        Picture("1", "a", "train"),
        Picture("2", "a", "train"),
        Picture("3", "b", "test"),
        Picture("4", "b", "test", is_query=True, is_gallery=False),
        Picture("5", "c", "test", is_query=False, is_gallery=True),
    ]
    counts = {"train": Count(2, 1), "test": Count(1, 1), "query": Count(1, 1), "gallery": Count(1, 1)}
    assert census(pictures) == counts
    require_counts(pictures, counts, "here", "the set", "")
    expected = r"(?s)here is not the set: found 2 train images of 1 classes, .*expected 3 train.*\n  because"
    with pytest.raises(UserError, match=expected):
        require_counts(pictures, counts | {"train": Count(3, 1)}, "here", "the set", "because")
    with pytest.raises(UserError, match=r"class a is in both splits"):
        require_counts([*pictures, Picture("6", "a", "test")], counts, "here", "the set", "because")
    with pytest.raises(UserError, match=r"4 is listed twice"):
        require_counts([*pictures, pictures[3]], counts, "here", "the set", "because")
    with pytest.raises(UserError, match=r"found no images; expected 2 train"):
        require_counts([], counts, "here", "the set", "because")


def test_reads_a_packed_set_by_name_also_after_pickling(tmp_path: Path) -> None:
    files = miniatures.sop()
    miniatures.zipped(files, tmp_path / "deep/er/Stanford_Online_Products.zip")
    miniatures.zipped({"secret.txt": b""}, tmp_path / "deep/other.zip")
    tree = Tree(tmp_path, PUBLISHED["sop"], tmp_path)
    assert {f"deep/er/{name}" for name in files} <= tree.names()
    assert not any("secret" in name for name in tree.names()), "archives of another name are ignored"
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


def test_below_selects_the_shallowest_visible_folder(tmp_path: Path) -> None:
    miniatures.unpack({"a/b/images.txt": b"", "z/images.txt": b"", "__MACOSX/images.txt": b""}, tmp_path)
    assert Tree(tmp_path, PUBLISHED["cub"], tmp_path).below("images.txt").root == "z/"


@pytest.mark.slow
def test_zip_reads_the_same_bytes_as_zipfile(tmp_path: Path) -> None:
    contents = {f"d{n % 7}/{n:05d}.bin": bytes([n % 256]) * (n % 3000) for n in range(2000)}
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for number, (name, content) in enumerate(contents.items()):
            archive.writestr(name, content, zipfile.ZIP_DEFLATED if number % 2 else zipfile.ZIP_STORED)
    compact = Zip(tmp_path / "x.zip")
    assert compact.names() == sorted(contents)
    assert all(compact.read(name) == content for name, content in contents.items())
    assert len(pickle.dumps(compact)) < 2000 * 100
    with open(tmp_path / "copy", "wb") as sink:
        compact.copy("d0/00007.bin", sink)
    assert (tmp_path / "copy").read_bytes() == contents["d0/00007.bin"]


def test_reads_a_zip_with_a_prefix(tmp_path: Path) -> None:
    miniatures.zipped({"a/1.jpg": b"one", "a/2.jpg": b"two"}, tmp_path / "x.zip")
    (tmp_path / "x.zip").write_bytes(b"#!/bin/sh\n" + (tmp_path / "x.zip").read_bytes())
    assert Zip(tmp_path / "x.zip").read("a/2.jpg") == b"two"


def test_refuses_members_with_a_wrong_size_position_or_checksum(tmp_path: Path) -> None:
    path = miniatures.zipped({"a/1.jpg": bytes(range(256)) * 40}, tmp_path / "x.zip")
    content = path.read_bytes()
    central = content.index(b"PK\1\2")
    for offset, value, message in [
        (24, 10_000, r"lists 10,000 bytes but contains 10,001"),
        (24, 10_500, r"lists 10,500 bytes but contains 10,240"),
        (42, 3, r"no member starts at its listed offset"),
        (16, 12345, r"Bad CRC-32"),
    ]:
        position = central + offset
        path.write_bytes(content[:position] + struct.pack("<I", value) + content[position + 4 :])
        with pytest.raises(ValueError, match=message):
            Zip(path).read("a/1.jpg")
    begin = 30 + len("a/1.jpg")  # of the deflated bytes
    path.write_bytes(content[:begin] + b"\xff" + content[begin + 1 :])
    with pytest.raises(ValueError, match=r"damaged within the archive: .*invalid block type"):
        Zip(path).read("a/1.jpg")


def test_names_a_damaged_archive_within_an_archive(tmp_path: Path) -> None:
    inner = miniatures.zipped(miniatures.sop(), tmp_path / "Stanford_Online_Products.zip").read_bytes()
    path = miniatures.zipped({"set/Stanford_Online_Products.zip": inner}, tmp_path / "outer.zip")
    (tmp_path / "scratch").mkdir()
    assert Tree(path, PUBLISHED["sop"], tmp_path / "scratch").below("Ebay_train.txt") is not None
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    name = r"outer\.zip: set/Stanford_Online_Products\.zip cannot be read: damaged within the archive"
    with pytest.raises(UserError, match=rf"{name}.*\n.*Fetch the archive again"):
        Tree(path, PUBLISHED["sop"], tmp_path / "scratch")


def test_refuses_overlapping_members_and_other_compression(tmp_path: Path) -> None:
    files = dict.fromkeys(("a/1.jpg", "a/2.jpg"), bytes(range(256)) * 40)
    path = miniatures.zipped(files, tmp_path / "x.zip")
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
