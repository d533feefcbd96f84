"""Numbers that only some runs have: class means, NMI, reduced embeddings, attributes, gradient noise, landmark benchmarks."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.data.embeddings import read
from pipeline.evaluation.landmarks import LandmarkProtocol, evaluate_landmarks
from pipeline.evaluation.metrics import Rows
from pipeline.evaluation.sides import Sides
from pipeline.evaluation.tables import write_table
from pipeline.report.generalization_section import over_training
from pipeline.report.inputs import read_inputs
from pipeline.report.outcome import NOISE
from pipeline.report.page import build
from pipeline.runtime.files import write_json
from pipeline.training import gradient_noise
from tests.report.page_reader import Element, read_page


def page_of(root: Path, methods: tuple[str, ...]) -> Element:
    return read_page(build(read_inputs(root, ("birds",), methods, (0,)), "A report", queries=8, neighbours=5, thumbnail=24))


def test_metrics_are_shown_under_whatever_name_they_have(make_project: Callable[..., Path]) -> None:
    root = make_project(noise={"good": 0.25})
    path = root / "metrics/birds/good/0.json"
    extra = {"nmi": 0.625, "class_mean_map_at_r": 0.5, "class_mean_map_at_r_low": 0.25, "class_mean_map_at_r_high": 0.75, "reduced_map_at_r": 0.375}
    write_json(path, json.loads(path.read_text()) | extra)
    page = page_of(root, ("good",))
    for absent in ("Attributes", "Gradient noise", "Reality check", "Over seeds", "Method against method"):
        assert absent not in [heading.text() for heading in page.all("h3")], absent
    section = page.first("section", id="set-0-results")
    table, means = section.all("table", **{"class": "results"})
    assert [cell.text() for cell in table.first("thead").all("th")] == [
        "method", "Recall@1", "MAP@R", "R-precision", "MAP", "Recall@2", "Recall@4", "NMI",
    ]  # fmt: skip
    assert table.first("tr", **{"data-network": "selected"}).first("td", **{"data-metric": "nmi"}).text() == "62.5"
    assert table.first("tr", **{"data-network": "reduced"}).first("td", **{"data-metric": "map_at_r"}).text() == "37.5"
    assert [cell.text() for cell in means.all("td")] == ["50.025.0 – 75.0"], "of the selected network alone"


def test_attributes_and_gradient_noise_stand_where_a_run_has_them(project: Path) -> None:
    section = page_of(project, ("good", "poor", "fair")).first("section", id="set-0-geometry")
    table = section.first("table", **{"class": "compact"})
    assert [cell.text() for cell in table.first("tbody").all("td")] == ["pair", "0.0408", "0.5"]  # mean of 1/10, 1/20, ... 1/60
    assert "poor" in table.text()
    labels = [svg["aria-label"] for svg in section.all("svg", **{"aria-label": None})]
    assert [label for label in labels if "Mean attributes of 7 test classes of fair" in label]
    assert [label for label in labels if "Zero-shot transfer of attributes" in label and "fair, cosine" in label]


def test_mean_noise_is_that_of_the_training(project: Path) -> None:
    assert NOISE == gradient_noise.NAMES
    rows = [{"iteration": 3.0, NOISE[0]: 3.0}, {"iteration": 5.0, NOISE[0]: 5.5}, {"iteration": 11.0, NOISE[0]: 0.25}]
    assert over_training(rows, NOISE[0]) == pytest.approx(gradient_noise.over_training(rows, NOISE[0]))


@pytest.fixture
def landmarks(make_project: Callable[..., Path]) -> Path:
    """The made-up run judged as two landmark benchmarks: three queries each, junk among their nearest images."""
    root = make_project(noise={"good": 0.4, "poor": 1.2})
    truth = {"benchmark": [], "query": [], "easy": [], "hard": [], "junk": []}
    for benchmark, first in (("oxford", 30), ("paris", 45)):
        for query in range(first, first + 15, 5):
            own = list(range(query + 1, query + 5))
            for name, value in zip(truth, (benchmark, query, own[:1], own[1:3], own[3:]), strict=True):
                truth[name].append(value)
    table = pa.table(truth)
    pq.write_table(table, root / "shards/birds/ground_truth.parquet")
    for method in ("good", "poor"):
        sides = {}
        for file in ("test", "test-last", "test-untrained"):
            rows = read(root / f"embeddings/birds/{method}/0/{file}.arrow")
            kept = rows.row_id < 60
            label = np.where(rows.row_id < 45, 0, 1)
            query = kept & np.isin(rows.row_id, truth["query"])
            sides[file] = Sides(*(Rows(rows.row_id[side], label[side], rows.embedding[side]) for side in (query, kept & ~query)))
        protocol = LandmarkProtocol("test", 100, 0.95, 0)
        found = evaluate_landmarks(sides["test"], {"last": sides["test-last"], "untrained": sides["test-untrained"]}, table, protocol)
        write_json(root / f"metrics/birds/{method}/0.json", found.metrics)
        write_table(root / f"evaluation/birds/{method}/0/queries.parquet", found.queries)
        write_table(root / f"evaluation/birds/{method}/0/neighbours.parquet", found.neighbours)
        write_json(root / f"evaluation/birds/{method}/0/protocol.json", protocol.declaration())
    return root


def test_landmark_benchmarks_are_reported_by_their_own_ground_truth(landmarks: Path) -> None:
    page = page_of(landmarks, ("good", "poor"))
    metrics = json.loads((landmarks / "metrics/birds/good/0.json").read_text())
    row = page.first("tr", **{"data-method": "good", "data-network": "selected"})
    assert row.first("td", **{"data-metric": "paris_hard_map"}).text().startswith(f"{100 * metrics['paris_hard_map']:.1f}")
    assert f"oxford medium MAP, {100 * metrics['oxford_medium_map']:.1f}" in page.first("p", **{"class": "lede"}).text()
    assert "95% interval over queries" in page.first("section", id="set-0-results").text()
    gallery = page.first("details", **{"data-method": "good"})
    queries = gallery.all("div", **{"class": "query"})
    assert sorted(int(query["data-row"]) for query in queries) == [30, 35, 40, 45, 50, 55]
    for query in queries:
        asked = int(query["data-row"])
        for match in query.all("li"):
            row_id = int(match["data-row"])
            assert row_id != asked + 4, "junk counts neither way"
            assert match["class"] == f"match {'right' if asked < row_id < asked + 4 else 'wrong'}"
        assert "first right" not in query.text()


def test_ensembles_of_the_reality_check_stand_in_a_table_of_their_own(make_project: Callable[..., Path]) -> None:
    root = make_project(noise={"good": 0.25})
    values = {"recall_at_1": 0.5, "r_precision": 0.375, "map_at_r": 0.25}
    numbers = {f"{kind}_{name}{end}": values[name] for kind in ("separated", "concatenated") for name in values for end in ("", "_std")}
    sizes = {"members": 12, "ensembles": 81, "separated_dimensions": 128, "concatenated_dimensions": 512}
    write_json(root / "metrics/birds/good/ensemble.json", numbers | sizes)
    inputs = read_inputs(root, ("birds",), ("good",), (0,), (), ("good",))
    table = read_page(build(inputs, "A report", 4, 3, 24)).first("table", **{"class": "ensembles"})
    assert [cell.text() for cell in table.all("tr")[2].children] == [
        "good, concatenated", "12", "81", "512", "50.0 ± 50.0", "37.5 ± 37.5", "25.0 ± 25.0",
    ]  # fmt: skip
