"""`unseen study` in the real graph: trains the rows that are missing, and shows them in the report."""

import csv
import json
import re
from collections.abc import Iterator

import pytest
import torch
from safetensors.torch import load_file

from tests.graph.conftest import NETWORK, Project
from tests.report.page_reader import read_page

pytestmark = [pytest.mark.graph, pytest.mark.timeout(900)]


def trained(output: str) -> list[str]:
    return re.findall(r"Running stage 'train@parts-(\S+)'", output)


def write(project: Project, dims: list[int]) -> None:
    """A study of the dimension of MS, with the small network of these tests."""
    study = {
        "title": "Dimensions",
        "methods": {"ms": {"like": "ms", **NETWORK}},
        "space": {"dim": {"grid": dims}},
        "datasets": ["parts"],
        "metric": "map_at_r",
    }
    (project.path / "studies/mine.yaml").write_text(json.dumps({"mine": study}), encoding="utf-8")


def test_a_study_that_starts_at_the_model_of_another_trains_that_one_before(clean: Project) -> None:
    before = "data/models/parts/before-ms/0/weights.safetensors"
    study = {"title": "t", "datasets": ["parts"], "methods": {"ms": {"like": "ms", "dim": 8, **NETWORK}}}
    scales = {"input.mean": [0.5] * 3, "input.std": [0.5] * 3}
    after = study | {"start": "before", "recipe": {"backbone.checkpoint": before, **scales}}
    text = json.dumps({"before": study, "after": after})
    (clean.path / "studies/mine.yaml").write_text(text, encoding="utf-8")
    assert trained(clean.run("unseen study after")) == ["before-ms-0", "after-ms-0"]
    start = load_file(clean.path / before)
    untrained = load_file(clean.path / "data/models/parts/after-ms/0/untrained.safetensors")
    equal = {name for name, value in untrained.items() if torch.equal(value, start[name])}
    assert equal == {name for name in untrained if name.startswith("backbone.")}

    study["methods"] = {"ms": study["methods"]["ms"] | {"dim": 4}}
    text = json.dumps({"before": study, "after": after})
    (clean.path / "studies/mine.yaml").write_text(text, encoding="utf-8")
    assert trained(clean.run("unseen study after")) == ["before-ms-0", "after-ms-0"]


ROWS = ["crt-table-5-mit-b1-plus-crt", "crt-table-8-k1-64"]  # of CRT table 10


@pytest.fixture
def clean(project: Project) -> Iterator[Project]:
    """The copy at its last commit, before and after the test."""
    project.run("git reset -q --hard && git clean -fdq")
    yield project
    project.run("git reset -q --hard && git clean -fdq")


def test_a_study_trains_only_the_rows_that_are_missing(clean: Project) -> None:
    write(clean, [8])
    output = clean.run("unseen study mine")
    assert trained(output) == ["mine-ms-dim-8-0"]
    assert "1 training: data sets x rows x seeds" in output

    write(clean, [8, 16])
    assert trained(clean.run("unseen study mine")) == ["mine-ms-dim-16-0"]
    page = read_page((clean.path / "data/report/index.html").read_text(encoding="utf-8"))
    card = page.first("section", id="set-0-studies")
    assert [row["data-row"] for row in card.first("tbody").all("tr")] == ["ms, dim 8", "ms, dim 16"]
    assert len(card.all("svg", role="img")) == 1
    files = {path.name for path in (clean.path / "data/report/studies/mine").iterdir()}
    assert files == {"table.csv", "table.tex", "table.md", "parts.svg", "parts.pdf"}
    model = clean.path / "data/models/parts/mine-ms-dim-16/0/recipe.json"
    recipe = json.loads(model.read_text(encoding="utf-8"))["recipe"]
    assert (recipe["dim"], recipe["training"]["protocol"]) == (16, "published")


def test_a_mini_study_shows_the_printed_table_with_our_numbers(clean: Project) -> None:
    """CRT table 10, cut to a few steps on few small images."""
    small = clean.path / "pipeline/recipes/datasets/parts.yaml"
    text = small.read_text(encoding="utf-8")
    for old, new in (
        ("{size: 56, resize: 63,", "{size: 32, resize: 36,"),
        ("classes: 12, images_per_class: 4", "classes: 4, images_per_class: 3"),
        ("{iterations: 250, validate_every: 50}", "{iterations: 4, validate_every: 4}"),
    ):
        assert old in text
        text = text.replace(old, new)
    small.write_text(text, encoding="utf-8")
    output = clean.run("unseen study crt-table-10 --mini")
    assert sorted(trained(output)) == [f"{row}-0" for row in ROWS]
    page = read_page((clean.path / "data/report/index.html").read_text(encoding="utf-8"))
    card = page.first("section", id="set-0-studies")
    assert [row["data-row"] for row in card.first("tbody").all("tr")] == ["w", "w/o"]
    table = clean.path / "data/report/studies/crt-table-10/table.csv"
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert [(row["method"], row["parts cub: Recall@1 printed"]) for row in rows] == [
        (ROWS[0], "75.95"),
        (ROWS[1], "75.96"),
    ]
    for method, row in zip(ROWS, rows, strict=True):
        metrics = json.loads((clean.path / f"data/metrics/parts/{method}/0.json").read_text(encoding="utf-8"))
        assert float(row["parts Recall@1 ours"]) == pytest.approx(100 * metrics["recall_at_1"], abs=0.005)
        model = clean.path / f"data/models/parts/{method}/0/recipe.json"
        recipe = json.loads(model.read_text(encoding="utf-8"))["recipe"]
        assert (recipe["backbone"]["name"], recipe["training"]["protocol"]) == ("test_resnet", "published")
