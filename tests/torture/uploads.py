"""Requests to `unseen serve` for the campaign of mutations: photos in damaged requests, and the service in
this process. No port is opened: each request goes through a pair of connected sockets, in an event loop whose
waiting takes no time."""

import asyncio
import logging
import os
import random
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn
from anyio import CapacityLimiter
from anyio.to_thread import current_default_thread_limiter
from uvicorn.server import ServerState

from tests.torture.damage import damaged
from unseen_search.service.app import create_app
from unseen_search.service.settings import ServiceSettings

LARGEST = 20_000  # bytes of a photo
_UPLOAD = 1.0  # seconds in which a body must arrive
_SILENCE = 6.0  # seconds until the client ends a connection without an answer
_HEADERS = {"Host": "localhost", "Connection": "close"}
_LENGTHS = ("0", "-1", "+5", "0x10", "1e3", "x", "", "9" * 30, str(LARGEST + 1), "5, 5")
_TARGETS = (
    "/find?k=5",
    "/find?k=0",
    "/find?k=1&k=x",
    "/find?k=%ff",
    "/photos/0",
    "/photos/-1",
    "//find",
    "*",
)


def valid_request(photo: bytes) -> bytes:
    return _head("POST", "/find?k=5", _HEADERS | {"Content-Length": str(len(photo))}) + photo


def refused_requests(photo: bytes) -> list[bytes]:
    """Bodies that are too large, with and without their length, and one that does not arrive."""
    body = photo + bytes(LARGEST)
    chunked = _HEADERS | {"Transfer-Encoding": "chunked"}
    return [
        valid_request(body),
        _head("POST", "/find?k=5", chunked) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body),
        _head("POST", "/find?k=5", _HEADERS | {"Content-Length": str(len(photo) + 1)}) + photo,
    ]


def request(photos: Sequence[bytes], draw: random.Random) -> bytes:
    """A request with a photo, valid or damaged, in one of the forms in which clients or attackers send it."""
    body = draw.choice(photos) if draw.randrange(4) == 0 else damaged(photos, draw)
    headers = _HEADERS | {"Content-Length": str(len(body))}
    method, target = "POST", "/find?k=5"
    form = draw.randrange(8)
    if form == 0:
        line = b"--b\r\n" + damaged([b'Content-Disposition: form-data; name="f"; filename="a.jpg"\r\n'], draw)
        body = line + b"\r\n" + body + b"\r\n--b--\r\n"
        headers |= {"Content-Type": "multipart/form-data; boundary=b", "Content-Length": str(len(body))}
    elif form == 1:
        lengths = (*_LENGTHS, str(len(body) + 1), str(len(body) // 2))
        headers["Content-Length"] = draw.choice(lengths)
    elif form == 2:
        body = body[: draw.randrange(len(body) + 1)]
    elif form == 3:
        del headers["Content-Length"]
        headers["Transfer-Encoding"] = "chunked"
        body = damaged([b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)], draw)
    elif form == 4:
        method, target = draw.choice(("POST", "GET", "PUT", "HEAD", "X" * 99)), draw.choice(_TARGETS)
    elif form == 5:
        body = body * (LARGEST // max(1, len(body)) + draw.randrange(2))
        headers["Content-Length"] = str(len(body))
    head = _head(method, target, headers)
    return (damaged([head], draw) if form == 6 else head) + body


def _head(method: str, target: str, headers: dict[str, str]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


class ShortenedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock advances at once to the next deadline if nothing is ready. It waits for
    threads that work for it, and its clock stops meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = 0.0  # seconds
        self.threads: CapacityLimiter | None = None
        selector: Any = self._selector  # type: ignore[attr-defined]
        self._wait, selector.select = selector.select, self._select

    def time(self) -> float:
        return super().time() + self._ahead

    def _select(self, timeout: float | None) -> Any:
        ready = self._wait(0)
        if ready or timeout == 0:
            return ready
        if self.threads is not None and self.threads.borrowed_tokens:
            start = super().time()
            ready = self._wait(None)
            self._ahead -= super().time() - start
        elif timeout is None:
            ready = self._wait(None)
        else:
            self._ahead += timeout
        return ready


class Service:
    """The service of a catalog as a reader of requests. It accepts no connection from outside."""

    def __init__(self, catalog: Path) -> None:
        settings = ServiceSettings(largest_photo=LARGEST, upload_seconds=_UPLOAD)
        app = create_app(catalog, settings)
        self._config = uvicorn.Config(app, log_config=None, lifespan="off", server_header=False)
        self._config.load()
        self._loop: ShortenedLoop | None = None
        self._process = 0
        self._errors = _Errors()

    def __call__(self, octets: bytes) -> None:
        """Answers a request. Raises ValueError if it is refused (4xx, or the connection is closed), and
        RuntimeError for another status or an exception within the service."""
        if self._loop is None or self._process != os.getpid():  # a loop cannot be used in a fork
            self._loop, self._process = ShortenedLoop(), os.getpid()
            logger = logging.getLogger("uvicorn.error")
            logger.handlers, logger.propagate = [self._errors], False
        answer = self._loop.run_until_complete(self._exchange(octets))
        if self._errors.texts:
            raise RuntimeError(self._errors.texts.pop())
        first = answer.split(b"\r\n", 1)[0]
        if not first:
            raise ValueError("the connection was closed without an answer")
        status = int(first.split()[1])
        if 400 <= status < 500:
            raise ValueError(f"status {status}")
        if status != 200:
            raise RuntimeError(f"status {status}: {answer[-200:]!r}")

    async def _exchange(self, octets: bytes) -> bytes:
        """The bytes that the service answers before it closes the connection."""
        assert self._loop is not None
        self._loop.threads = current_default_thread_limiter()
        state = ServerState()
        client, server = socket.socketpair()
        with client:
            client.setblocking(False)
            await self._loop.connect_accepted_socket(
                lambda: self._config.http_protocol_class(  # type: ignore[call-arg]
                    config=self._config, server_state=state, app_state={}
                ),
                server,
            )
            answer, is_whole = bytearray(), b"\r\n\r\n" in octets
            try:
                async with asyncio.timeout(_SILENCE if is_whole else 0.01):
                    await self._loop.sock_sendall(client, octets)
                    while piece := await self._loop.sock_recv(client, 2**16):
                        answer += piece
            except ConnectionError:
                pass
            except TimeoutError:
                if is_whole and not answer:
                    self._errors.texts.append(f"no answer within {_SILENCE:g} s")
        while state.connections or state.tasks:
            await asyncio.sleep(0)
        return bytes(answer)


class _Errors(logging.Handler):
    """The exceptions that the server logs."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.texts.append(f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}")
