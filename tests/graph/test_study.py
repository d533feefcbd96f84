"""`unseen study` in the real graph: trains the rows that are missing, and shows them in the report."""

import json
import re

import pytest
from ruamel.yaml import YAML

from tests.graph.conftest import NETWORK, Project
from tests.report.page_reader import read_page

pytestmark = [pytest.mark.graph, pytest.mark.timeout(900)]


def trained(output: str) -> list[str]:
    return re.findall(r"Running stage 'train@parts-(\S+)'", output)


def write(project: Project, *dims: int) -> None:
    """A study of the dimensions of MS, with the small network of these tests."""
    study = {
        "title": "Dimensions",
        "methods": {"ms": {"like": "ms", **NETWORK}},
        "space": {"dim": {"grid": list(dims)}},
        "datasets": ["parts"],
        "metric": "map_at_r",
    }
    path = project.path / "studies/mine.yaml"
    path.write_text(json.dumps({"mine": study}), encoding="utf-8")


def test_a_study_trains_only_the_rows_that_are_missing(built: Project) -> None:
    write(built, 8, 16)
    output = built.run("unseen study mine")
    assert trained(output) == ["mine-ms-dim-8-0", "mine-ms-dim-16-0"]
    assert "2 trainings: data sets x rows x seeds" in output
    page = read_page((built.path / "data/report/index.html").read_text(encoding="utf-8"))
    card = page.first("section", id="set-0-studies")
    assert [row["data-row"] for row in card.first("tbody").all("tr")] == ["mine-ms-dim-8", "mine-ms-dim-16"]
    assert len(card.all("svg", role="img")) == 1
    files = {path.name for path in (built.path / "data/report/studies/mine").iterdir()}
    assert files == {"parts.csv", "parts.tex", "parts.svg", "parts.pdf"}
    recipe = json.loads((built.path / "data/models/parts/mine-ms-dim-16/0/recipe.json").read_text())["recipe"]
    assert (recipe["dim"], recipe["training"]["protocol"]) == (16, "published")

    write(built, 8, 16, 32)
    assert trained(built.run("unseen study mine")) == ["mine-ms-dim-32-0"], "a row more"
    built.run("git checkout -q params.yaml")
    assert trained(built.run("unseen run")) == [], "the run before the study"
    assert trained(built.run("unseen study mine")) == []
    run = YAML(typ="safe").load((built.path / "params.yaml").read_text(encoding="utf-8"))["run"]
    assert run["methods"] == ["mine-ms-dim-8", "mine-ms-dim-16", "mine-ms-dim-32"]
