"""Zip archives: reading without extraction, refusal of dangerous archives, errors for damaged members."""

import pickle
import stat
import zipfile
from pathlib import Path

import pytest

from tests.data.ingest.pictures import folder, pack
from unseen.data.ingest.files import archive as module
from unseen.data.ingest.files.archive import Archive
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import FolderSource, IngestSettings
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError


def zipped(
    path: Path, *members: tuple[str | zipfile.ZipInfo, bytes], compression: int = zipfile.ZIP_DEFLATED
) -> Archive:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members:
            file.writestr(name, content)
    return Archive(path)


@pytest.mark.slow
def test_an_archive_and_its_folder_give_equal_shards(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw")
    pack(root, tmp_path / "raw.zip", prefix="wrapped/")
    ingest(FolderSource(path=str(root)), IngestSettings(), tmp_path / "a", "mine", 1)
    ingest(FolderSource(path=str(tmp_path / "raw.zip")), IngestSettings(), tmp_path / "b", "mine", 2)
    assert Shards(tmp_path / "a").fingerprint == Shards(tmp_path / "b").fingerprint
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a", "b", "raw", "raw.zip"], "the archive is not unpacked"


def test_names_omit_only_a_folder_that_encloses_all_files(tmp_path: Path) -> None:
    def names(*members: str) -> list[str]:
        return zipped(tmp_path / "x.zip", *((name, b"") for name in members)).names()

    assert names("photos/a/1.jpg", "photos/b/2.jpg") == ["a/1.jpg", "b/2.jpg"]
    assert names("a/1.jpg", "b/2.jpg") == ["a/1.jpg", "b/2.jpg"]
    assert names("a/1.jpg", "a/2.jpg") == ["a/1.jpg", "a/2.jpg"]
    assert names("set/1.jpg", "set/labels.csv", "__MACOSX/x") == ["1.jpg", "labels.csv"]


def test_reads_after_pickling(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "1.zip", ("set/a/1.jpg", b"one"), ("set/b/1.jpg", b"two"))
    assert archive.read("a/1.jpg") == b"one"
    assert pickle.loads(pickle.dumps(archive.read))("b/1.jpg") == b"two"


@pytest.mark.parametrize(
    "name", ["../evil.jpg", "a/../../evil.jpg", "/etc/evil.jpg", "C:/evil.jpg", "a\\..\\evil.jpg"]
)
def test_refuses_members_that_leave_the_folder(tmp_path: Path, name: str) -> None:
    archive = zipped(tmp_path / "x.zip", ("a/1.jpg", b"fine"), (name, b"evil"))
    with pytest.raises(UserError, match=r"x\.zip: member .*evil.* leaves the folder"):
        archive.names()


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR])
def test_refuses_links_and_devices(tmp_path: Path, kind: int) -> None:
    link = zipfile.ZipInfo("a/link.jpg")
    link.create_system, link.external_attr = 3, (kind | 0o777) << 16
    with pytest.raises(UserError, match=r"member 'a/link\.jpg' is a link or a device"):
        zipped(tmp_path / "x.zip", (link, b"/etc/passwd")).names()


def test_refuses_excessive_expansion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"member 'a/bomb\.bmp' expands from [\d,]+ to 4,194,304 bytes"):
        zipped(tmp_path / "x.zip", ("a/bomb.bmp", bytes(2**22))).names()
    monkeypatch.setattr(module, "MAX_MEMBER", 1000)
    with pytest.raises(UserError, match=r"member 'a/large\.bmp' expands to"):
        zipped(tmp_path / "y.zip", ("a/large.bmp", bytes(2000)), compression=zipfile.ZIP_STORED).names()


def test_refuses_a_name_that_occurs_twice(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        archive = zipped(tmp_path / "x.zip", ("a/1.jpg", b"one"), ("a/1.jpg", b"two"))
    with pytest.raises(UserError, match=r"member 'a/1\.jpg' occurs twice"):
        archive.names()


def test_names_a_damaged_member(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw")
    path = pack(root, tmp_path / "raw.zip")
    content = bytearray(path.read_bytes())
    position = content.index((root / "c1" / "1.jpg").read_bytes()) + 100
    content[position] ^= 255
    path.write_bytes(content)
    with pytest.raises(
        UserError,
        match=r"raw\.zip: c1/1\.jpg is not a complete image: damaged within the archive: Bad CRC-32",
    ):
        ingest(FolderSource(path=str(path)), IngestSettings(), tmp_path / "out", "mine", 1)


def test_refuses_a_missing_archive(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"(?s)gone\.zip does not exist.*correct the path"):
        ingest(FolderSource(path=str(tmp_path / "gone.zip")), IngestSettings(), tmp_path / "out", "mine")


def test_refuses_a_file_that_is_not_a_zip_archive(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"this is not an archive")
    with pytest.raises(UserError, match=r"x\.zip is not a readable zip archive"):
        Archive(tmp_path / "x.zip").names()
