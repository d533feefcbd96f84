"""The weights of the positions of an image as a layer over its thumbnail.

The layer is a PNG of one pixel per position, which the browser enlarges: it contains no pixel of the image.
The page (page.css) makes the image grey and shows the layer over it if the reader asks for heat maps.
"""

import base64
from dataclasses import dataclass, replace

import cv2
import numpy as np

from unseen.data.positions import PositionMap, Positions
from unseen.report.heat_maps import position_colours


@dataclass(frozen=True)
class Overlay:
    """A layer. left, top, width and height: percent of the square in which a thumbnail is centred."""

    name: str  # what the weights are
    image: str  # data URI
    left: float
    top: float
    width: float
    height: float


class Overlays:
    """The layers of the images of a positions file."""

    def __init__(self, positions: Positions | None) -> None:
        """None: no image has a layer."""
        self._maps: dict[int, list[PositionMap]] = {}
        for each in positions.maps if positions is not None else ():
            if not each.detail:
                self._maps.setdefault(each.row_id, []).append(each)
        self.queries = tuple(query.row_id for query in positions.queries) if positions is not None else ()

    def overlay(self, row: int, width: int, height: int, reference: int | None = None) -> Overlay | None:
        """The layer of an image with `width` x `height` pixels: the map of its comparison with image
        `reference` if the file has it, else the first map of its whole embedding; None without a map."""
        maps = self._maps.get(row, [])
        compared = [each for each in maps if reference is not None and each.reference == reference]
        own = [each for each in maps if each.reference is None]
        return next((_layer(each, width, height) for each in (*compared, *own)), None)


def _layer(position_map: PositionMap, width: int, height: int) -> Overlay:
    side = max(width, height)
    left, top, right, bottom = position_map.region
    across, down = width / side, height / side  # shares of the square
    return Overlay(
        position_map.name,
        _png(replace(position_map, prototype=None)),
        *(
            round(100 * share, 2)
            for share in (
                (1 - across) / 2 + left * across,
                (1 - down) / 2 + top * down,
                (right - left) * across,
                (bottom - top) * down,
            )
        ),
    )


def _png(position_map: PositionMap) -> str:
    height, width = position_map.weights.shape
    colours = position_colours(position_map, width, height)
    pixels = np.clip(colours + 0.5, 0, 255).astype(np.uint8)
    _, encoded = cv2.imencode(".png", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))
    return "data:image/png;base64," + base64.b64encode(encoded.tobytes()).decode("ascii")
