"""Properties of archives: any member names and any damage are read or refused, and nothing is unpacked."""

import io
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.ingest.files.test_archive import zipped
from tests.data.ingest.files.test_tarball import member, tarred
from unseen.data.ingest.files.archive import Archive, Zip
from unseen.data.ingest.files.tarball import Tarball
from unseen.data.ingest.files.tree import open_archive
from unseen.data.ingest.settings import FolderSource
from unseen.data.ingest.sources.folder import collection
from unseen.runtime.errors import UserError

Members = dict[str, bytes]
PARTS = ("a", "b", "1.jpg", "..", ".", "", "C:", "c:x", "\\", "..\\x", ".DS_Store", "é", "x" * 120)
JOINED = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("/".join)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
MEMBERS = st.dictionaries((JOINED | TEXT).filter(bool), st.binary(max_size=20), max_size=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archives")


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def as_zip(path: Path, members: Members) -> Zip:
    zipped(path, *members.items())
    return Zip(path)


def as_tar(path: Path, members: Members) -> Tarball:
    tarred(path, *((member(name), content) for name, content in members.items()))
    return Tarball(path, path.parent)


@pytest.mark.slow
@pytest.mark.parametrize("write", [as_zip, as_tar])
@given(members=MEMBERS)
@settings(max_examples=60)
def test_members_of_any_name_are_read_in_place_or_refused(
    folder: Path, write: Callable[[Path, Members], Zip | Tarball], members: Members
) -> None:
    with TemporaryDirectory(dir=folder) as directory:
        inside = Path(directory) / "inside"
        inside.mkdir()
        with suppress(UserError):
            archive = write(inside / "x", members)
            for name in archive.names():
                assert ".." not in PurePosixPath(name).parts
                assert not PurePosixPath(name).is_absolute()
                assert archive.read(name) in members.values()
        files = files_below(Path(directory))
        assert files in (["inside", "inside/x"], ["inside", "inside/x", "inside/x.tar"])


CONTENT = {"set/a/1.jpg": b"one", "set/b/2.jpg": bytes(2000), "set/é.jpg": b"two"}
LABELS = b"path,label\na/1.jpg,red\n"


def plain_zip() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**CONTENT, "set/labels.csv": LABELS}.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return stream.getvalue()


def plain_tar(mode: str, format: int) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode, format=format) as archive:
        for name, content in CONTENT.items():
            info = member(name if format == tarfile.USTAR_FORMAT else f"{name}{'é' * 60}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def damage(content: bytes) -> st.SearchStrategy[bytes]:
    """`content` cut short, with bytes changed, removed or inserted."""
    place = st.integers(0, len(content) - 1)
    values = st.sampled_from([0, 1, 0x2F, 0x39, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)

    def changed(edits: list[tuple[int, int]]) -> bytes:
        octets = bytearray(content)
        for position, value in edits:
            octets[position] = value
        return bytes(octets)

    return st.one_of(
        place.map(lambda end: content[:end]),
        st.lists(st.tuples(place, values), min_size=1, max_size=4).map(changed),
        st.tuples(place, place).map(lambda ends: content[: min(ends)] + content[max(ends) :]),
        st.tuples(place, st.binary(max_size=8)).map(lambda x: content[: x[0]] + x[1] + content[x[0] :]),
    )


ZIP = plain_zip()
LIST = ZIP.index(b"PK\1\2")  # where the list of members begins
ZIPS = damage(ZIP) | damage(ZIP[LIST:]).map(lambda end: ZIP[:LIST] + end)
TAR = plain_tar("w", tarfile.PAX_FORMAT)
TARS = st.one_of(
    damage(TAR),
    damage(plain_tar("w", tarfile.USTAR_FORMAT)),
    damage(plain_tar("w", tarfile.GNU_FORMAT)),
    damage(plain_tar("w:gz", tarfile.USTAR_FORMAT)),
)


def read_or_refuse(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with suppress(UserError):
        archive = open_archive(path, path.parent)
        for name in archive.names():
            with suppress(ValueError):  # of a damaged member
                assert archive.read(name) is not None


@pytest.mark.slow
@given(content=ZIPS | TARS)
@settings(max_examples=200)
def test_a_damaged_archive_is_read_or_refused(folder: Path, content: bytes) -> None:
    read_or_refuse(folder / "x", content)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "places"),
    [(ZIP, range(LIST, len(ZIP))), (TAR, [place for place in range(1536) if TAR[place]])],
    ids=["zip", "tar"],
)
def test_each_byte_of_the_headers_may_be_wrong(folder: Path, content: bytes, places: Sequence[int]) -> None:
    for place in places:
        for value in (0, 0x7F, 0xFF):
            read_or_refuse(folder / "x", content[:place] + bytes([value]) + content[place + 1 :])


@given(content=ZIPS)
@settings(max_examples=60)
def test_a_damaged_archive_of_a_user_is_listed_or_refused(folder: Path, content: bytes) -> None:
    (folder / "x.zip").write_bytes(content)
    with suppress(UserError):
        assert collection(FolderSource(path=str(folder / "x.zip"), labels="labels.csv")).pictures
    with suppress(UserError):
        assert Archive(folder / "x.zip").names() is not None


def test_a_member_without_a_name_is_refused(folder: Path) -> None:
    header = ZIP.rindex(b"PK\1\2")  # of the last member of the list
    name = header + 46
    size = int.from_bytes(ZIP[header + 28 : header + 30], "little")
    end = ZIP.index(b"PK\5\6")
    length = (end - LIST - size).to_bytes(4, "little")
    listed = ZIP[LIST : header + 28] + bytes(2) + ZIP[header + 30 : name] + ZIP[name + size : end]
    (folder / "x").write_bytes(ZIP[:LIST] + listed + ZIP[end : end + 12] + length + ZIP[end + 16 :])
    with pytest.raises(UserError, match="member '' has no name"):
        Zip(folder / "x").names()
