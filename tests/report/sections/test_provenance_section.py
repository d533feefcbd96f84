"""Provenance: hashes of the files behind each number, recipes and protocol."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.page_reader import Element
from unseen.data.shards import Shards
from unseen.report.dataset import DataSet
from unseen.report.sections.provenance import content, origin_of
from unseen.runtime.revision import Revision


def test_the_files_behind_a_number_are_named(page: Element, project: Path) -> None:
    section = page.first("section", id="set-0-provenance").text()
    metrics = json.loads((project / "evaluation/birds/good/0/metrics.json").read_text())
    for name in (
        "models/birds/good/0/weights.safetensors",
        "models/birds/poor/0/last.safetensors",
        "embeddings/birds/fair/0/test.arrow",
    ):
        assert hashlib.sha256((project / name).read_bytes()).hexdigest() in section, name
    assert metrics["protocol"] in section
    assert Shards(project / "shards/birds").fingerprint in section


def test_recipes_and_protocol_are_printed(page: Element) -> None:
    section = page.first("section", id="set-0-provenance").text()
    assert "equal similarities in ascending order of row id" in section
    assert "backbone.nametest_resnet" in section
    assert "training.patiencenull" in section


def test_the_page_contains_no_folder_of_the_machine(birds: DataSet, html: str, project: Path) -> None:
    assert str(project) not in html
    runs = list(birds.report_data.runs)
    for path in ("/home/anna/weights.pth", "~anna/weights.pth"):
        settings = runs[0].recipe["recipe"]
        backbone = settings["backbone"] | {"checkpoint": path}
        runs[0] = replace(runs[0], recipe=runs[0].recipe | {"recipe": settings | {"backbone": backbone}})
        texts = str(content(replace(birds, report_data=replace(birds.report_data, runs=runs)))["recipes"])
        assert ".../weights.pth" in texts
        assert "anna" not in texts


@pytest.mark.slow
def test_seeds_are_named_if_there_are_several(two_seeds_page: Element) -> None:
    rows = two_seeds_page.first("section", id="set-1-provenance").all("tr")[1:]
    assert {row.first("th").text() for row in rows} >= {"good, seed 0", "fair, seed 1"}


def test_different_protocols_are_counted(birds: DataSet) -> None:
    runs = list(birds.report_data.runs)
    runs[1] = replace(runs[1], metrics=runs[1].metrics | {"protocol": "another"})
    assert content(birds)["protocols"] == 1
    assert content(replace(birds, report_data=replace(birds.report_data, runs=runs)))["protocols"] == 2


def test_commit_and_machine_are_named(birds: DataSet) -> None:
    host = {"device": "A100", "cores": 8, "system": "Linux", "python": "3.11.2", "name": "secret"}
    runs = list(birds.report_data.runs)
    assert origin_of(birds) == [
        ("commit", "unknown: no git repository"),
        ("trained on", "unknown: data/logs has no log"),
    ]
    runs[0] = replace(runs[0], host=host)
    data = replace(birds.report_data, runs=runs, revision=Revision("abc", "2024-02-03T04:05:06Z", True))
    assert origin_of(replace(birds, report_data=data)) == [
        ("commit", "abc, with changes that are not committed"),
        ("date of the commit", "2024-02-03T04:05:06Z"),
        ("trained on", "1 of 3 trainings: A100, 8 cores, Linux, Python 3.11.2"),
        ("trained on", "2 of 3 trainings: unknown: data/logs has no log"),
    ]
