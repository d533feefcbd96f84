"""Decoded picture -> one image of a batch: the random resized crop of training, the centre crop of testing.

Resizing is that of Pillow, as in the field: bilinear or bicubic (`input.interpolation`; a = -1/2),
antialiased (the width of the filter grows with the shrink factor), rows before columns, rounded and clamped
to 0 ... 255 after each. torch's uint8 kernel computes it with 16-bit integers on interleaved pixels. The
difference from Pillow is at most one grey level for bilinear, for shrinking and enlarging. For bicubic it is
two levels before Pillow 13, which filters columns before rows if that is cheaper: 16 levels on photos, up to
30 at hard edges between black and white. benchmarks/loader.py has the speeds of other libraries.
"""

import math
from collections.abc import Callable

import cv2
import numpy as np
import torch
from jaxtyping import UInt8

from unseen.data.centre import centre_crop
from unseen.data.scratch import Scratch
from unseen.data.settings import Input
from unseen.runtime.errors import UserError
from unseen.runtime.parts import made

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
ATTEMPTS = 10  # as torchvision
_KERNELS: dict[str, Callable[..., object]] = {
    "bilinear": torch._C._nn._upsample_bilinear2d_aa,
    "bicubic": torch._C._nn._upsample_bicubic2d_aa,
}


class OutsideTransform:
    """The transform of a user, of a training image after its crop and flip. Raises UserError for a result of
    another shape or type."""

    def __init__(self, input: Input) -> None:
        self._module, self._transform = input.module, made(input, {"input": input})

    def __call__(self, crop: UInt8[np.ndarray, "S S 3"], key: int) -> UInt8[np.ndarray, "S S 3"]:
        image: UInt8[np.ndarray, "S S 3"] = self._transform(crop, key)
        if (image.shape, image.dtype) != (crop.shape, crop.dtype):
            raise UserError(
                f"The transform {self._module} returns an image {image.shape} of type {image.dtype}; "
                f"expected {crop.shape} of type {crop.dtype}.",
                "Correct its `__call__`.",
            )
        return image


class SplitMix64:
    """Counter-based random numbers (Steele, Lea and Flood 2014, fig. 16).

    state_t = key + t * golden ratio, mixed by two multiplications.

    Each augmented image has one stream, because the construction of a NumPy generator takes longer than all
    random numbers of an image.
    """

    def __init__(self, key: int) -> None:
        self.state = int(key) & _MASK

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """A float64 in [low, high) with 53 random bits."""
        self.state = (self.state + _GOLDEN) & _MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        z ^= z >> 31
        return low + (high - low) * ((z >> 11) * 2.0**-53)

    def below(self, bound: int) -> int:
        """An integer in 0 .. bound - 1 for bounds far below 2^53."""
        return min(int(self.uniform() * bound), bound - 1)


def random_crop(width: int, height: int, numbers: SplitMix64, input: Input) -> tuple[int, int, int, int]:
    """The box (left, top, width, height) of RandomResizedCrop as in torchvision.

    (Szegedy et al. 2015, section 6.)

    Area: uniform share `crop_scale` of the picture. Ratio width / height: log-uniform in `crop_ratio`. If
    none of 10 draws fits, the largest centred box with an allowed ratio. With fit `square`, ratios are those
    of a box in the picture after it is resized to a square.
    """
    area = width * height
    shape = width / height if input.fit == "square" else 1.0
    lowest, highest = (ratio * shape for ratio in input.crop_ratio)
    log_lowest, log_highest = math.log(lowest), math.log(highest)
    for _ in range(ATTEMPTS):
        target = area * numbers.uniform(*input.crop_scale)
        ratio = math.exp(numbers.uniform(log_lowest, log_highest))
        crop_width, crop_height = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            left, top = numbers.below(width - crop_width + 1), numbers.below(height - crop_height + 1)
            return left, top, crop_width, crop_height
    crop_width, crop_height = width, height
    if width / height < lowest:
        crop_height = max(1, min(height, round(width / lowest)))
    elif width / height > highest:
        crop_width = max(1, min(width, round(height * highest)))
    return (width - crop_width) // 2, (height - crop_height) // 2, crop_width, crop_height


