"""A client that another program generates from the description of the interface gets each kind of answer."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.unseen_search.service.running import PRODUCTS, Server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    folder = tmp_path_factory.mktemp("generated")
    interface = folder / "openapi.json"
    interface.write_bytes(server.request("GET", "/openapi.json").content)
    program = [
        sys.executable,
        "-m",
        "openapi_python_client",
        "generate",
        "--fail-on-warning",
        "--meta",
        "none",
    ]
    options = ["--path", str(interface), "--output-path", str(folder / "generated_client")]
    subprocess.run([*program, *options], cwd=folder, check=True, capture_output=True, timeout=120)
    sys.path.insert(0, str(folder))
    yield import_module("generated_client")
    sys.path.remove(str(folder))


def test_a_generated_client_gets_answers_and_reasons(
    client: ModuleType, server: Server, photos: Path
) -> None:
    def function(name: str) -> ModuleType:
        return import_module(f"generated_client.api.default.{name}")

    models, types = import_module("generated_client.models"), import_module("generated_client.types")
    of_server = client.Client(f"http://127.0.0.1:{server.port}", raise_on_unexpected_status=True)
    content = (photos / "product 03/1.png").read_bytes()

    def photo() -> object:
        return types.File(io.BytesIO(content), "photo.png")

    health = function("health").sync(client=of_server)
    assert (health.status, health.pictures) == ("ok", 3 * PRODUCTS)
    answer = function("find").sync(client=of_server, body=photo(), k=3)
    assert answer.to_dict() | {"seconds": 0} == server.find(content, 3).json | {"seconds": 0}
    form = models.FindFilesBody(photo=[photo(), photo()])
    assert [each.matches[0].path for each in function("find").sync(client=of_server, body=form)] == [
        "product 03/1.png"
    ] * 2
    row = answer.matches[1].row
    cause = function("regions").sync(answer.catalog, row, client=of_server, body=photo())
    assert cause.similarity == pytest.approx(answer.matches[1].similarity, abs=1e-5)
    picture = function("picture").sync_detailed(answer.catalog, row, client=of_server)
    assert picture.content.startswith(b"\xff\xd8")
    no_photo = types.File(io.BytesIO(b"no picture"), "photo.png")
    for result, reason in (
        (function("find").sync(client=of_server, body=no_photo), "cannot be read as a picture"),
        (function("find").sync(client=of_server, body=photo(), k=0), "k: Input should be greater"),
        (function("regions").sync("0", row, client=of_server, body=photo()), "Search again"),
    ):
        assert isinstance(result, models.Refusal)
        assert reason in result.detail


def test_every_refusal_of_the_interface_has_one_form(server: Server) -> None:
    interface = json.loads(server.request("GET", "/openapi.json").content)
    refusal = {"$ref": "#/components/schemas/Refusal"}
    for path, methods in interface["paths"].items():
        for method, operation in methods.items():
            for status, response in operation["responses"].items():
                form = response.get("content", {}).get("application/json", {}).get("schema")
                assert (status[0] in "45") == (form == refusal), (path, method, status)
