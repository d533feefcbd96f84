"""Requests that the service refuses: no photo, too large, too slow, too many, without the token."""

import http.client
import io
import logging
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pillow_heif
import pytest
from PIL import Image

from tests.unseen_search.service.running import Reply, Server
from unseen_search.service import app as service


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"", 422, "The body is empty"),
        (b"no picture", 422, "cannot be read as a picture"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 422, "cannot be read as a picture"),
        (b"\xff\xd8\xff" + bytes(200), 422, "cannot be read as a picture"),
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
        monkeypatch.setattr(service, "_find", None)
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
        b"POST /find HTTP/1.1\r\nHost: x\r\n",
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
        *("/photos/CATALOG/999", "/photos/CATALOG/-1", "/photos/CATALOG/..%2f..%2fetc%2fpasswd"),
        *("/photos/0", "/find?k=0", "/docs", "/health/"),
    ],
)
def test_refuses_other_paths_and_values(server: Server, path: str) -> None:
    path = path.replace("CATALOG", server.request("GET", "/health").json["catalog"])
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
            slow.sendall(b"POST /find HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx")
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