def crop_for_training(
    picture: UInt8[np.ndarray, "H W 3"],
    key: int,
    input: Input,
    out: UInt8[np.ndarray, "3 S S"],
    scratch: Scratch | None = None,
) -> None:
    """Writes a random resized crop of `picture` into `out`, mirrored with probability `input.flip`.

    `key` determines all random numbers. `out` may have any strides; interleaved pixels, as in `picture`, are
    written without an intermediate image.
    """
    numbers = SplitMix64(key)
    height, width = picture.shape[:2]
    left, top, crop_width, crop_height = random_crop(width, height, numbers, input)
    crop = picture[top : top + crop_height, left : left + crop_width]
    # Copied in both cases, because the kernel is slow for rows that are not contiguous.
    copy = (scratch or Scratch()).take("crop", crop_height, crop_width)
    if numbers.uniform() < input.flip:
        cv2.flip(crop, 1, dst=copy)
    else:
        np.copyto(copy, crop)
    resize_into(copy, input.interpolation, out)


def crop_for_testing(
    picture: UInt8[np.ndarray, "H W 3"], input: Input, out: UInt8[np.ndarray, "3 S S"]
) -> None:
    """Writes the centre of `picture` into `out` after resizing.

    With fit `shorter` the shorter side becomes `input.resize`, otherwise both sides; None: `input.size`.
    """
    # several times as fast as NumPy's transposed copy
    cv2.split(centre_crop(picture, input, resized), [out[0], out[1], out[2]])


def cut_out(
    picture: UInt8[np.ndarray, "H W 3"], box: tuple[float, float, float, float]
) -> UInt8[np.ndarray, "h w 3"]:
    """The part of `picture` within x0, y0, x1, y1, at least one pixel.

    The box is rounded to pixels and clipped to the picture.

    Deviation: the released code of the revisited benchmarks uses Pillow's crop, which has the same rounding
    and fills the part of a box outside of the picture with black.
    """
    left, top, right, bottom = pixels_of(box, picture.shape[1], picture.shape[0])
    return picture[top:bottom, left:right]


def pixels_of(box: tuple[float, float, float, float], width: int, height: int) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of the pixels of an image that `cut_out` keeps; right and bottom are
    exclusive."""
    left, right = (min(max(round(x), 0), width) for x in box[::2])
    top, bottom = (min(max(round(y), 0), height) for y in box[1::2])
    left, top = min(left, width - 1), min(top, height - 1)
    return left, top, max(right, left + 1), max(bottom, top + 1)


def resized(
    picture: UInt8[np.ndarray, "H W 3"], height: int, width: int, interpolation: str
) -> UInt8[np.ndarray, "h w 3"]:
    """`picture` with other sides, by the kernels of PyTorch, antialiased."""
    if picture.shape[:2] == (height, width):
        return picture
    image = torch.nn.functional.interpolate(
        _image_of(picture), (height, width), mode=interpolation, antialias=True
    )
    return image.permute(0, 2, 3, 1)[0].numpy()


def resize_into(
    picture: UInt8[np.ndarray, "H W 3"], interpolation: str, out: UInt8[np.ndarray, "3 h w"]
) -> None:
    """Writes `resized` into `out`.

    The kernel is called as torch.nn.functional.interpolate does, which has no argument for the result. The
    intermediate image and the call through Python took 30 us of the 220 us beside the decoding of a
    photograph.
    """
    size = out.shape[1:]
    if picture.shape[:2] == size:
        np.copyto(out, picture.transpose(2, 0, 1))
        return
    _KERNELS[interpolation](_image_of(picture), size, False, None, out=torch.from_numpy(out).unsqueeze(0))


def _image_of(picture: UInt8[np.ndarray, "H W 3"]) -> UInt8[torch.Tensor, "1 3 H W"]:
    """A view as a batch of torch. The batch axis is added by torch: with one of NumPy, torch would not
    recognise that the pixels are interleaved."""
    return torch.from_numpy(picture).unsqueeze(0).permute(0, 3, 1, 2)
