"""Provenance: hashes of the files behind each number, recipes and protocol."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from pipeline.data.shards import Shards
from pipeline.report.dataset import DataSet
from pipeline.report.sections.provenance import content
from tests.report.page_reader import Element


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


def test_seeds_are_named_if_there_are_several(two_seeds_page: Element) -> None:
    rows = two_seeds_page.first("section", id="set-1-provenance").all("tr")[1:]
    assert {row.first("th").text() for row in rows} >= {"good, seed 0", "fair, seed 1"}


def test_different_protocols_are_counted(birds: DataSet) -> None:
    runs = list(birds.report_data.runs)
    runs[1] = replace(runs[1], metrics=runs[1].metrics | {"protocol": "another"})
    assert content(birds)["protocols"] == 1
    assert content(replace(birds, report_data=replace(birds.report_data, runs=runs)))["protocols"] == 2
