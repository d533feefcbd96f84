"""The map of the embedding: a point per image and method, one picture per image, absent for landmarks."""

from dataclasses import replace

import pytest

from pipeline.report.dataset import DataSet
from pipeline.report.sections import embedding_map
from tests.report.conftest import EACH, TEST
from tests.report.page_reader import Element


def test_every_method_has_a_point_for_each_image(page: Element, birds: DataSet) -> None:
    maps = page.all("figure", **{"class": "plane"})
    assert len(maps) == len(birds.methods)
    curves = birds.analysis.first_curves
    for drawn, method in zip(maps, birds.methods, strict=True):
        points = drawn.all("g", **{"class": "point"})
        rows = curves[method.name]["map"]["rows"]
        assert len(rows) == TEST * EACH
        assert [point.first("use")["href"] for point in points] == [f"#set-0-map-{row}" for row in rows]
        labels = [int(birds.shards.labels[row]) for row in rows]
        colours = [point.first("circle")["fill"] for point in points]
        assert len(set(colours)) == len(set(labels)) == len(set(zip(colours, labels, strict=True)))
        sources = [birds.shards.sources[row] for row in rows]
        assert all(
            point.first("title").text().endswith(source)
            for point, source in zip(points, sources, strict=True)
        )


def test_every_picture_is_stored_once(page: Element) -> None:
    images = page.first("section", id="set-0-geometry").all("image")
    assert len({image["id"] for image in images if image["id"].startswith("set-0-map-")}) == TEST * EACH
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
