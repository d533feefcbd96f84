"""Durations of `unseen serve` on this machine: p50 and p99 of a request, and photos per second.

    python benchmarks/serve.py [--photos 500] [--requests 200] [--clients 4]

The catalog has drawn photos and the default network (extra `lite0`), the queries are drawn photos of 640 x
480 pixels. The floor is embedding and search without HTTP, one photo at a time, in the same process. One
client reaches at least 0.8 of the photos per second of the floor.
"""

import argparse
import http.client
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import uvicorn
from timing import Ratio, save

from unseen_search.catalog import Catalog, build
from unseen_search.service.app import create_app
from unseen_search.service.settings import ServiceSettings

REQUIRED = 0.8


def main() -> int:
    """Prints the numbers. Returns 1 if the required ratio is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--photos", type=int, default=500)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        folder, directory = Path(root, "photos"), Path(root, "catalog")
        folder.mkdir()
        for number in range(options.photos):
            (folder / f"{number}.jpg").write_bytes(drawn(number))
        build(folder, directory)
        queries = [drawn(10**6 + number) for number in range(options.requests)]
        catalog = Catalog(directory)
        catalog.find(queries[:1])
        floor = [seconds(lambda query=query: catalog.find([query])) for query in queries]
        one, _ = served(directory, queries, 1)
        many, duration = served(directory, queries, options.clients)
    share = sum(floor) / sum(one)
    rows = {"floor": floor, "1 client": one, f"{options.clients} clients": many}
    print(f"{'':12s}{'p50 ms':>10s}{'p99 ms':>10s}")
    for name, values in rows.items():
        print(f"{name:12s}{1000 * np.percentile(values, 50):10.1f}{1000 * np.percentile(values, 99):10.1f}")
    print(f"photos per second with {options.clients} clients: {len(many) / duration:.1f}")
    print(f"photos per second of one client, divided by the floor: {share:.2f} (required {REQUIRED})")
    percentiles = {
        name: {"p50": float(np.percentile(values, 50)), "p99": float(np.percentile(values, 99))}
        for name, values in rows.items()
    }
    save(
        "serve",
        {"seconds": percentiles, "per_second": len(many) / duration, "share": share, "required": REQUIRED},
        {"one client / floor": Ratio(share, at_least=REQUIRED)},
    )
    return int(share < REQUIRED)


def drawn(seed: int) -> bytes:
    """A JPEG of 640 x 480 pixels."""
    coarse = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), np.uint8)
    encoded = cv2.imencode(".jpg", cv2.resize(coarse, (640, 480), interpolation=cv2.INTER_CUBIC))[1]
    return bytes(encoded)


def served(directory: Path, queries: list[bytes], clients: int) -> tuple[list[float], float]:
    """Seconds of each request of `clients` concurrent clients, and of all together."""
    app = create_app(directory, ServiceSettings())
    server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", 0, log_level="warning"))
    socket = server.config.bind_socket()
    thread = threading.Thread(target=server.run, args=([socket],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = socket.getsockname()[1]
    request(port, queries[0])
    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        durations = list(pool.map(lambda query: seconds(lambda: request(port, query)), queries))
    total = time.perf_counter() - start
    server.should_exit = True
    thread.join()
    return durations, total


def request(port: int, photo: bytes) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/find?k=10", photo)
    answer = connection.getresponse()
    content = answer.read()
    assert answer.status == 200, content
    connection.close()


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
