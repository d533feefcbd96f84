"""Tar archives: reading of slices of the inflated file, refusal of dangerous and damaged archives."""

import gzip
import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.data.ingest import miniatures
from unseen.data.ingest.files import archive as limits
from unseen.data.ingest.files import tarball as module
from unseen.data.ingest.files.tarball import Tarball, inflate, scratch_directory
from unseen.data.ingest.files.tree import Tree, open_archive
from unseen.data.ingest.releases import PUBLISHED
from unseen.runtime.errors import UserError

FILES = {"./set/a/1.jpg": b"one", "set/b/2.jpg": b"two" * 1000, "list.txt": b""}


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def tarred(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_lists_and_reads_members_in_all_tar_formats(
    tmp_path: Path, scratch: Path, mode: str, format: int
) -> None:
    long = "set/" + "n" * 60 + "/" + "m" * 90 + ".jpg"
    with tarfile.open(tmp_path / "x.tgz", mode, format=format) as archive:
        for name, content in (FILES | {long: b"long"}).items():
            info = member(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    files = Tarball(tmp_path / "x.tgz", scratch)
    assert files.names() == sorted(["list.txt", "set/a/1.jpg", "set/b/2.jpg", long])
    read = pickle.loads(pickle.dumps(files.read))
    contents = [read(name) for name in ("set/a/1.jpg", "set/b/2.jpg", "list.txt", long)]
    assert contents == [b"one", b"two" * 1000, b"", b"long"]
    assert "set/a/1.jpg" in files
    assert "set/a/9.jpg" not in files
    assert len(list(scratch.iterdir())) == (mode == "w:gz"), "a plain tar is read in place"


@pytest.mark.parametrize("name", ["../evil.jpg", "a/../../evil.jpg", "/etc/evil.jpg"])
def test_refuses_members_that_leave_the_folder(tmp_path: Path, scratch: Path, name: str) -> None:
    path = tarred(tmp_path / "x.tgz", (member("a/1.jpg"), b"fine"), (member(name), b"evil"))
    with pytest.raises(UserError, match=r"x\.tgz: member .*evil.* leaves the folder"):
        Tarball(path, scratch)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_refuses_links_and_devices(tmp_path: Path, scratch: Path, kind: bytes) -> None:
    link = member("a/2.jpg", kind, "/etc/passwd")
    path = tarred(tmp_path / "x.tgz", (member("a/1.jpg"), b"fine"), (link, b""))
    with pytest.raises(UserError, match=r"member 'a/2\.jpg' is a link or a device"):
        Tarball(path, scratch)


def test_refuses_a_sparse_file(tmp_path: Path, scratch: Path) -> None:
    path = tarred(tmp_path / "x.tgz", (member("a/1.jpg", tarfile.GNUTYPE_SPARSE), b""))
    with pytest.raises(UserError, match=r"member 'a/1\.jpg' is a sparse file"):
        Tarball(path, scratch)


def test_refuses_a_name_that_occurs_twice(tmp_path: Path, scratch: Path) -> None:
    path = tarred(tmp_path / "x.tgz", (member("a/1.jpg"), b"one"), (member("./a/1.jpg"), b"two"))
    with pytest.raises(UserError, match=r"member '\./a/1\.jpg' occurs twice"):
        Tarball(path, scratch)


def test_refuses_excessive_expansion(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tarred(tmp_path / "x.tgz", (member("a/1.bmp"), bytes(2**22)))
    assert Tarball(path, scratch).read("a/1.bmp") == bytes(2**22), (
        "a small archive may consist mostly of zeros"
    )
    monkeypatch.setattr(module, "ALLOWED_EXPANSION", 2**20)
    with pytest.raises(UserError, match=r"x\.tgz expands from [\d,]+ bytes to more than 1,048,576"):
        Tarball(path, scratch)
    monkeypatch.setattr(module, "ALLOWED_EXPANSION", 2**26)
    monkeypatch.setattr(limits, "MAX_MEMBER", 1000)
    with pytest.raises(UserError, match=r"member 'a/1\.bmp' expands to 4 MiB"):
        Tarball(path, scratch)


def test_refuses_a_truncated_tarball_with_the_published_size(tmp_path: Path, scratch: Path) -> None:
    path = miniatures.tgz(miniatures.cub(), tmp_path / "CUB_200_2011.tgz")
    path.write_bytes(path.read_bytes()[:-200])
    expected = (
        r"(?s)CUB_200_2011\.tgz is truncated: it ends after [\d,]+ bytes.*published file is "
        r"CUB_200_2011\.tgz \(1,150,585,339.*The file has "
    )
    with pytest.raises(UserError, match=expected):
        Tree(path, PUBLISHED["cub"], scratch)
    plain = miniatures.tgz(miniatures.cub(), tmp_path / "x.tar", "w")
    names = Tarball(plain, scratch).names()
    for size in (len(plain.read_bytes()) // 2, 700):
        plain.write_bytes(miniatures.tgz(miniatures.cub(), tmp_path / "y.tar", "w").read_bytes()[:size])
        with pytest.raises(UserError, match=r"x\.tar is (truncated or damaged|not a readable tar archive)"):
            Tarball(plain, scratch)
    assert len(names) == 19


def test_refuses_a_damaged_tarball(tmp_path: Path, scratch: Path) -> None:
    path = miniatures.tgz(miniatures.cub(), tmp_path / "x.tgz")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"x\.tgz is damaged at byte [\d,]+ or after"):
        Tarball(path, scratch)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<!DOCTYPE html><html>404</html>", r"begins with b'<!DOCTYPE html>.*appears to be a web page"),
        (b"", r"neither a zip nor a tar archive"),
        (gzip.compress(b"no tar" * 1000, mtime=0), r"not a readable tar archive"),
        (b"PK\3\4 but no zip", r"not a readable zip archive"),
    ],
)
def test_refuses_files_that_are_not_archives(
    tmp_path: Path, scratch: Path, content: bytes, message: str
) -> None:
    (tmp_path / "x.tgz").write_bytes(content)
    with pytest.raises(UserError, match=message):
        open_archive(tmp_path / "x.tgz", scratch)


@pytest.mark.parametrize(
    "content",
    [bytes(9_000_000), b"abc" * 3_000_001, b"", b"x"],
    ids=["zeros", "period", "empty", "byte"],
)
@pytest.mark.parametrize(
    "tail",
    [bytes, lambda: gzip.compress(b"second"), lambda: bytes(512)],
    ids=["nothing", "second member", "zeros"],
)
def test_inflates_all_gzip_members_and_ignores_padding(
    tmp_path: Path, content: bytes, tail: Callable[[], bytes]
) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(content, 9) + tail())
    expected = content + (b"second" if tail().startswith(b"\x1f\x8b") else b"")
    assert inflate(tmp_path / "x.gz", tmp_path / "x").read_bytes() == expected


def test_removes_the_scratch_directory_and_those_of_killed_processes(tmp_path: Path) -> None:
    (tmp_path / "shards/.cub.abc.scratch").mkdir(parents=True)
    (tmp_path / "shards/.cub.abc.scratch/x.tar").write_bytes(b"left")
    (tmp_path / "shards/.cars.abc.scratch").mkdir()
    with scratch_directory(tmp_path / "shards/cub") as scratch:
        assert list(scratch.iterdir()) == []
        assert [path.name for path in (tmp_path / "shards").glob(".cub*")] == [scratch.name]
    remaining = [path.name for path in (tmp_path / "shards").iterdir()]
    assert remaining == [".cars.abc.scratch"], "the directory of another data set may be in use"


def test_refuses_a_broken_header(tmp_path: Path, scratch: Path) -> None:
    path = miniatures.tgz(miniatures.cub(), tmp_path / "x.tar", "w")
    content = bytearray(path.read_bytes())
    content[content.index(b"ustar", 4096)] ^= 255
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"x\.tar is truncated or damaged"):
        Tarball(path, scratch)
