"""The results table: numbers of the metrics files, every network and metric."""

import json
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.conftest import METHODS
from tests.report.page_reader import Element, read_page
from unseen.report.dataset import DataSet, GallerySize
from unseen.report.joint_intervals import joint_intervals
from unseen.report.page import build
from unseen.report.report_data import ReportData, read_report_data
from unseen.report.sections.results import content
from unseen.runtime.files import write_json
from unseen.runtime.sealed import DIGESTS, write_digests

PREFIX = {"selected": "", "last": "last_", "features": "features_"}


def file_of(root: Path, method: str, seed: int = 0) -> dict[str, float]:
    return json.loads((root / f"evaluation/birds/{method}/{seed}/metrics.json").read_text())


def test_numbers_of_the_table_equal_the_metrics_files(page: Element, project: Path) -> None:
    rows = page.all("tr", **{"data-network": None})
    assert len(rows) == 9
    names = set()
    for row in rows:
        metrics = file_of(project, row["data-method"])
        for cell in row.all("td"):
            name = PREFIX[row["data-network"]] + cell["data-metric"]
            lower, upper = (f"{100 * metrics[f'{name}_{end}']:.1f}" for end in ("low", "high"))
            assert cell.text() == f"{100 * metrics[name]:.1f}{lower} – {upper}"
            names.add(cell["data-metric"])
    assert names == {"recall_at_1", "recall_at_2", "recall_at_4", "r_precision", "map_at_r", "map"}


def test_methods_are_sorted_by_map_at_r(page: Element, project: Path) -> None:
    selected = page.first("section", id="set-0-results").all("tr", **{"data-network": "selected"})
    values = {method: file_of(project, method)["map_at_r"] for method in METHODS}
    expected = sorted(METHODS, key=lambda method: -values[method])
    assert expected != list(METHODS), "the order of the run differs"
    assert [row["data-method"] for row in selected][: len(METHODS)] == expected


def test_rows_of_the_features_before_training_name_their_weights(page: Element) -> None:
    labels = {
        row["data-method"]: row.first("th").text() for row in page.all("tr", **{"data-network": "features"})
    }
    expected = {
        "good": "random features, no projection",
        "poor": "pretrained features, no projection",
        "fair": "random features, no projection",
    }
    assert labels == expected
    for element in page.descendants():
        own_text = "".join(part for part in element.parts if isinstance(part, str))
        assert "untrained" not in own_text.replace("with its new layers untrained_*", "")


@pytest.mark.slow
def test_several_seeds_have_mean_deviation_and_joint_interval(
    two_seeds_page: Element, two_seeds_inputs: ReportData
) -> None:
    for method in METHODS:
        runs = two_seeds_inputs.of("birds", method)
        intervals = joint_intervals(runs)
        for network, prefix in PREFIX.items():
            values = [run.metrics[f"{prefix}map_at_r"] for run in runs]
            lower, upper = intervals[f"{prefix}map_at_r"]
            mean = f"{100 * statistics.fmean(values):.1f} ± {100 * statistics.stdev(values):.1f}"
            row = two_seeds_page.first("tr", **{"data-method": method, "data-network": network})
            cell = row.first("td", **{"data-metric": "map_at_r"})
            assert cell.text() == f"{mean}{100 * lower:.1f} – {100 * upper:.1f}"
    text = two_seeds_page.first("section", id="set-0-results").text()
    assert "before training, without a projection, with their interval" in text


def test_few_validation_classes_are_reported(page: Element) -> None:
    text = "The iterate is selected by MAP@R on only 2 classes held out of training."
    assert text in page.first("section", id="set-0-results").text()


@pytest.fixture
def one_method(make_project: Callable[..., Path]) -> Path:
    return make_project(noise={"good": 0.25})


@pytest.mark.slow
def test_metrics_of_any_name_are_shown(one_method: Path) -> None:
    path = one_method / "evaluation/birds/good/0/metrics.json"
    class_mean = {
        "class_mean_map_at_r": 0.5,
        "class_mean_map_at_r_low": 0.25,
        "class_mean_map_at_r_high": 0.75,
    }
    search = {"approximate_search_recall_at_1": 0.99, "approximate_search_recall_at_10": 0.925}
    other_metrics = {"nmi": 0.625, "reduced_map_at_r": 0.375, "approximate_map_at_r": 0.75}
    write_json(path, json.loads(path.read_text()) | class_mean | search | other_metrics)
    (path.parent / DIGESTS).unlink()
    write_digests(path.parent)
    inputs = read_report_data(one_method, ("birds",), ("good",), (0,))
    section = read_page(build(inputs, "A report", 4, 3, 24).html).first("section", id="set-0-results")
    table, means = section.all("table", **{"class": "results"})
    assert [cell.text() for cell in table.first("thead").all("th")] == [
        "method", "Recall@1", "MAP@R", "R-precision", "MAP", "Recall@2", "Recall@4", "NMI",
    ]  # fmt: skip
    rows = {row["data-network"]: row for row in table.all("tr", **{"data-network": None})}
    assert rows["selected"].first("td", **{"data-metric": "nmi"}).text() == "62.5"
    assert rows["reduced"].first("td", **{"data-metric": "map_at_r"}).text() == "37.5"
    assert rows["approximate"].first("td", **{"data-metric": "map_at_r"}).text() == "75.0"
    label = rows["approximate"].first("th").text()
    assert label == "with the approximate indexfinds 92.5% of the exact 10 nearest"
    assert [cell.text() for cell in means.all("td")] == ["50.025.0 – 75.0"], "only of the selected network"


@pytest.mark.slow
def test_one_method_has_no_bold_value(one_method: Path) -> None:
    dataset = DataSet(
        read_report_data(one_method, ("birds",), ("good",), (0,)), "birds", "set-0", GallerySize(4, 3, 24)
    )
    rows = content(dataset)["table_over_queries"]["rows"]
    assert not any(cell["best"] for row in rows for cell in row["cells"])
