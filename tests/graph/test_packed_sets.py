"""A set of Hugging Face `datasets` and one of WebDataset, from their files to the report."""

import json
from collections.abc import Iterator
from copy import deepcopy

import pytest
from ruamel.yaml import YAML

from tests.data.ingest.pictures import encode, pixels
from tests.data.ingest.test_packed import members, stream, table, tar
from tests.graph.conftest import NETWORK, Project

pytestmark = [pytest.mark.graph, pytest.mark.timeout(900)]
AT_COMMIT = (
    "git reset -q --hard && git clean -fdqx data/shards data/models data/embeddings data/positions "
    "data/evaluation data/analysis data/raw && git clean -fdq"
)
ROWS = [(label, encode(pixels(100 * label + image))) for image in range(3) for label in range(20)]


@pytest.fixture
def clean(project: Project) -> Iterator[Project]:
    """The copy at its last commit, before and after the test, without outputs: stage report depends on their
    folders as a whole."""
    project.run(AT_COMMIT)
    yield project
    project.run(AT_COMMIT)


def write_datasets(project: Project, kinds: dict[str, str]) -> None:
    """`kinds`: data set -> kind of source. The graph trains `ms` on each."""
    yaml, params = YAML(), project.path / "params.yaml"
    content = yaml.load(params.read_text(encoding="utf-8"))
    content["run"].update({"datasets": list(kinds), "methods": ["ms"], "sweeps": []})
    for dataset, kind in kinds.items():
        content["datasets"][dataset] = {"source": {"kind": kind}, "recipe": deepcopy(NETWORK)}
    with params.open("w", encoding="utf-8") as file:
        yaml.dump(content, file)


def test_tables_become_a_report_and_archives_the_same_shards(clean: Project) -> None:
    """What follows the shards does not depend on their source."""
    raw = clean.path / "data/raw"
    stream(table(ROWS), raw / "hub/data-00000-of-00001.arrow")
    (raw / "tars").mkdir(parents=True)
    for shard in range(2):
        rows = ROWS[30 * shard : 30 * shard + 30]
        tar(raw / f"tars/birds-{shard:03d}.tar", members(rows))
    write_datasets(clean, {"hub": "parquet", "tars": "webdataset"})
    clean.run("dvc repro ingest@hub ingest@tars")
    counts = [
        json.loads((clean.path / f"data/shards/{dataset}/manifest.json").read_text())["counts"]
        for dataset in ("hub", "tars")
    ]
    assert counts[0] == counts[1]
    assert counts[0]["test"] == {"classes": 10, "images": 30}
    write_datasets(clean, {"hub": "parquet"})
    clean.run("dvc repro")
    metrics = json.loads((clean.path / "data/metrics/hub/ms/0.json").read_text())
    assert 0 <= metrics["map_at_r"] <= 1
    assert metrics["queries"] == 30
    assert "hub" in (clean.path / "data/report/index.html").read_text(encoding="utf-8")
