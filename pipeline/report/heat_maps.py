"""The weights of the positions of an image as a heat map over the image.

The image is grey and the map is in colour, because the colours of an image would change those of the map. The
parts of the image that the network does not see are dark.
"""

import cv2
import numpy as np
from jaxtyping import Float, UInt8

from unseen.data.decode import decode
from unseen.data.positions import PositionMap
from unseen.report.pictures import compressed, uri_of

_GREY = 0.45  # share of the image in a pixel; the rest is the colour of the map
_GOLDEN = 0.6180339887  # between the hues of consecutive prototypes
_MARK = 0.045  # radius of the mark of a point, as a share of the longer side


def data_uri(encoded: UInt8[np.ndarray, "bytes"], position_map: PositionMap, size: int) -> str:
    """The heat map of an encoded image as the data URI of a JPEG."""
    return uri_of(compressed(heat_map(decode(encoded), position_map, size)))


def heat_map(
    image: UInt8[np.ndarray, "H W 3"], position_map: PositionMap, size: int
) -> UInt8[np.ndarray, "h w 3"]:
    """The image with the map over it, its longer side `size` pixels.

    Weights are relative to the largest one; those below zero are zero. If the map has prototypes, each
    position has the hue of its prototype, and the weight is the brightness.
    """
    scale = size / max(image.shape[:2])
    height, width = (max(1, round(side * scale)) for side in image.shape[:2])
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    grey = cv2.cvtColor(cv2.resize(image, (width, height), interpolation=method), cv2.COLOR_RGB2GRAY)
    canvas = np.repeat(_GREY * grey[..., None].astype(np.float32), 3, axis=2)
    left, top, right, bottom = _pixels(position_map.region, width, height)
    colours = position_colours(position_map, right - left, bottom - top)
    canvas[top:bottom, left:right] += (1 - _GREY) * colours
    result: np.ndarray = np.clip(canvas + 0.5, 0, 255).astype(np.uint8)
    if position_map.point is not None:
        x, y = position_map.point
        center = (round(left + x * (right - left)), round(top + y * (bottom - top)))
        radius = max(2, round(_MARK * size))
        cv2.circle(result, center, radius + 1, (0, 0, 0), cv2.FILLED, cv2.LINE_AA)
        cv2.circle(result, center, radius, (255, 255, 255), cv2.FILLED, cv2.LINE_AA)
    return result


def position_colours(position_map: PositionMap, width: int, height: int) -> Float[np.ndarray, "h w 3"]:
    """RGB of the region of the map, 0 to 255, in `width` x `height` pixels."""
    weights = position_map.weights.clip(min=0)
    weights = weights / max(float(weights.max()), 1e-30)
    large = cv2.resize(weights.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR)
    if position_map.prototype is None:
        levels = np.clip(large * 255 + 0.5, 0, 255).astype(np.uint8)
        colours = cv2.cvtColor(cv2.applyColorMap(levels, cv2.COLORMAP_INFERNO), cv2.COLOR_BGR2RGB)
        return colours.astype(np.float32)
    prototype = position_map.prototype.astype(np.float32)
    nearest = cv2.resize(prototype, (width, height), interpolation=cv2.INTER_NEAREST)
    hue = 360 * ((nearest * _GOLDEN) % 1)
    hsv = np.stack([hue, np.full_like(hue, 0.8), 0.25 + 0.75 * large], axis=2).astype(np.float32)
    colours = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)
    return 255 * np.asarray(colours, np.float32)


def _pixels(region: tuple[float, float, float, float], width: int, height: int) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a region in pixels, at least one pixel wide and high."""
    left, right = (min(max(round(share * width), 0), width) for share in region[::2])
    top, bottom = (min(max(round(share * height), 0), height) for share in region[1::2])
    left, top = min(left, width - 1), min(top, height - 1)
    return left, top, max(right, left + 1), max(bottom, top + 1)
