"""Requests that the service refuses: no photo, too large, too slow, too many, without the token."""

import contextlib
import http.client
import io
import logging
import socket
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import pillow_heif
import pytest
from PIL import Image

from tests.photos import picture
from tests.unseen_search.service.running import Reply, Server
from unseen_search.catalog.catalog import Catalog
from unseen_search.service import app as service
from unseen_search.service import server as limits


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"", 422, "The body is empty"),
        (b"no picture", 422, "cannot be read as a picture"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 422, "cannot be read as a picture"),
        (b"\xff\xd8\xff" + bytes(200), 422, "cannot be read as a picture"),
        (picture(7)[:-40], 422, "cannot be read as a picture"),
        (bytes(100_001), 413, "at most 100,000 bytes"),
    ],
)
def test_refuses_what_is_no_photo_and_continues(
    server: Server, photos: Path, body: bytes, status: int, reason: str
) -> None:
    reply = server.find(body)
    assert reply.status == status
    assert reason in reply.json["detail"]
    assert server.find((photos / "product 00/0.png").read_bytes()).status == 200


@pytest.mark.parametrize("form", ["PNG", "JPEG", "HEIF"])
def test_refuses_too_many_pixels_before_decoding(
    catalog: Path, photos: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.BytesIO()
    pillow_heif.register_heif_opener()
    Image.new("RGB", (120, 90)).save(stream, form)
    with Server(catalog, largest_pixels=120 * 90 - 1) as server:
        assert server.find((photos / "product 00/0.png").read_bytes()).status == 200
        monkeypatch.setattr(Catalog, "identify", None)
        reply = server.find(stream.getvalue())
    assert reply.status == 413
    assert "120 x 90 pixels, the limit is 10,799 pixels" in reply.json["detail"]


def test_refuses_a_body_without_a_length_as_soon_as_it_is_too_large(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", "/find", (bytes(60_000) for _ in range(2)), encode_chunked=True,
                       headers={"Transfer-Encoding": "chunked"})  # fmt: skip
    assert connection.getresponse().status == 413
    connection.close()


def test_a_connection_that_ends_within_the_photo_is_no_error_of_the_service(
    catalog: Path, photos: Path, caplog: pytest.LogCaptureFixture
) -> None:
    head, counted = (
        b"POST /find HTTP/1.1\r\nHost: 127.0.0.1\r\n",
        'unseen_requests_total{path="/find",status="400"} 2.0',
    )
    bodies = (b"Content-Length: 99\r\n\r\nx", b"Transfer-Encoding: chunked\r\n\r\n1\r\nxyz\r\n0\r\n\r\n")
    logger = logging.getLogger("uvicorn.error")
    with Server(catalog) as server:
        logger.addHandler(caplog.handler)
        for body in bodies:
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(head + body)
        deadline = time.monotonic() + 30
        while counted not in server.request("GET", "/metrics").content.decode():
            assert time.monotonic() < deadline, "the two requests are not counted"
            time.sleep(0.05)
        reply = server.find((photos / "product 00/0.png").read_bytes())
    logger.removeHandler(caplog.handler)
    assert reply.status == 200
    assert [record.message for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize(
    "path",
    [
        *("/photos/CATALOG/PICTURES", "/photos/CATALOG/-1", "/photos/CATALOG/..%2f..%2fetc%2fpasswd"),
        *("/photos/0", "/find?k=0", "/docs", "/health/"),
    ],
)
def test_refuses_other_paths_and_values(server: Server, path: str) -> None:
    health = server.request("GET", "/health").json
    path = path.replace("CATALOG", health["catalog"]).replace("PICTURES", str(health["pictures"]))
    method = "POST" if path.startswith("/find") else "GET"
    assert server.request(method, path, b"x" if method == "POST" else None).status in (404, 422)


def test_a_slow_body_and_a_busy_service_are_refused(
    catalog: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photo, entered, leave = (photos / "product 00/0.png").read_bytes(), threading.Event(), threading.Event()
    find = service._find

    def waiting(*arguments: Any) -> Any:
        entered.set()
        assert leave.wait(30)
        return find(*arguments)

    monkeypatch.setattr(service, "_find", waiting)
    with Server(catalog, concurrent=1, wait=0.2, upload_seconds=0.3) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            slow.sendall(b"POST /find HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nx")
            assert b" 408 " in slow.recv(200).split(b"\r\n")[0]
        replies: list[Reply] = []
        first = threading.Thread(target=lambda: replies.append(server.find(photo)))
        first.start()
        assert entered.wait(30)
        assert server.find(photo).status == 503
        assert server.request("GET", "/health").status == 200
        leave.set()
        first.join()
        assert [reply.status for reply in replies] == [200]


def test_requests_need_the_token(catalog: Path) -> None:
    with Server(catalog, token="secret") as server:
        assert server.find(b"x").status == 401
        assert server.request("POST", "/find", b"x", Authorization="Bearer other").status == 401
        assert server.request("POST", "/find", b"x", Authorization="Bearer secret").status == 422
        assert server.request("GET", "/photos/0/0").status == 401
        assert server.request("GET", "/").status == 200, "the page asks for the token"


def connected(server: Server, first: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    connection.sendall(first)
    return connection


def test_connections_without_a_request_end_and_stop_nobody(
    catalog: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They send nothing, a part of a header byte by byte, or a part of a second header."""
    monkeypatch.setattr(limits, "HEADER_SECONDS", 1.5)
    photo, request = (photos / "product 00/0.png").read_bytes(), b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    with Server(catalog) as server:
        idle = [connected(server, first) for first in (b"", request) for _ in range(100)]
        second = connected(server, request + b"\r\n" + request)
        assert server.find(photo).status == 200
        slow = connected(server)
        start = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < start + 15:
                slow.sendall(b"G")
                time.sleep(0.1)
        assert time.monotonic() < start + 15, "the connection was closed"
        assert [connection.recv(10) for connection in idle] == [b""] * len(idle)
        answer = b""
        while piece := second.recv(10**6):
            answer += piece
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert answer.count(b"HTTP/1.1") == 1
        assert server.find(photo).status == 200
    for connection in (*idle, second, slow):
        connection.close()


def test_only_the_uploads_above_the_limit_are_refused(
    catalog: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photo, leave, find = (photos / "product 00/0.png").read_bytes(), threading.Event(), service._find
    monkeypatch.setattr(service, "_find", lambda *arguments: leave.wait(60) and find(*arguments))
    replies: list[Reply] = []
    with Server(catalog, concurrent=2, waiting=10, wait=60, client_share=1) as server:
        threads = [threading.Thread(target=lambda: replies.append(server.find(photo))) for _ in range(30)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 30
        while len(replies) < 30 - 12 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [reply.status for reply in replies] == [503] * (30 - 12)
        leave.set()
        for thread in threads:
            thread.join()
        assert sorted(reply.status for reply in replies) == [200] * 12 + [503] * (30 - 12)
        assert server.find(photo).status == 200


def chunked_png(chunks: int) -> bytes:
    """A PNG with empty chunks before its pixels."""
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "PNG")
    content, empty = stream.getvalue(), b"\0\0\0\0zzZz" + zlib.crc32(b"zzZz").to_bytes(4, "big")
    return content[:33] + empty * chunks + content[33:]


@pytest.mark.parametrize(
    "photo",
    [chunked_png(8000), b"\xff\xd8" + b"\xff\xfe\0\2" * 24_000, b"\xff\xd8" + b"\xff" * 60_000],
    ids=["chunks", "markers", "fill bytes"],
)
def test_refuses_a_header_with_too_many_parts(server: Server, photo: bytes) -> None:
    reply = server.find(photo)
    assert reply.status == 422
    assert "cannot be read as a picture" in reply.json["detail"]
    assert server.find(chunked_png(10)).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example:8000"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost:8000", "Origin": "http://localhost:8000"}, 200),
        ({"Host": "[::1]:8000"}, 200),
    ],
)
def test_a_page_of_another_site_reads_nothing_without_a_token(
    server: Server, headers: dict[str, str], status: int
) -> None:
    assert server.request("GET", "/health", **headers).status == status


def test_a_service_with_a_token_may_have_any_name(catalog: Path) -> None:
    with Server(catalog, token="secret") as server:
        assert server.request("GET", "/health", Host="shop.example").status == 200


def test_one_address_has_its_share_of_photos_and_connections(
    catalog: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one is served meanwhile."""
    monkeypatch.setattr(limits, "OF_A_CLIENT", 20)
    photo, header = (photos / "product 00/0.png").read_bytes(), b"POST /find HTTP/1.1\r\nHost: localhost\r\n"
    with Server(catalog, concurrent=2, waiting=6) as server:
        slow = [connected(server, header + b"Content-Length: 9\r\n\r\nx") for _ in range(4)]
        idle = [connected(server) for _ in range(20)]
        assert [connection.recv(1) for connection in idle[16:]] == [b""] * 4, "more than 20 of one address"
        for connection in idle:
            connection.close()
        deadline = time.monotonic() + 30
        while (status := server.find(photo).status) != 503:
            assert time.monotonic() < deadline, status
        other = http.client.HTTPConnection("127.0.0.1", server.port, 30, source_address=("127.0.0.2", 0))
        other.request("POST", "/find", photo)
        assert other.getresponse().status == 200
    for connection in (*slow, other):
        connection.close()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"\r\n--b" * 200, 413),
        (b"--b\r\nContent-Disposition: form-data; filename=x" + b" " * 20_000 + b"\r\n\r\nx\r\n--b--", 422),
    ],
    ids=["parts", "head"],
)
def test_refuses_a_form_with_too_many_parts_or_a_long_head(server: Server, body: bytes, status: int) -> None:
    reply = server.request("POST", "/find", body, **{"Content-Type": "multipart/form-data; boundary=b"})
    assert reply.status == status


def test_answers_of_a_kept_connection_wait_for_no_acknowledgement(server: Server) -> None:
    """A delayed acknowledgement takes 40 ms."""
    connection, seconds = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30), []
    for _ in range(40):
        start = time.perf_counter()
        connection.request("GET", "/health")
        connection.getresponse().read()
        seconds.append(time.perf_counter() - start)
    connection.close()
    assert sorted(seconds)[len(seconds) // 4] < 0.035
