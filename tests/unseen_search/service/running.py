"""The service in a thread, for requests of tests."""

import http.client
import json
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from unseen_search.service import app as service
from unseen_search.service.server import server_of
from unseen_search.service.settings import ServiceSettings

PRODUCTS = 12


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class Server:
    """The service on a free port of this machine, in a thread."""

    def __init__(self, catalog: Path, **settings: Any) -> None:
        app = service.create_app(catalog, ServiceSettings(**settings))
        self.server = server_of(app, "127.0.0.1", 0)
        self.socket = self.server.config.bind_socket()
        self.port: int = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],))

    def __enter__(self) -> "Server":
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive()
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return Reply(answer.status, dict(answer.getheaders()), content)

    def find(self, photo: bytes, k: int = 5) -> Reply:
        return self.request("POST", f"/find?k={k}", photo)
