"""Requests as clients send them, by curl."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unseen_search.service.running import Server

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
PHOTOS = ("product 00/0.png", "product 03/1.png")


def curl(server: Server, path: str, *options: str) -> tuple[int, str]:
    """The status and the body."""
    address = f"http://127.0.0.1:{server.port}{path}"
    command = ["curl", "-sS", "-w", "\\n%{http_code}", *options, address]
    body, _, status = subprocess.run(command, capture_output=True, text=True, check=True).stdout.rpartition(
        "\n"
    )
    return int(status), body


@pytest.mark.parametrize(
    "options",
    [
        ("--data-binary", "@0.png"),
        ("-X", "POST", "-T", "0.png"),
        ("-F", "photo=@0.png"),
        ("-F", "file=@0.png;type=image/png"),
        ("-H", "Content-Type: image/png", "--data-binary", "@0.png"),
        ("-H", "Transfer-Encoding: chunked", "-F", "photo=@0.png"),
    ],
)
def test_reads_a_photo_in_every_form(
    server: Server, photos: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos / "product 00")
    status, body = curl(server, "/find?k=2", *options)
    assert status == 200, body
    assert json.loads(body)["matches"][0]["path"] == PHOTOS[0]


def test_answers_several_photos_in_order(server: Server, photos: Path) -> None:
    forms = [option for name in PHOTOS for option in ("-F", f"photo=@{photos / name}")]
    status, body = curl(server, "/find?k=1", *forms)
    assert status == 200, body
    assert [answer["matches"][0]["path"] for answer in json.loads(body)] == list(PHOTOS)


@pytest.mark.parametrize(
    ("path", "options", "status", "message"),
    [
        ("/find?K=3", ("--data-binary", "@0.png"), 422, "unknown parameters: K; the parameters are: k."),
        ("/find?top_k=3&k=2", ("-F", "p=@0.png"), 422, "unknown parameters: top_k"),
        ("/find", ("-F", "photo=@0.png", "-F", "k=3"), 422, "parameters belong into the address"),
        ("/find", ("-F", "photo=@empty"), 422, "A part of the form is no photo"),
        ("/find", ("-H", "Content-Type: multipart/form-data", "-d", "x"), 422, "no boundary"),
        ("/find", ("-H", "Content-Type: multipart/form-data; boundary=b", "-d", "--b"), 422, "incomplete"),
        ("/find", ("-H", "Content-Type: application/json", "-d", "{}"), 415, "The body is JSON."),
        ("/find", ("-H", "Content-Encoding: gzip", "--data-binary", "@0.png"), 415, "compressed"),
        ("/find", ("-d", "@0.png"), 415, "curl -d removed bytes of the photo. Send the bytes"),
        ("/find", ("-F", "a=@0.png", "-F", "b=@text"), 422, "Photo 2 of 2: a picture of 10 bytes cannot be"),
        ("/find", ("-F", "a=@text"), 422, "a picture of 10 bytes cannot be"),
        ("/regions/0/1", ("-F", "a=@0.png", "-F", "b=@0.png"), 422, "several photos, expected one"),
    ],
)
def test_states_what_a_request_lacks(
    server: Server,
    photos: Path,
    tmp_path: Path,
    path: str,
    options: tuple[str, ...],
    status: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(photos / PHOTOS[0], "0.png")
    Path("empty").touch()
    Path("text").write_text("no picture")
    given, body = curl(server, path, *options)
    assert (given, message in json.loads(body)["detail"]) == (status, True), body
    assert " of 1: " not in json.loads(body)["detail"], "a single photo has no number"


@pytest.mark.parametrize("path", ["/", "/health", "/metrics", "/openapi.json"])
def test_head_has_the_headers_of_get(server: Server, path: str) -> None:
    reply = server.request("HEAD", path)
    assert (reply.status, reply.content) == (200, b"")
    assert reply.headers["content-type"] == server.request("GET", path).headers["content-type"]
    assert int(reply.headers["content-length"]) > 0


@pytest.mark.parametrize(("path", "methods"), [("/health", "GET, HEAD, OPTIONS"), ("/find", "POST, OPTIONS")])
def test_options_names_the_methods(server: Server, path: str, methods: str) -> None:
    reply = server.request("OPTIONS", path)
    assert (reply.status, reply.headers["allow"]) == (204, methods)
    refused = server.request("DELETE", path)
    assert (refused.status, refused.headers["allow"]) == (405, methods)
    assert server.request("HEAD", "/find").status == 405
