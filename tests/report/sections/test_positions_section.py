"""Weights of image positions: heat maps of queries and matches, shares on the object, and the files."""

import base64
import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.report.conftest import ATTRIBUTES, EACH, MEASURED, TRAIN
from tests.report.page_reader import Element, pictures_of
from unseen.data.decode import decode
from unseen.data.positions import PositionMap
from unseen.report.dataset import DataSet, GallerySize
from unseen.report.heat_maps import heat_map
from unseen.report.position_files import HEADER, csv_rows, write_positions
from unseen.report.report_data import ReportData
from unseen.report.sections import positions
from unseen.report.words import percent

FIRST = TRAIN * EACH
COMPARED = [(FIRST, None), (FIRST + 1, True), (FIRST + EACH, False)]


def section(page: Element) -> Element:
    return page.first("section", id="set-0-positions")


def test_every_query_is_compared_with_its_matches_under_every_method(birds: DataSet) -> None:
    content = positions.content(birds)
    assert content is not None
    first, second = content["queries"]
    assert [query["picture"].row for query in (first, second)] == [FIRST, FIRST + EACH]
    assert [look["method"].name for look in first["looks"]] == list(birds.report_data.methods)
    for look in first["looks"]:
        assert [(each["picture"].row, each["picture"].right) for each in look["maps"]][:3] == COMPARED
        assert [each["caption"] for each in look["maps"]][:3] == ["contribution, query", "0.75", "0.50"]
    captions = {
        look["method"].name: [each["caption"] for each in look["maps"]][3:] for look in first["looks"]
    }
    assert captions == {
        "good": [],
        MEASURED: ["attention, global map", "attention of point 1"],
        ATTRIBUTES: ["transported mass", "dominant prototypes"],
    }


def test_a_query_without_matches_has_the_maps_of_the_image_alone(birds: DataSet) -> None:
    content = positions.content(birds)
    assert content is not None
    captions = [[each["caption"] for each in look["maps"]] for look in content["queries"][1]["looks"]]
    assert captions[0] == ["contribution"]
    assert captions[2] == ["transported mass", "dominant prototypes", "contribution"]


def test_the_page_has_one_picture_per_map_and_marks_the_matches(
    html: str, page: Element, birds: DataSet
) -> None:
    content = positions.content(birds)
    assert content is not None
    maps = [each for query in content["queries"] for look in query["looks"] for each in look["maps"]]
    items = section(page).all("li")
    assert [int(item["data-row"]) for item in items] == [each["picture"].row for each in maps]
    kinds = {None: "map", True: "match right", False: "match wrong"}
    assert [item["class"] for item in items] == [kinds[each["picture"].right] for each in maps]
    pictures = pictures_of(html)
    for item, each in zip(items, maps, strict=True):
        assert pictures[item.first("img")["class"]] == each["picture"].image
        assert item.first("img")["title"] == each["picture"].source
        assert item.first("label")["class"] == "zoom"


def test_the_table_has_the_share_of_every_kind_of_map(page: Element, birds: DataSet) -> None:
    rows = birds.report_data.object_shares_of("birds")
    cells = [[cell.text() for cell in row.all("td")] for row in section(page).first("tbody").all("tr")]
    shares = {(row["method"], row["map"]): _text(row) for row in rows}
    attention, mass = "attention, global map", "transported mass"
    assert cells == [
        [shares["good", "contribution"], ""],
        [shares[MEASURED, "contribution"], f"{attention} {shares[MEASURED, attention]}"],
        [shares[ATTRIBUTES, "contribution"], f"{mass} {shares[ATTRIBUTES, mass]}"],
    ]
    assert f"covers {percent(rows[0]['area'])} %" in section(page).text()


def _text(row: dict[str, float]) -> str:
    return percent(row["share"])


def test_a_share_has_the_interval_of_its_classes(birds: DataSet) -> None:
    """The maps of the fixture are of two classes."""
    rows = [row | {"low": 0.1, "high": 0.25} for row in birds.report_data.object_shares_of("birds")]
    dataset = replace(birds, report_data=replace(birds.report_data, object_shares=rows))
    content = positions.content(dataset)
    assert content is not None
    assert all(row["contribution"].endswith(" (10.0 – 25.0)") for row in content["shares"])


@pytest.mark.slow
def test_shares_are_means_over_the_seeds(two_seeds_inputs: ReportData) -> None:
    dataset = DataSet(two_seeds_inputs, "birds", "set-0", GallerySize(4, 3, 24))
    content = positions.content(dataset)
    assert content is not None
    rows = [row for row in dataset.report_data.object_shares_of("birds") if row["method"] == "good"]
    assert len(rows) == 2
    (share,) = [row for row in content["shares"] if row["method"].name == "good"]
    assert share["contribution"] == percent((rows[0]["share"] + rows[1]["share"]) / 2)


