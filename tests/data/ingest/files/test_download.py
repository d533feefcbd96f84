"""Downloads from a server that closes connections, sends other lengths and bytes, does not support ranges, or
responds with errors."""

import hashlib
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from unseen.data.ingest.files import download as module
from unseen.data.ingest.files.download import download, fetch, mismatch
from unseen.data.ingest.releases import PUBLISHED, Published, PublishedFile
from unseen.runtime.errors import UserError

CONTENT = bytes(range(256)) * 4096  # 1 MiB
OTHER = CONTENT[::-1]


class Server:
    """Serves one file. `script` contains the responses to the requests in order; the last entry is the
    response to all further requests."""

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
        self.http.handle_error = lambda *_: None  # the tests include clients that close the connection
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
    """The response of a server that supports ranges."""
    if begin >= len(content):
        send(handler, 416, b"", Content_Range=f"bytes */{len(content)}")
    else:
        content_range = f"bytes {begin}-{len(content) - 1}/{total or len(content)}"
        send(handler, 206, content[begin:], cut, Content_Range=content_range)


def whole(handler: Any, begin: int) -> None:
    """The response of a server that does not support ranges."""
    send(handler, 200, CONTENT)


def stops(after: int) -> Callable[[Any, int], None]:
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
    md5, sha256 = hashlib.md5(CONTENT).hexdigest(), hashlib.sha256(CONTENT).hexdigest()
    return PublishedFile("set.tgz", len(CONTENT), md5, sha256, server.url)


SET = Published("The Set", "https://example.org/the-set", (), "Ask its authors.")


def download_and_check(file: PublishedFile, folder: Path) -> None:
    """Downloads the file and checks that the folder contains only the complete file."""
    assert download(file, folder, SET) == folder / "set.tgz"
    assert (folder / "set.tgz").read_bytes() == CONTENT
    assert [path.name for path in folder.iterdir()] == ["set.tgz"]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("answer", [whole, part])
