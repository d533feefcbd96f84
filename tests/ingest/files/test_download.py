"""Downloads against a server that breaks off, lies about lengths and bytes, knows no ranges, answers errors
and starts anew."""

import hashlib
import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.ingest.files import download as module
from pipeline.ingest.files.download import download, fetch, mismatch
from pipeline.ingest.releases import PUBLISHED, Published, PublishedFile
from pipeline.runtime.errors import UserError

CONTENT = bytes(range(256)) * 4096  # 1 MiB
OTHER = CONTENT[::-1]


class Server:
    """Serves one file. `script` says what becomes of each request in turn, its last entry of all further
    ones."""

    def __init__(self) -> None:
        self.script: list[Callable[[Any, int], None]] = [whole]
        self.ranges: list[int] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                match = re.match(r"bytes=(\d+)-$", self.headers.get("Range", ""))
                begin = int(match[1]) if match else 0
                outer.ranges.append(begin)
                outer.script[min(len(outer.ranges), len(outer.script)) - 1](self, begin)

            def log_message(self, *_: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.handle_error = lambda *_: None  # a client that hangs up is what is tested
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/set.tgz"


def send(handler: Any, status: int, body: bytes, cut: int | None = None, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content_Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body[:cut])


def part(
    handler: Any, begin: int, content: bytes = CONTENT, cut: int | None = None, total: int | None = None
) -> None:
    """A server that knows ranges."""
    if begin >= len(content):
        send(handler, 416, b"", Content_Range=f"bytes */{len(content)}")
    else:
        send(
            handler,
            206,
            content[begin:],
            cut,
            Content_Range=f"bytes {begin}-{len(content) - 1}/{total or len(content)}",
        )


def whole(handler: Any, begin: int) -> None:
    """A server that knows none."""
    send(handler, 200, CONTENT)


def breaks_off(after: int) -> Callable[[Any, int], None]:
    return lambda handler, begin: part(handler, begin, cut=after)


def fails(status: int) -> Callable[[Any, int], None]:
    return lambda handler, begin: send(handler, status, b"no")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(module, "WAIT", 0.0)
    monkeypatch.setattr(module, "TIMEOUT", 5.0)
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()


@pytest.fixture
def file(server: Server) -> PublishedFile:
    return PublishedFile(
        "set.tgz",
        len(CONTENT),
        hashlib.md5(CONTENT).hexdigest(),
        hashlib.sha256(CONTENT).hexdigest(),
        server.url,
    )


SET = Published("The Set", "https://example.org/the-set", (), "Ask its authors.")


def get(file: PublishedFile, folder: Path) -> None:
    """Fetches, and checks that all of the file is there and nothing else."""
    assert download(file, folder, SET) == folder / "set.tgz"
    assert (folder / "set.tgz").read_bytes() == CONTENT
    assert [path.name for path in folder.iterdir()] == ["set.tgz"]


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("answer", [whole, part])
def test_a_plain_download(
    server: Server, file: PublishedFile, tmp_path: Path, answer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server.script = [answer]
    get(file, tmp_path / "new/folder")
    assert "fetch set.tgz: 1/1 MiB" in capsys.readouterr().err
    get(file, tmp_path / "new/folder")
    assert len(server.ranges) == 1, "what is there and right is not fetched again"


def test_a_server_that_breaks_off_is_asked_for_the_rest(
    server: Server, file: PublishedFile, tmp_path: Path
) -> None:
    server.script = [breaks_off(300_000), breaks_off(300_000), fails(503), breaks_off(0), part]
    get(file, tmp_path)
    assert server.ranges == [0, 300_000, 600_000, 600_000, 600_000]


def test_an_ended_process_is_gone_on_with(server: Server, file: PublishedFile, tmp_path: Path) -> None:
    server.script = [breaks_off(400_000), fails(404)]
    with pytest.raises(
        UserError,
        match=(
            r"(?s)set\.tgz cannot be fetched: the server answers 404.*example\.org/the-set\. Ask its authors"
        ),
    ):
        download(file, tmp_path, SET)
    assert left(tmp_path) == [".set.tgz.partial"]
    server.script = [part]
    get(file, tmp_path)
    assert server.ranges[-1] == 400_000


def test_a_server_without_ranges_starts_anew(server: Server, file: PublishedFile, tmp_path: Path) -> None:
    (tmp_path / ".set.tgz.partial").write_bytes(b"x" * 1000)
    get(file, tmp_path)
    assert server.ranges == [1000]


@pytest.mark.parametrize("facts", [{}, {"size": None, "md5": None, "sha256": None}], ids=["all", "none"])
def test_a_range_that_begins_elsewhere_is_not_believed(
    server: Server, file: PublishedFile, tmp_path: Path, facts: dict[str, None]
) -> None:
    """Also without published facts, with which the file could be checked afterwards."""
    (tmp_path / ".set.tgz.partial").write_bytes(CONTENT[:1000])
    server.script = [
        lambda handler, begin: send(handler, 206, CONTENT[500:], Content_Range="bytes 500-1048575/1048576"),
        part,
    ]
    get(replace(file, **facts), tmp_path)
    assert server.ranges == [1000, 0]


def test_a_file_that_changed_in_between_is_fetched_whole(
    server: Server, file: PublishedFile, tmp_path: Path
) -> None:
    (tmp_path / ".set.tgz.partial").write_bytes(OTHER[:1000])
    server.script = [part]
    get(file, tmp_path)
    assert server.ranges == [1000, 0]


@pytest.mark.parametrize("there", [len(CONTENT), len(CONTENT) + 5])
def test_a_partial_file_of_full_size_or_more(
    server: Server, file: PublishedFile, tmp_path: Path, there: int
) -> None:
    (tmp_path / ".set.tgz.partial").write_bytes((CONTENT + b"12345")[:there])
    server.script = [part]
    get(file, tmp_path)
    assert server.ranges == ([] if there == len(CONTENT) else [0])


def test_without_a_published_size_the_end_is_that_of_the_server(
    server: Server, file: PublishedFile, tmp_path: Path
) -> None:
    server.script = [breaks_off(300_000), part]
    get(replace(file, size=None), tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/.set.tgz.partial").write_bytes(CONTENT)
    get(replace(file, size=None), tmp_path / "b")


def test_a_server_that_lies_about_the_length(server: Server, file: PublishedFile, tmp_path: Path) -> None:
    server.script = [lambda handler, begin: send(handler, 200, CONTENT[:-7])]
    with pytest.raises(
        UserError, match=r"(?s)has 1,048,569 bytes; the published set\.tgz has 1,048,576\..*example\.org"
    ):
        download(file, tmp_path / "short", SET)
    server.script = [lambda handler, begin: send(handler, 200, CONTENT + b"more")]
    with pytest.raises(UserError, match=r"has 1,048,580 bytes; the published"):
        download(file, tmp_path / "long", SET)

    def endless(handler: Any, begin: int) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(64):
                handler.wfile.write(CONTENT)
        except OSError:
            return  # the client had enough

    server.script = [endless]
    with pytest.raises(
        UserError, match=r"is not the published set\.tgz: it has [\d,]+ bytes instead of 1,048,576"
    ):
        download(file, tmp_path / "endless", SET)
    assert left(tmp_path / "endless") == []


def test_other_bytes_are_refused_and_not_left(server: Server, file: PublishedFile, tmp_path: Path) -> None:
    server.script = [lambda handler, begin: part(handler, begin, OTHER)]
    with pytest.raises(
        UserError,
        match=r"(?s)not the published set\.tgz: it has md5 \w{32} instead of \w{32}.*Ask its authors",
    ):
        download(file, tmp_path, SET)
    assert left(tmp_path) == []
    assert server.ranges == [0], "one answer brought it all: another would bring the same"
    with pytest.raises(UserError, match=r"it has sha256 \w{64} instead of"):
        download(replace(file, md5=None), tmp_path, SET)


@pytest.mark.parametrize(
    "answer", [fails(500), breaks_off(0), lambda handler, begin: handler.wfile.write(b"nonsense\r\n\r\n")]
)
def test_a_server_that_never_does_ends_the_attempts(
    server: Server, file: PublishedFile, tmp_path: Path, answer: Any
) -> None:
    server.script = [answer]
    with pytest.raises(
        UserError,
        match=r"(?s)cannot be fetched: .*, 6 times in a row.*Run the same command later: it goes on",
    ):
        download(file, tmp_path, SET)
    assert len(server.ranges) == 6


def test_no_server_at_all(file: PublishedFile, server: Server, tmp_path: Path) -> None:
    server.http.server_close()
    with pytest.raises(UserError, match=r"cannot be fetched: .*[Rr]efused"):
        download(file, tmp_path, SET)


def test_a_file_of_that_name_with_other_bytes_is_kept(
    server: Server, file: PublishedFile, tmp_path: Path
) -> None:
    (tmp_path / "set.tgz").write_bytes(OTHER)
    with pytest.raises(UserError, match=r"set\.tgz is there already, and has md5"):
        download(file, tmp_path, SET)
    (tmp_path / "set.tgz").write_bytes(b"short")
    with pytest.raises(UserError, match=r"there already, and has 5 bytes instead of 1,048,576"):
        download(file, tmp_path, SET)
    assert (tmp_path / "set.tgz").read_bytes() == b"short"
    assert server.ranges == []


def test_two_processes_do_not_fetch_the_same_file(
    server: Server, file: PublishedFile, tmp_path: Path
) -> None:
    found: list[str] = []

    def meanwhile(handler: Any, begin: int) -> None:
        with pytest.raises(UserError, match="Another process is fetching") as error:
            download(file, tmp_path, SET)
        found.append(str(error.value))
        part(handler, begin)

    server.script = [meanwhile]
    get(file, tmp_path)
    assert len(found) == 1


def test_a_disk_that_is_too_small(
    server: Server, file: PublishedFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        f_bavail, f_frsize = 10, 1000

    monkeypatch.setattr(module.os, "fstatvfs", lambda _: Full)
    with pytest.raises(UserError, match=r"takes 1,048,576 more bytes, the disk has room for 10,000"):
        download(file, tmp_path, SET)


def test_the_set_by_name(
    server: Server, file: PublishedFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlinked = PublishedFile("other.zip")
    monkeypatch.setitem(
        PUBLISHED,
        "two",
        Published("Two", "https://example.org", ((unlinked,), (replace(file, folder="Img/"),))),
    )
    fetch("two", str(tmp_path))
    assert (tmp_path / "Img/set.tgz").read_bytes() == CONTENT
    with pytest.raises(UserError, match=r"(?s)no published data set 'birds'.*cars, .*cub, .*sop"):
        fetch("birds", str(tmp_path))


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ("cars", r"gone since 2023.*car_ims\.tgz \(md5 d5c8f0aa"),
        ("inshop", r"agreement.*Img/img\.zip and Eval/"),
    ],
)
def test_sets_without_a_direct_link(tmp_path: Path, dataset: str, said: str) -> None:
    with pytest.raises(UserError, match=rf"(?s)has no official direct link\..*{said}"):
        fetch(dataset, str(tmp_path / "raw"))
    assert not (tmp_path / "raw").exists()


def test_a_file_whose_hash_is_unknown_is_named_with_the_one_it_has(
    server: Server, file: PublishedFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    get(replace(file, md5=None, sha256=None), tmp_path)
    assert (
        f"set.tgz could not be checked: its authors publish no hash. Its sha256 is {file.sha256}."
        in capsys.readouterr().err
    )


def test_mismatch_reads_size_and_hashes(file: PublishedFile, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(CONTENT)
    assert mismatch(tmp_path / "a", file) is None
    assert mismatch(tmp_path / "a", PublishedFile("a")) is None
    assert mismatch(tmp_path / "a", replace(file, size=5)) == "has 1,048,576 bytes instead of 5"


def test_the_command_ends_with_a_message_and_status_one(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "unseen", "data", "cars", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: Cars-196 has no official direct link.")
    assert "Traceback" not in ended.stderr
