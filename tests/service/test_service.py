"""The service answers photos over HTTP, refuses what is none, and continues."""

import http.client
import io
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pillow_heif
import pytest
import uvicorn
from PIL import Image

from pipeline.catalog import Catalog, build
from pipeline.catalog.training_classes import write_training_classes
from pipeline.evaluation.unknown import UncalibratedError
from pipeline.runtime.errors import UserError
from pipeline.service import app as service
from pipeline.service.current import Current
from pipeline.service.settings import ServiceSettings
from tests.photos import save_model, save_products
from unseen import cli
from unseen.search import find_photos
from unseen.serve import serve

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
        self.server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", 0, log_level="warning"))
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
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return Reply(answer.status, dict(answer.getheaders()), content)

    def find(self, photo: bytes, k: int = 5) -> Reply:
        return self.request("POST", f"/find?k={k}", photo)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_products(tmp_path_factory.mktemp("photos"), PRODUCTS, each=3)


@pytest.fixture(scope="module")
def catalog(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("catalog")
    build(photos, root / "catalog", save_model(root / "model", 1), labels="folders", processes=1)
    return root / "catalog"


@pytest.fixture(scope="module")
def server(catalog: Path) -> Iterator[Server]:
    with Server(catalog, largest_photo=100_000) as started:
        yield started


@pytest.mark.slow
def test_the_answer_equals_that_of_find(server: Server, catalog: Path, photos: Path) -> None:
    path = photos / "product 03/1.png"
    reply = server.find(path.read_bytes())
    assert reply.status == 200
    (answer,) = Catalog(catalog).identify([path], 5)
    assert reply.json["unknown"] is None
    assert [product["label"] for product in reply.json["products"]] == [p.label for p in answer.products]
    for match, expected in zip(reply.json["matches"], answer.matches, strict=True):
        address = f"/photos/{reply.json['catalog']}/{match.pop('row')}"
        assert match == {name: pytest.approx(value) if name == "similarity" else value
                         for name, value in expected._asdict().items()}  # fmt: skip
        with Image.open(io.BytesIO(server.request("GET", address).content)) as small:
            assert small.format == "JPEG"
            assert max(small.size) <= service.THUMBNAIL


def test_regions_sum_to_the_similarity_of_the_answer(server: Server, photos: Path) -> None:
    photo = (photos / "product 03/1.png").read_bytes()
    answer = server.find(photo).json
    match = answer["matches"][1]
    address = f"/regions/{answer['catalog']}/{match['row']}"
    cause = server.request("POST", address, photo).json
    assert cause["kind"] == "contribution"
    assert cause["similarity"] == pytest.approx(match["similarity"], abs=1e-5)
    for name in ("photo", "match"):
        assert sum(map(sum, cause[name]["map"])) == pytest.approx(match["similarity"], abs=1e-4)
    assert server.request("POST", address.replace(answer["catalog"], "0"), photo).status == 410
    assert server.request("POST", address, b"no picture").status == 422


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


def test_reports_health_metrics_and_its_interface(server: Server) -> None:
    health = server.request("GET", "/health").json
    assert (health["status"], health["pictures"]) == ("ok", 3 * PRODUCTS)
    server.request("GET", "/nowhere/1")
    text = server.request("GET", "/metrics").content.decode()
    assert f"unseen_catalog_pictures {3.0 * PRODUCTS}" in text
    assert 'unseen_requests_total{path="/health",status="200"}' in text
    assert 'path="other",status="404"' in text
    assert "nowhere" not in text
    interface = server.request("GET", "/openapi.json").json
    of_catalog = {"/photos/{catalog}/{row}", "/regions/{catalog}/{row}"}
    assert set(interface["paths"]) == {"/find", *of_catalog, "/health", "/metrics"}


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


def test_an_unknown_photo_is_answered_and_logged(catalog: Path, photos: Path, tmp_path: Path) -> None:
    log = tmp_path / "unknown.jsonl"
    stream = io.BytesIO()
    Image.new("RGB", (40, 40), (255, 0, 255)).save(stream, "PNG")
    with Server(catalog, at_most_false=0.55, unknown_log=log) as server:
        drawn = (photos / "product 01/0.png").read_bytes()
        replies = [server.find(photo).json for photo in (stream.getvalue(), drawn)]
    assert [reply["unknown"] for reply in replies] == [True, False]
    assert replies[0]["matches"], "the nearest pictures are shown below the threshold, too"
    assert replies[0]["matches"][0]["similarity"] < replies[0]["threshold"]
    (line,) = log.read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["nearest"] == replies[0]["matches"][0]


@pytest.mark.slow
def test_states_the_rate_as_find_does(
    catalog: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also that the pictures have no label. A model without a calibrated rate is refused."""
    photo, unlabelled = photos / "product 00/0.png", tmp_path / "unlabelled"
    shutil.copytree(catalog, unlabelled)
    build(photos, unlabelled, labels="none", processes=1)
    for directory, words in ((catalog, "products"), (unlabelled, "Pictures have no label")):
        printed = find_photos(directory, [photo], 1, None, 0.55, as_json=False)
        capsys.readouterr()
        with Server(directory, at_most_false=0.55) as server:
            statement = server.find(photo.read_bytes()).json["statement"]
            assert server.request("GET", "/health").json["threshold"] == statement
        assert words in statement
        assert statement in printed
        assert f"{directory}: {statement}" in capsys.readouterr().err
    (tmp_path / "model").mkdir()
    model = shutil.copytree(catalog / "model", tmp_path / "model/trained")
    write_training_classes(model, [f"product {number:02d}" for number in range(PRODUCTS)])
    build(photos, tmp_path / "shipped", model, labels="folders", processes=1)
    assert "not calibrated" in find_photos(tmp_path / "shipped", [photo], 1, None, 0.55, as_json=False)
    with pytest.raises(UncalibratedError, match=r"not calibrated"):
        Current(tmp_path / "shipped", 0.55)


def test_without_a_rate_there_is_no_statement(server: Server, photos: Path) -> None:
    answer = server.find((photos / "product 00/0.png").read_bytes()).json
    assert answer["statement"] is None
    assert server.request("GET", "/health").json["threshold"] is None


def test_requests_need_the_token(catalog: Path) -> None:
    with Server(catalog, token="secret") as server:
        assert server.find(b"x").status == 401
        assert server.request("POST", "/find", b"x", Authorization="Bearer other").status == 401
        assert server.request("POST", "/find", b"x", Authorization="Bearer secret").status == 422
        assert server.request("GET", "/photos/0/0").status == 401
        assert server.request("GET", "/").status == 200, "the page asks for the token"


@pytest.mark.slow
def test_a_new_catalog_is_served_and_a_damaged_one_is_not(
    catalog: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(catalog, tmp_path / "catalog")
    more = shutil.copytree(photos, tmp_path / "photos")
    build(more, tmp_path / "catalog", processes=1)
    with Server(tmp_path / "catalog") as server:
        first = server.request("GET", "/health").json
        assert server.request("GET", f"/photos/{first['catalog']}/1").status == 200
        (more / "product 00/0.png").unlink()
        build(more, tmp_path / "catalog", processes=1)
        second = server.request("GET", "/health").json
        assert second["pictures"] == first["pictures"] - 1
        assert second["catalog"] != first["catalog"]
        reply = server.request("GET", f"/photos/{first['catalog']}/1")
        assert reply.status == 410, "row 1 is another picture now"
        assert "Search again" in reply.json["detail"]
        assert server.request("GET", f"/photos/{second['catalog']}/0").status == 200
        shutil.copy(more / "product 03/0.png", more / "product 00/1.png")
        reply = server.request("GET", f"/photos/{second['catalog']}/0")
        assert reply.status == 410
        assert "product 00/1.png has changed" in reply.json["detail"]
        index = tmp_path / "catalog/index.faiss"
        index.write_bytes(index.read_bytes()[:-9])
        os.utime(tmp_path / "catalog/catalog.json")
        assert server.request("GET", "/health").json == second
    assert "The earlier catalog answers" in capsys.readouterr().err


def test_an_address_of_other_machines_needs_a_token(catalog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSEEN_TOKEN", raising=False)
    for host in ("0.0.0.0", "shop.example"):
        with pytest.raises(UserError, match="no token is set"):
            serve(catalog, host, 0, ServiceSettings())


def test_the_command_refuses_a_taken_port(catalog: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SystemExit) as ended:
        cli.main(["serve", str(catalog), "--port", str(taken.getsockname()[1])])
    assert ended.value.code == 1
    printed = capsys.readouterr().err
    assert "cannot be used" in printed
    assert "Traceback" not in printed


@pytest.mark.slow
def test_the_command_serves_until_it_is_interrupted(catalog: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "unseen", "serve", str(catalog), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )
    assert process.stderr is not None
    assert "http://127.0.0.1:" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert "Traceback" not in errors


def wait_for(page: Any, condition: str) -> None:
    """Waits until an expression is true in the page, whose policy forbids the polling of Playwright."""
    deadline = time.monotonic() + 30
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        time.sleep(0.05)


@pytest.mark.slow
def test_the_page_shows_the_matches_of_a_photo_and_the_regions_of_one(catalog: Path, photos: Path) -> None:
    from tests.report.test_browser import CHROMIUM, FLAGS

    if CHROMIUM is None:
        pytest.skip("no Chromium or Chrome is installed")
    from playwright.sync_api import sync_playwright

    with Server(catalog, at_most_false=0.55) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.locator("#threshold:has-text('A match needs a similarity of')").wait_for()
        page.set_input_files("input[type=file]", str(photos / "product 05/2.png"))
        page.locator("ol img").nth(11).wait_for()
        wait_for(page, "[...document.images].every(image => image.naturalWidth > 0)")
        assert "product 05" in page.inner_text("#status")
        wait_for(page, "document.getElementById('regions').textContent.startsWith('Red regions add')")
        drawn = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(value => value)"
        second = page.locator("ol .map").nth(1)
        for holder, has_map in (("#photo", True), ("ol li:first-child", True), ("ol li:nth-child(2)", False)):
            assert page.eval_on_selector(f"{holder} canvas", drawn) == has_map
        second.click()
        wait_for(page, f"({drawn})(document.querySelectorAll('ol canvas')[1])")
        assert second.get_attribute("aria-pressed") == "true"
        assert not page.eval_on_selector("ol li:first-child canvas", drawn)
        assert "product 05/2.png" in page.inner_text("ol li:first-child")
        text = {"name": "x.jpg", "mimeType": "image/jpeg", "buffer": b"no picture"}
        page.set_input_files("input[type=file]", text)
        page.locator("#answer").wait_for(state="hidden")
        assert "cannot be read as a picture" in page.inner_text("#status")
        assert [line for line in problems if "422" not in line] == []
        browser.close()
