"""Heat maps over the thumbnails of a gallery: which map, its place and its pixels."""

import base64

import cv2
import numpy as np
import pytest

from tests.report.page_reader import Element
from unseen.data.positions import PositionMap, Positions, QueryMatches
from unseen.report.heat_maps import position_colours
from unseen.report.overlays import Overlays

WEIGHTS = np.array([[0.0, 0.5, 1.0], [0.25, 0.75, 0.0]], np.float32)


def position_map(**changes: object) -> PositionMap:
    values = {"region": (0.25, 0.0, 0.75, 1.0), "name": "contribution", "weights": WEIGHTS} | changes
    return PositionMap(7, 0, "a.jpg", **values)


def test_the_layer_has_one_pixel_per_position_and_no_image() -> None:
    prototype = np.array([[0, 1, 2], [0, 1, 2]], np.int32)
    for each in (position_map(), position_map(prototype=prototype)):
        overlay = Overlays(Positions((each,), ())).overlay(7, 100, 100)
        assert overlay is not None
        kind, _, content = overlay.image.partition(",")
        assert kind == "data:image/png;base64"
        pixels = cv2.imdecode(np.frombuffer(base64.b64decode(content), np.uint8), cv2.IMREAD_COLOR)
        assert pixels is not None
        expected = position_colours(position_map(), 3, 2)
        np.testing.assert_allclose(pixels[..., ::-1], expected, atol=1)


@pytest.mark.parametrize(
    ("size", "place"),
    [
        ((100, 100), (25.0, 0.0, 50.0, 100.0)),
        ((200, 100), (25.0, 25.0, 50.0, 50.0)),
        ((100, 200), (37.5, 0.0, 25.0, 100.0)),
    ],
)
def test_the_layer_covers_the_input_of_the_network(
    size: tuple[int, int], place: tuple[float, float, float, float]
) -> None:
    """Thumbnails are centred in a square."""
    overlay = Overlays(Positions((position_map(),), ())).overlay(7, *size)
    assert overlay is not None
    assert (overlay.left, overlay.top, overlay.width, overlay.height) == place


def test_the_map_of_a_comparison_comes_first() -> None:
    maps = (
        position_map(name="prototype 1", detail=True),
        position_map(name="own"),
        position_map(name="compared", reference=3),
    )
    overlays = Overlays(Positions(maps, (QueryMatches(7, None, None),)))
    assert overlays.queries == (7,)
    names = [
        overlay and overlay.name for overlay in (overlays.overlay(7, 8, 8, 3), overlays.overlay(7, 8, 8, 4))
    ]
    assert names == ["compared", "own"]
    assert overlays.overlay(8, 8, 8) is None
    assert Overlays(None).overlay(7, 8, 8) is None


def test_galleries_show_the_maps_of_random_queries(page: Element) -> None:
    gallery = page.first("section", id="set-0-gallery")
    assert gallery.first("input", **{"class": "heat-maps"})["type"] == "checkbox"
    layers = gallery.all("span", **{"class": "heat"})
    assert len(layers) >= 6
    assert all("image/png" in layer.first("i")["style"] for layer in layers)
