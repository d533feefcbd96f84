"""The service answers photos over HTTP, follows changes of its catalog, and states its threshold."""

import io
import json
import os
import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.photos import picture
from tests.unseen_search.service.running import PRODUCTS, Server
from unseen.evaluation.unknown import UncalibratedError
from unseen.frozen.training_classes import write_training_classes
from unseen.runtime.errors import UserError
from unseen_search.catalog import Catalog, build
from unseen_search.catalog.thresholds import Asked
from unseen_search.search import find_photos
from unseen_search.service import app as service
from unseen_search.service.current import Current
from unseen_search.service.settings import ServiceSettings


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


def test_an_unknown_photo_is_answered_and_logged(
    catalog: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "unknown.jsonl"
    stream = io.BytesIO()
    Image.new("RGB", (40, 40), (255, 0, 255)).save(stream, "PNG")
    with Server(catalog, asked=Asked(0.55), unknown_log=log) as server:
        drawn = (photos / "product 01/0.png").read_bytes()
        replies = [server.find(photo).json for photo in (stream.getvalue(), drawn)]
    assert [reply["unknown"] for reply in replies] == [True, False]
    assert replies[0]["matches"], "the nearest pictures are shown below the threshold, too"
    assert replies[0]["products"], "candidates"
    assert replies[0]["products"][0]["score"] < replies[0]["threshold"]
    (line,) = log.read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["nearest"] == replies[0]["matches"][0]
    log.unlink()
    log.mkdir()  # cannot be written
    with Server(catalog, asked=Asked(0.55), unknown_log=log) as server:
        assert server.find(stream.getvalue()).json["unknown"]
    assert f"{log} cannot be written: Is a directory" in capsys.readouterr().err


@pytest.mark.slow
def test_states_the_rate_as_find_does(
    catalog: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also that the pictures have no label. A model without a calibrated rate is refused."""
    photo, unlabelled = photos / "product 00/0.png", tmp_path / "unlabelled"
    shutil.copytree(catalog, unlabelled)
    build(photos, unlabelled, labels="none", processes=1)
    for directory, words in ((catalog, "products"), (unlabelled, "Pictures have no label")):
        printed = find_photos(directory, [photo], 1, None, Asked(0.55), as_json=False)
        capsys.readouterr()
        with Server(directory, asked=Asked(0.55)) as server:
            statement = server.find(photo.read_bytes()).json["statement"]
            assert server.request("GET", "/health").json["threshold"] == statement
        assert words in statement
        assert statement in printed
        assert f"{directory}: {statement}" in capsys.readouterr().err
    (tmp_path / "model").mkdir()
    model = shutil.copytree(catalog / "model", tmp_path / "model/trained")
    write_training_classes(model, [f"product {number:02d}" for number in range(PRODUCTS)])
    build(photos, tmp_path / "shipped", model, labels="folders", processes=1)
    assert "not calibrated" in find_photos(tmp_path / "shipped", [photo], 1, None, Asked(0.55), as_json=False)
    with pytest.raises(UncalibratedError, match=r"not calibrated"):
        Current(tmp_path / "shipped", ServiceSettings(asked=Asked(0.55)))


def test_given_photos_of_unknown_products_are_grouped_by_folder(catalog: Path, tmp_path: Path) -> None:
    names = ("a/1.png", "a/2.png", "b/c/3.png", "4.png", "5.png")
    for number, name in enumerate(names):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(picture(70 + number, "PNG"))
    first, second, third, fourth, fifth = (tmp_path / name for name in names)
    products = {"a": [first, second], "c": [third], "4": [fourth], "5": [fifth]}
    loaded = Catalog(catalog)
    given = Asked(0.55, unknown=tmp_path).threshold(loaded)
    assert given == loaded.threshold(0.55, unknown=products)
    assert given.given == 5
    assert given != loaded.threshold(0.55, unknown={"one": [*map(tmp_path.joinpath, names)]})
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty contains no picture\.\n.*--unknown"):
        Asked(0.55, unknown=tmp_path / "empty").threshold(loaded)


def test_the_earlier_catalog_answers_while_the_directory_is_exchanged(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served = shutil.copytree(catalog, tmp_path / "catalog")
    current = Current(served, ServiceSettings())
    before = current.get()
    served.rename(tmp_path / "aside")
    assert current.get() is before
    (tmp_path / "aside").rename(served)
    assert current.get() is before, "it is the same catalog again"
    assert capsys.readouterr().err == ""


def test_without_a_rate_there_is_no_statement(server: Server, photos: Path) -> None:
    answer = server.find((photos / "product 00/0.png").read_bytes()).json
    assert answer["statement"] is None
    assert server.request("GET", "/health").json["threshold"] is None


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
        (more / "product 00/1.png").unlink()
        reply = server.request("GET", f"/photos/{second['catalog']}/0")
        assert reply.status == 404
        assert reply.json["detail"] == "product 00/1.png is missing."
        index = tmp_path / "catalog/index.faiss"
        index.write_bytes(index.read_bytes()[:-9])
        os.utime(tmp_path / "catalog/catalog.json")
        assert server.request("GET", "/health").json == second
    assert "The earlier catalog answers" in capsys.readouterr().err
