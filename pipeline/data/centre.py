"""The centre crop of testing: which part of a resized picture a network reads. It needs no PyTorch."""

from collections.abc import Callable

import numpy as np
from jaxtyping import UInt8

from unseen.data.settings import Input

LONGEST = 100  # longer side over shorter side of an image that is resized
Region = tuple[float, float, float, float]  # left, top, right, bottom as shares of the sides of an image
# picture, height, width, interpolation -> the resized picture
Resize = Callable[[UInt8[np.ndarray, "H W 3"], int, int, str], UInt8[np.ndarray, "h w 3"]]


def centre_crop(
    picture: UInt8[np.ndarray, "H W 3"], input: Input, resize: Resize
) -> UInt8[np.ndarray, "S S 3"]:
    """The centre of `picture` after resizing. With fit `shorter` the shorter side becomes `input.resize`,
    otherwise both sides; None: `input.size`."""
    if input.fit == "shorter":
        picture = _middle(picture)
    height, width = picture.shape[:2]
    resized_width, resized_height, left, top = _centre(width, height, input)
    resized = resize(picture, resized_height, resized_width, input.interpolation)
    return resized[top : top + input.size, left : left + input.size]


def _middle(picture: UInt8[np.ndarray, "H W 3"]) -> UInt8[np.ndarray, "h w 3"]:
    """The picture, its longer side cut to LONGEST times the shorter one. A centre crop is a small part of the
    middle, and an image of 65,500 x 1 pixels, resized to 256 rows, would have 4 x 10^9 pixels."""
    height, width = picture.shape[:2]
    longest = LONGEST * min(height, width)
    top, left = (max(0, side - longest) // 2 for side in (height, width))
    return picture[top : height - top, left : width - left]


def region_for_testing(width: int, height: int, input: Input) -> Region:
    """The part of an image of this size that `crop_for_testing` shows, as shares of its sides."""
    resized_width, resized_height, left, top = _centre(width, height, input)
    return (
        left / resized_width,
        top / resized_height,
        (left + input.size) / resized_width,
        (top + input.size) / resized_height,
    )


def _centre(width: int, height: int, input: Input) -> tuple[int, int, int, int]:
    """Width and height of an image after resizing, left and top of its centre crop."""
    shorter = input.resize or input.size
    resized_width = resized_height = shorter
    if input.fit == "shorter" and width <= height:  # as in torchvision, the longer side is rounded down
        resized_height = shorter * height // width
    elif input.fit == "shorter":
        resized_width = shorter * width // height
    left, top = (round((side - input.size) / 2) for side in (resized_width, resized_height))
    return resized_width, resized_height, left, top