def test_downloads_a_file_once(
    server: Server, file: PublishedFile, tmp_path: Path, answer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server.script = [answer]
    download_and_check(file, tmp_path / "new/folder")
    assert "fetch set.tgz: 1/1 MiB" in capsys.readouterr().err
    download_and_check(file, tmp_path / "new/folder")
    assert len(server.ranges) == 1, "an existing correct file is not downloaded again"


def test_resumes_after_broken_connections(server: Server, file: PublishedFile, tmp_path: Path) -> None:
    server.script = [stops(300_000), stops(300_000), fails(503), stops(0), part]
    download_and_check(file, tmp_path)
    assert server.ranges == [0, 300_000, 600_000, 600_000, 600_000]


def test_does_not_wait_for_a_server_that_stops_sending(
    server: Server, file: PublishedFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    asked_again, waited = threading.Event(), []

    def silent(handler: Any, begin: int) -> None:
        waited.append(asked_again.wait(30))

    def answers(handler: Any, begin: int) -> None:
        asked_again.set()
        part(handler, begin)

    server.script = [silent, answers]
    download_and_check(file, tmp_path)
    assert asked_again.wait(30)
    assert waited in ([], [True]), "the second request came while the first one had no answer"


def test_resumes_after_a_failed_download(server: Server, file: PublishedFile, tmp_path: Path) -> None:
    server.script = [stops(400_000), fails(404)]
    expected = (
        r"(?s)set\.tgz cannot be fetched: the server responds 404.*example\.org/the-set\. Ask its authors"
    )
    with pytest.raises(UserError, match=expected):
        download(file, tmp_path, SET)
    assert names_in(tmp_path) == [".set.tgz.partial"]
    server.script = [part]
    download_and_check(file, tmp_path)
    assert server.ranges[-1] == 400_000


def test_starts_again_if_the_server_has_no_ranges(
    server: Server, file: PublishedFile, tmp_path: Path
) -> None:
    (tmp_path / ".set.tgz.partial").write_bytes(b"x" * 1000)
    download_and_check(file, tmp_path)
    assert server.ranges == [1000]


@pytest.mark.parametrize("facts", [{}, {"size": None, "md5": None, "sha256": None}], ids=["all", "none"])
def test_discards_a_range_that_starts_at_another_byte(
    server: Server, file: PublishedFile, tmp_path: Path, facts: dict[str, None]
) -> None:
    """Also without published facts, with which the file could be checked afterwards."""
    (tmp_path / ".set.tgz.partial").write_bytes(CONTENT[:1000])
    other_range = {"Content_Range": "bytes 500-1048575/1048576"}
    server.script = [lambda handler, begin: send(handler, 206, CONTENT[500:], **other_range), part]
    download_and_check(replace(file, **facts), tmp_path)
    assert server.ranges == [1000, 0]


def test_downloads_a_changed_file_in_one_response(
    server: Server, file: PublishedFile, tmp_path: Path
) -> None:
    (tmp_path / ".set.tgz.partial").write_bytes(OTHER[:1000])
    server.script = [part]
    download_and_check(file, tmp_path)
    assert server.ranges == [1000, 0]


@pytest.mark.parametrize("size", [len(CONTENT), len(CONTENT) + 5])
def test_accepts_a_complete_partial_file_and_discards_a_longer_one(
    server: Server, file: PublishedFile, tmp_path: Path, size: int
) -> None:
    (tmp_path / ".set.tgz.partial").write_bytes((CONTENT + b"12345")[:size])
    server.script = [part]
    download_and_check(file, tmp_path)
    assert server.ranges == ([] if size == len(CONTENT) else [0])


def test_uses_the_size_of_the_server_without_a_published_size(
    server: Server, file: PublishedFile, tmp_path: Path
) -> None:
    server.script = [stops(300_000), part]
    download_and_check(replace(file, size=None), tmp_path / "a")
    (tmp_path / "b").mkdir()
    for before in (CONTENT, CONTENT + b"12345"):
        (tmp_path / "b/.set.tgz.partial").write_bytes(before)
        download_and_check(replace(file, size=None), tmp_path / "b")
        (tmp_path / "b/set.tgz").unlink()
    assert server.ranges == [0, 300_000, len(CONTENT), len(CONTENT) + 5, 0]


def test_refuses_other_sizes(server: Server, file: PublishedFile, tmp_path: Path) -> None:
    server.script = [lambda handler, begin: send(handler, 200, CONTENT[:-7])]
    expected = r"(?s)has 1,048,569 bytes; the published set\.tgz has 1,048,576\..*example\.org"
    with pytest.raises(UserError, match=expected):
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
            return  # the client closed the connection

    server.script = [endless]
    expected = r"is not the published set\.tgz: it has [\d,]+ bytes instead of 1,048,576"
    with pytest.raises(UserError, match=expected):
        download(file, tmp_path / "endless", SET)
    assert names_in(tmp_path / "endless") == []


def test_refuses_and_deletes_other_bytes(server: Server, file: PublishedFile, tmp_path: Path) -> None:
    server.script = [lambda handler, begin: part(handler, begin, OTHER)]
    expected = r"(?s)not the published set\.tgz: it has md5 \w{32} instead of \w{32}.*Ask its authors"
    with pytest.raises(UserError, match=expected):
        download(file, tmp_path, SET)
    assert names_in(tmp_path) == []
    assert server.ranges == [0], "a file from one response is not downloaded again"
    with pytest.raises(UserError, match=r"it has sha256 \w{64} instead of"):
        download(replace(file, md5=None), tmp_path, SET)


@pytest.mark.parametrize(
    "answer", [fails(500), stops(0), lambda handler, begin: handler.wfile.write(b"nonsense\r\n\r\n")]
)
def test_fails_after_six_attempts_without_a_byte(
    server: Server, file: PublishedFile, tmp_path: Path, answer: Any
) -> None:
    server.script = [answer]
    expected = r"(?s)cannot be fetched: .*, 6 times in a row.*Run the same command later; it resumes"
    with pytest.raises(UserError, match=expected):
        download(file, tmp_path, SET)
    assert len(server.ranges) == 6


def test_fails_without_a_server(file: PublishedFile, server: Server, tmp_path: Path) -> None:
    server.http.server_close()
    with pytest.raises(UserError, match=r"cannot be fetched: .*[Rr]efused"):
        download(file, tmp_path, SET)


def test_refuses_and_keeps_an_existing_file_with_other_bytes(
    server: Server, file: PublishedFile, tmp_path: Path
) -> None:
    (tmp_path / "set.tgz").write_bytes(OTHER)
    with pytest.raises(UserError, match=r"set\.tgz already exists, and it has md5"):
        download(file, tmp_path, SET)
    (tmp_path / "set.tgz").write_bytes(b"short")
    with pytest.raises(UserError, match=r"already exists, and it has 5 bytes instead of 1,048,576"):
        download(file, tmp_path, SET)
    assert (tmp_path / "set.tgz").read_bytes() == b"short"
    assert server.ranges == []


def test_refuses_a_second_download_of_the_same_file(
    server: Server, file: PublishedFile, tmp_path: Path
) -> None:
    errors: list[str] = []

    def start_second_download(handler: Any, begin: int) -> None:
        with pytest.raises(UserError, match="Another process is fetching") as error:
            download(file, tmp_path, SET)
        errors.append(str(error.value))
        part(handler, begin)

    server.script = [start_second_download]
    download_and_check(file, tmp_path)
    assert len(errors) == 1


def test_refuses_a_disk_that_is_too_small(
    server: Server, file: PublishedFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        f_bavail, f_frsize = 10, 1000

    monkeypatch.setattr(module.os, "fstatvfs", lambda _: Full)
    with pytest.raises(UserError, match=r"needs 1,048,576 more bytes; the disk has 10,000 free"):
        download(file, tmp_path, SET)


def test_fetches_a_set_by_name(
    server: Server, file: PublishedFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlinked = PublishedFile("other.zip")
    layouts = ((unlinked,), (replace(file, folder="Img/"),))
    monkeypatch.setitem(PUBLISHED, "two", Published("Two", "https://example.org", layouts))
    fetch("two", str(tmp_path))
    assert (tmp_path / "Img/set.tgz").read_bytes() == CONTENT
    with pytest.raises(UserError, match=r"(?s)Unknown published data set 'birds'.*cars, .*cub, .*sop"):
        fetch("birds", str(tmp_path))


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("cars", r"removed in 2023.*car_ims\.tgz \(md5 d5c8f0aa"),
        ("inshop", r"agreement.*Img/img\.zip and Eval/"),
    ],
)
def test_describes_how_to_get_sets_without_a_direct_link(tmp_path: Path, dataset: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"(?s)has no official direct link\..*{message}"):
        fetch(dataset, str(tmp_path / "raw"))
    assert not (tmp_path / "raw").exists()


def test_prints_the_sha256_of_a_file_without_a_published_hash(
    server: Server, file: PublishedFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    download_and_check(replace(file, md5=None, sha256=None), tmp_path)
    note = f"set.tgz was not checked: its authors publish no hash. Its sha256 is {file.sha256}."
    assert note in capsys.readouterr().err


def test_mismatch_compares_size_and_hashes(file: PublishedFile, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(CONTENT)
    assert mismatch(tmp_path / "a", file) is None
    assert mismatch(tmp_path / "a", PublishedFile("a")) is None
    assert mismatch(tmp_path / "a", replace(file, size=5)) == "has 1,048,576 bytes instead of 5"


def test_the_command_prints_errors_and_exits_with_status_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "unseen", "data", "cars", str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert process.stderr.startswith("error: Cars-196 has no official direct link.")
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("folder", ["/proc", "/proc/nothing", "/etc/passwd", "/etc/passwd/x"])
def test_refuses_a_folder_that_cannot_be_created(folder: str) -> None:
    with pytest.raises(UserError, match=r"/proc accepts no new file|/etc/passwd is not a directory"):
        fetch("cub", folder)


def test_refuses_a_pipe_or_directory_in_the_place_of_the_file(tmp_path: Path) -> None:
    layout = PUBLISHED["cub"].linked_layout
    assert layout is not None
    target = tmp_path / layout[0].folder / layout[0].name
    target.mkdir(parents=True)
    with pytest.raises(UserError, match="is a directory, expected a file or a new path"):
        fetch("cub", str(tmp_path))
    target.rmdir()
    os.mkfifo(target)
    with pytest.raises(UserError, match="is a named pipe, socket or device"):
        fetch("cub", str(tmp_path))
