"""The map of the embedding: a point per image and method, one picture per image, absent for landmarks."""

from dataclasses import replace

import numpy as np
import pytest

from tests.report.conftest import EACH
from tests.report.page_reader import Element
from unseen.report.dataset import DataSet
from unseen.report.sections import embedding_map

MAPPED = 8  # test classes


def test_every_method_has_a_point_for_each_image(page: Element, birds: DataSet) -> None:
    maps = page.all("figure", **{"class": "plane"})
    assert len(maps) == len(birds.methods)
    curves = birds.analysis.first_curves
    for drawn, method in zip(maps, birds.methods, strict=True):
        points = drawn.all("g", **{"class": "point"})
        rows = curves[method.name]["map"]["rows"]
        assert len(rows) == MAPPED * EACH
        assert [point.first("use")["href"] for point in points] == [f"#set-0-map-{row}" for row in rows]
        labels = [int(birds.shards.labels[row]) for row in rows]
        colours = [point.first("circle")["fill"] for point in points]
        assert len(set(colours)) == len(set(labels)) == len(set(zip(colours, labels, strict=True)))
        sources = [birds.shards.sources[row] for row in rows]
        assert all(
            point.first("title").text().endswith(source)
            for point, source in zip(points, sources, strict=True)
        )


def test_a_hull_contains_the_points_of_its_class(page: Element) -> None:
    for drawn in page.all("figure", **{"class": "plane"}):
        corners = {
            polygon["fill"]: np.array([pair.split(",") for pair in polygon["points"].split()], float)
            for polygon in drawn.all("polygon")
        }
        circles = [point.first("circle") for point in drawn.all("g", **{"class": "point"})]
        for fill, corner in corners.items():
            points = np.array(
                [[circle["cx"], circle["cy"]] for circle in circles if circle["fill"] == fill], float
            )
            edges = np.roll(corner, -1, axis=0) - corner
            offsets = points[:, None] - corner
            side = edges[:, 0] * offsets[..., 1] - edges[:, 1] * offsets[..., 0]
            assert (side > -1e-6).all() or (side < 1e-6).all()
            assert {tuple(row) for row in corner.tolist()} <= {tuple(row) for row in points.tolist()}
        assert set(corners) == {circle["fill"] for circle in circles}


def test_points_on_a_line_have_no_hull() -> None:
    square = [(0.0, 0.0, 1), (2.0, 0.0, 1), (2.0, 2.0, 1), (0.0, 2.0, 1), (1.0, 1.0, 1)]
    line = [(0.0, 0.0, 0), (1.0, 1.0, 0), (2.0, 2.0, 0), (5.0, 1.0, 2)]
    (hull,) = embedding_map.hulls([*line, *square])
    assert hull["colour"] == 1
    assert sorted(hull["corners"].split()) == ["0,0", "0,2", "2,0", "2,2"]


def test_every_picture_is_stored_once(page: Element) -> None:
    images = page.first("section", id="set-0-geometry").all("image")
    assert len({image["id"] for image in images if image["id"].startswith("set-0-map-")}) == MAPPED * EACH
    assert all(image["href"].startswith("data:image/jpeg") for image in images)


def test_both_axes_have_one_scale_and_the_points_are_inside() -> None:
    x, y = [-1.0, 3.0, 1.0], [0.5, 0.0, 1.0]
    places = embedding_map.places(x, y)
    middle = embedding_map.SIDE / 2
    scale = (embedding_map.SIDE - 2 * embedding_map.MARGIN) / 4
    expected = [(middle + scale * (a - 1), middle - scale * (b - 0.5)) for a, b in zip(x, y, strict=True)]
    for place, point in zip(places, expected, strict=True):
        assert place == pytest.approx(point, abs=0.05)


def test_without_maps_there_is_no_section(birds: DataSet) -> None:
    analysis = [
        entry | {"curves": {key: value for key, value in entry["curves"].items() if key != "map"}}
        for entry in birds.report_data.analysis
    ]
    without = replace(birds, report_data=replace(birds.report_data, analysis=analysis))
    assert embedding_map.content(without) is None
