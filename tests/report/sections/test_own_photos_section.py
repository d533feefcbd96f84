"""The answers on the photos of a user: gain of training, errors, doubtful labels, threshold."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.report.page_reader import Element, read_page
from tests.report.test_method_pairs import SEEDS, verdict
from unseen.data.embeddings import Embeddings
from unseen.evaluation.statistics.better import Verdict
from unseen.report.dataset import DataSet
from unseen.report.page import build
from unseen.report.report_data import ReportData
from unseen.report.sections.own_photos import answer, content, errors_of, threshold_of


@pytest.fixture(scope="module")
def own(birds: DataSet) -> DataSet:
    return replace(birds, report_data=replace(birds.report_data, own_photos=("birds",)))


def test_other_data_sets_have_no_answers(birds: DataSet, page: Element) -> None:
    assert content(birds) is None
    assert not page.all("section", id="set-0-answers")


def test_the_section_is_the_first_one(inputs: ReportData) -> None:
    html = build(replace(inputs, own_photos=("birds",)), "A report", 4, 3, 24).html
    page = read_page(html)
    assert page.all("section", **{"class": "part"})[0]["id"] == "set-0-answers"
    text = page.first("section", id="set-0-answers").text()
    for question in ("Does training pay?", "Which products have most errors?", "Which labels are doubtful?"):
        assert question in text
    assert "1 image has the same pixels as an image of another product." in text


def test_the_gain_is_that_over_the_features(own: DataSet, project: Path) -> None:
    values = content(own)
    assert values is not None
    metrics = json.loads((project / "evaluation/birds/good/0/metrics.json").read_text())
    for row, metric in zip(values["gains"], ("map_at_r", "recall_at_1"), strict=True):
        floor, trained = metrics[f"features_{metric}"], metrics[metric]
        assert (row["floor"], row["trained"]) == (f"{100 * floor:.1f}", f"{100 * trained:.1f}")
        assert row["difference"] == f"{100 * (trained - floor):+.1f}"
    assert values["answer"].startswith("Yes: this one training adds ")


@pytest.mark.parametrize(
    ("compared", "start"),
    [
        (verdict(0.01, 0.05, 0.01), "Yes: this one training adds 3.0 points of MAP@R (+1.0 to +5.0) to"),
        (verdict(-0.05, -0.01, 0.01), "No: this one training costs 3.0 points of MAP@R (−5.0 to −1.0). Use"),
        (
            verdict(-0.01, 0.05, 0.3),
            "Not shown: this one training changes the features before training by +2.0",
        ),
        (verdict(0.01, 0.05, 0.01, SEEDS), "Yes: training adds 3.0 points of MAP@R"),
        (
            verdict(-0.002, 0.001, 0.5, SEEDS),
            "No: training changes the features before training by −0.1 points of MAP@R (−0.2 to +0.1), and "
            "the whole interval is within 0.3 points.",
        ),
        (
            verdict(0.01, 0.05, 0.01, classes=15),
            "Not decided: 15 test products are too few, 16 are needed; this one training changes the "
            "features before training by +3.0",
        ),
    ],
)
def test_the_answer_follows_the_rule_of_all_comparisons(compared: Verdict, start: str) -> None:
    assert answer("map_at_r", compared).startswith(start)


def test_errors_are_queries_whose_nearest_image_has_another_class(own: DataSet) -> None:
    (run,) = own.runs("poor")
    queries = run.queries.to_pylist()
    wrong = {}
    for label in {row["label"] for row in queries}:
        group = [row for row in queries if row["label"] == label]
        wrong[label] = (sum(row["first_positive"] != 1 for row in group), len(group))
    expected = sorted(wrong.values(), key=lambda counts: -counts[0] / counts[1])[:5]
    rows = errors_of(own, "poor")
    assert [(row["wrong"], row["photos"]) for row in rows] == expected
    assert rows[0]["wrong"] > 0


def test_doubtful_labels_name_photos_of_two_products(own: DataSet) -> None:
    values = content(own)
    assert values is not None
    (identical,) = values["identical"]["pairs"]
    assert [image.source for image in identical["images"]] == ["6/1.jpg", "7/2.jpg"]
    for doubtful in values["similar"]["pairs"]:
        first, second = doubtful["images"]
        assert first.label != second.label
        assert float(doubtful["similarity"]) >= float(values["similar"]["median"])


def test_a_threshold_that_few_products_do_not_allow_is_explained(own: DataSet) -> None:
    values = content(own)
    assert values is not None
    assert "16 products with" in values["threshold"]
    assert "are too few to limit the false matches to 20%" in values["threshold"]


def test_the_errors_of_a_threshold_are_those_of_the_analysis(own: DataSet, inputs: ReportData) -> None:
    values = content(own)
    assert values is not None
    points = own.analysis.first_curves[values["method"]]["operating_points"]
    assert [row["rate"] for row in values["match_errors"]] == ["10", "1", "0.1"]
    for row, point in zip(values["match_errors"], points, strict=True):
        assert row["fnmr"] == f"{100 * point['fnmr']:.1f}"
        assert row["interval"] == f"{100 * point['low']:.1f} – {100 * point['high']:.1f}"
        assert row["similarity"] == f"{point['threshold']:.3f}"


def test_the_threshold_is_that_of_a_catalog() -> None:

    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(60), 4)
    vectors = generator.normal(size=(60, 16))[labels] + 0.3 * generator.normal(size=(240, 16))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    sides = np.ones(240, bool)
    text = threshold_of(Embeddings(np.arange(240), labels * 5, vectors, sides, sides))
    assert text.startswith("An answer needs a score of 0.")
    assert "Of photos of unknown products, at most 9." in text, "60 products do not allow 5%"
    assert "leaving out each of 60 products, 240 photos" in text
    one = threshold_of(Embeddings(np.arange(4), labels[:4], vectors[:4], sides[:4], sides[:4]))
    assert one == "There is one test product: no photo of another product can get a match."
