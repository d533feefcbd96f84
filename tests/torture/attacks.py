"""Attacks on the service: `python -m tests.torture.attacks`.

`unseen serve` answers from a small catalog in a process of its own. During each attack another process asks
for /health and a control (latency.py), and this one reads the peak of the resident memory of the service. The
campaign ends with an error if the service ends, or if a photo gets no answer after an attack. All processes
compete for the same cores: the 99th percentile of the answers is compared with that of the control.
"""

import http.client
import io
import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from tests.photos import save_model, save_products
from tests.torture import named, results
from tests.torture.results import Result
from unseen_search.catalog import build

STATE = results.RESULTS / "attacks.json"
MODULES = ("unseen_search.serve", "unseen_search.service.app", "unseen_search.service.server")
DURATION = 5.0  # seconds
SIDE = 8000  # pixels; 64 megapixels are the limit of the service


@dataclass(frozen=True)
class Service:
    process: subprocess.Popen[str]
    port: int
    photo: bytes

    def request(self, path: str, body: bytes | None = None, **headers: str) -> int:
        """The status of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET" if body is None else "POST", path, body, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def memory(self, name: str) -> int:
        """VmRSS or VmHWM in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        size = re.search(rf"{name}:\s+(\d+) kB", status)
        assert size is not None
        return int(size[1]) * 1024

    def connected(self, first: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        connection.sendall(first)
        return connection


Attack = Callable[[Service, float], None]  # until a time of time.monotonic


@contextmanager
def serving(catalog: Path, photo: bytes) -> Iterator[Service]:
    command = [sys.executable, "-m", "unseen", "serve", str(catalog), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        address = re.search(r"http://127.0.0.1:(\d+)", process.stderr.readline())
        assert address is not None, "the service did not start"
        threading.Thread(target=process.stderr.read, daemon=True).start()
        service, deadline = Service(process, int(address[1]), photo), time.monotonic() + 60
        while time.monotonic() < deadline:  # the address is bound before the service listens
            with suppress(ConnectionError):
                service.connected(b"").close()
                break
            time.sleep(0.1)
        yield service
    finally:
        process.terminate()
        process.wait(30)


def png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG", compress_level=1)
    return stream.getvalue()


def chunks() -> bytes:
    """A PNG of 20 MB with 1.7 million empty chunks before its pixels."""
    content, empty = png(Image.new("RGB", (8, 8))), b"\0\0\0\0zzZz" + zlib.crc32(b"zzZz").to_bytes(4, "big")
    return content[:33] + empty * 1_700_000 + content[33:]


def jpeg(side: int, **options: object) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (side, side), (90, 60, 30)).save(stream, "JPEG", **options)
    return stream.getvalue()


def repeated(body: bytes, clients: int, **headers: str) -> Attack:
    """Each client sends the same request again and again."""

    def attack(service: Service, end: float) -> None:
        def client() -> None:
            while time.monotonic() < end:
                try:
                    service.request("/find", body, **headers)
                except (OSError, http.client.HTTPException):
                    time.sleep(0.01)

        threads = [threading.Thread(target=client) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return attack


def open_connections(first: bytes, count: int) -> Attack:
    def attack(service: Service, end: float) -> None:
        with ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(service.connected(first))
            time.sleep(max(0.0, end - time.monotonic()))

    return attack


def attacks(photo: bytes) -> dict[str, Callable[[], Attack]]:
    """Each is drawn when it runs."""
    form = {"Content-Type": "multipart/form-data; boundary=b"}
    header = b"POST /find HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n"
    flat = Image.new("RGB", (SIDE, SIDE))
    noise = np.random.default_rng(0).integers(0, 256, 20_000_000, np.uint8).tobytes()
    return {
        "nothing": lambda: lambda service, end: time.sleep(max(0.0, end - time.monotonic())),
        "1 client, PNG of 64 megapixels": lambda: repeated(png(flat), 1),
        "1 client, transparent PNG of 64 megapixels": lambda: repeated(png(flat.convert("RGBA")), 1),
        "1 client, JPEG of 64 megapixels": lambda: repeated(jpeg(SIDE), 1),
        "1 client, progressive JPEG of 64 megapixels": lambda: repeated(jpeg(SIDE, progressive=True), 1),
        "8 clients, PNG of 64 megapixels": lambda: repeated(png(flat), 8),
        "200 connections that send nothing": lambda: open_connections(b"", 200),
        "200 connections with half a header": lambda: open_connections(header, 200),
        "200 connections with half a body": lambda: open_connections(header + b"\r\nx", 200),
        "4 clients, PNG of 1.7 million chunks": lambda: repeated(chunks(), 4),
        "4 clients, JPEG of 5 million markers": lambda: repeated(
            b"\xff\xd8" + b"\xff\xfe\0\2" * 5_000_000, 4
        ),
        "4 clients, JPEG of 20 million fill bytes": lambda: repeated(b"\xff\xd8" + b"\xff" * 20_000_000, 4),
        "4 clients, form of 4 million parts": lambda: repeated(b"\r\n--b" * 4_000_000, 4, **form),
        "4 clients, form of one long head": lambda: repeated(
            b"--b\r\ncontent-disposition:" + b";  " * 6_000_000 + b"\r\n--b--", 4, **form
        ),
        "4 clients, 20 MB of noise": lambda: repeated(noise, 4),
        "60 clients, photos": lambda: repeated(photo, 60),
    }


def case(service: Service, attack: Attack) -> dict[str, float]:
    """The measures of one attack."""
    Path(f"/proc/{service.process.pid}/clear_refs").write_text("5")  # the peak starts again
    before = service.memory("VmRSS")
    command = [sys.executable, "-m", "tests.torture.latency", str(service.port)]
    with subprocess.Popen(
        command, cwd=results.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as prober:
        assert prober.stdout is not None
        prober.stdout.readline()
        attack(service, time.monotonic() + DURATION)
        output, _ = prober.communicate()
    seconds, control = json.loads(output)
    if service.request("/find", service.photo) != 200:
        raise RuntimeError("the service does not answer a photo after the attack")
    return {
        "answers": len(seconds),
        "p50": float(np.percentile(seconds, 50)),
        "p99": float(np.percentile(seconds, 99)),
        "control_p99": float(np.percentile(control, 99)),
        "memory": float(service.memory("VmHWM") - before),
    }


def campaign(names: list[str], state: Path) -> None:
    """Runs the attacks that the results lack."""
    with tempfile.TemporaryDirectory(prefix="unseen-attacks-") as folder:
        root = Path(folder)
        photos = save_products(root / "photos", 12, each=3)
        build(photos, root / "catalog", save_model(root / "model", 1), labels="folders", processes=1)
        photo = (photos / "product 00/0.png").read_bytes()
        drawn = attacks(photo)
        with serving(root / "catalog", photo) as service:
            service.request("/find", photo)
            named.campaign(
                names, state, lambda name: MODULES, lambda name: case(service, drawn[name]()), _line
            )


def _line(result: Result) -> str:
    return (
        f"p50 {result['p50'] * 1000:.0f} ms, p99 {result['p99'] * 1000:.0f} ms of {result['answers']}, "
        f"control {result['control_p99'] * 1000:.0f} ms, {result['memory'] / 2**20:,.0f} MiB"
    )


def main() -> None:
    description = "Attacks on the service leave it alive and answering."
    campaign(*named.options(description, "attacks", attacks(b""), STATE))


if __name__ == "__main__":
    main()