def test_results_without_positions_have_no_section(birds: DataSet) -> None:
    assert positions.content(replace(birds, report_data=replace(birds.report_data, positions={}))) is None


def test_a_data_set_that_does_not_know_its_object_has_no_table(two_seeds_inputs: ReportData) -> None:
    content = positions.content(DataSet(two_seeds_inputs, "my-birds", "set-1", GallerySize(4, 3, 24)))
    assert content is not None
    assert content["shares"] == []
    assert content["queries"]


class TestHeatMap:
    IMAGE = np.full((30, 60, 3), 120, np.uint8)
    MAP = PositionMap(0, 0, "a", (0.25, 0.0, 0.75, 1.0), "map", np.zeros((1, 2), np.float32))

    def test_the_largest_weight_is_the_brightest_position(self) -> None:
        weights = np.array([[0.1, 0.9]], np.float32)
        image = heat_map(self.IMAGE, replace(self.MAP, weights=weights), 60).sum(2, dtype=int)
        assert image[15, 40] > image[15, 20] + 100

    def test_the_map_covers_the_region_of_the_input_only(self) -> None:
        weights = np.ones((1, 2), np.float32)
        image = heat_map(self.IMAGE, replace(self.MAP, weights=weights), 60)
        grey = (image.max(2) == image.min(2)).all(0)
        assert grey[:15].all()
        assert not grey[15:45].any()
        assert grey[45:].all()

    def test_negative_weights_are_drawn_as_zero(self) -> None:
        zero, negative = (np.array([[value, 1.0]], np.float32) for value in (0, -3))
        assert np.array_equal(
            heat_map(self.IMAGE, replace(self.MAP, weights=zero), 60),
            heat_map(self.IMAGE, replace(self.MAP, weights=negative), 60),
        )

    def test_prototypes_have_different_hues(self) -> None:
        weights, prototype = np.ones((1, 2), np.float32), np.array([[0, 3]], np.int32)
        image = heat_map(self.IMAGE, replace(self.MAP, weights=weights, prototype=prototype), 60)
        assert np.abs(image[15, 20].astype(int) - image[15, 40]).max() > 40
        assert np.array_equal(image[15, 20], image[5, 25])

    def test_a_point_is_marked(self) -> None:
        weights = np.ones((1, 2), np.float32)
        image = heat_map(self.IMAGE, replace(self.MAP, weights=weights, point=(0.5, 0.5)), 60)
        assert image[15, 30].tolist() == [255, 255, 255]

    @pytest.mark.parametrize("size", [40, 200])
    def test_has_the_requested_size(self, size: int) -> None:
        assert heat_map(self.IMAGE, self.MAP, size).shape == (size // 2, size, 3)


def test_the_files_have_every_map_and_every_weight(inputs: ReportData, tmp_path: Path) -> None:
    write_positions(inputs, tmp_path)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")) == sorted(
        f"birds/{method}.{kind}" for method in inputs.methods for kind in ("csv", "svg")
    )
    content = inputs.positions["birds", ATTRIBUTES]
    maps = [each for query in content.queries for each, _, _ in positions.chosen(content, query)]
    svg = (tmp_path / f"birds/{ATTRIBUTES}.svg").read_text(encoding="utf-8")
    pictures = re.findall(r'href="data:image/jpeg;base64,([^"]+)"', svg)
    assert len(pictures) == len(maps) + len(content.queries)
    assert max(decode(np.frombuffer(base64.b64decode(pictures[1]), np.uint8)).shape) == 224
    assert "right match, 0.75" in svg
    with (tmp_path / f"birds/{ATTRIBUTES}.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == HEADER
    assert len(rows) == 9 * len(maps)
    for each, start in zip(maps, range(0, len(rows), 9), strict=True):
        weights = [float(row["weight"]) for row in rows[start : start + 9]]
        np.testing.assert_allclose(weights, each.weights.ravel(), rtol=1e-5)
        assert {row["row_id"] for row in rows[start : start + 9]} == {str(each.row_id)}


def test_the_name_of_a_photo_is_no_formula(inputs: ReportData) -> None:
    content = inputs.positions["birds", ATTRIBUTES]
    renamed = tuple(replace(each, source="=1.jpg") for each in content.maps)
    assert {row[1] for row in csv_rows(replace(content, maps=renamed))} == {"'=1.jpg"}


def test_the_files_of_equal_results_are_equal(inputs: ReportData, tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_positions(inputs, tmp_path / name)
    for path in (tmp_path / "first").rglob("*.*"):
        other = tmp_path / "second" / path.relative_to(tmp_path / "first")
        assert path.read_bytes() == other.read_bytes()
