"""Decoded picture -> one image of a batch: the random resized crop of training, the centre crop of testing.

Resizing is Pillow's, and so the field's: bilinear or bicubic (`input.interpolation`; a = -1/2), antialiased (the filter widens with the shrink
factor), rows before columns, rounded and clamped to 0 ... 255 after each. torch's uint8 kernel does it in 16-bit integers on interleaved pixels. The
stated distance to Pillow, shrinking and enlarging: bilinear one grey level at most, bicubic two (and that in 4 of a million pixels). Pillow 13 takes
columns before rows where that is cheaper; 12 never did, nor does torch. Where the overshoot of the bicubic filter is clamped in between, at
hard edges between black and white, that alone can make 30 levels.

Measured on a 224-pixel crop of a 500 x 375 photo, beside 660 us of decoding: bilinear 95-180 us, a fifth of Pillow's time; bicubic 1.15 times as
much. cv2 linear 45-80 us but only 35 dB PSNR to Pillow when shrinking by 1.2 and 28 dB by 1.9 (it aliases); cv2 INTER_AREA 350-630 us and 37-42 dB;
torch above 67 dB. Bilinear for bicubic is 40-46 dB. So there is one way for all factors, and which filter it is follows the authors of a recipe.
"""

import math

import cv2
import numpy as np
import torch
from jaxtyping import UInt8

from pipeline.config.parts import Input
from pipeline.data.scratch import Scratch

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
ATTEMPTS = 10  # as torchvision


class SplitMix64:
    """Counter-based random numbers (Steele, Lea and Flood 2014, fig. 16): state_t = key + t * golden ratio, mixed by two multiplications.

    One stream per augmented image; building a NumPy generator takes longer than all the numbers that an image needs.
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
    """The box (left, top, width, height) of RandomResizedCrop, as torchvision draws it (Szegedy et al. 2015, section 6).

    Area: uniform share `crop_scale` of the picture. Ratio width / height: log-uniform in `crop_ratio`. Up to 10 draws until the box fits, then the
    largest centred box of an allowed ratio. With fit `square` ratios are those of a box in the picture squeezed to a square.
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
            return numbers.below(width - crop_width + 1), numbers.below(height - crop_height + 1), crop_width, crop_height
    crop_width, crop_height = width, height
    if width / height < lowest:
        crop_height = max(1, min(height, round(width / lowest)))
    elif width / height > highest:
        crop_width = max(1, min(width, round(height * highest)))
    return (width - crop_width) // 2, (height - crop_height) // 2, crop_width, crop_height


def crop_for_training(
    picture: UInt8[np.ndarray, "H W 3"], key: int, input: Input, out: UInt8[np.ndarray, "3 S S"], scratch: Scratch | None = None
) -> None:
    """Writes a random resized crop of `picture`, mirrored with probability `input.flip`, into `out`. All chance comes from `key`."""
    numbers = SplitMix64(key)
    height, width = picture.shape[:2]
    left, top, crop_width, crop_height = random_crop(width, height, numbers, input)
    crop = picture[top : top + crop_height, left : left + crop_width]
    # Copied in either case: the kernel is half as fast on rows with gaps between them.
    copy = (scratch or Scratch()).take("crop", crop_height, crop_width)
    if numbers.uniform() < input.flip:
        cv2.flip(crop, 1, dst=copy)
    else:
        np.copyto(copy, crop)
    _planes(_resized(copy, input.size, input.size, input.interpolation), out)


def crop_for_testing(picture: UInt8[np.ndarray, "H W 3"], input: Input, out: UInt8[np.ndarray, "3 S S"]) -> None:
    """Writes into `out` the centre of `picture` after its shorter side, or both, became `input.resize` (`input.size` where that is None)."""
    height, width = picture.shape[:2]
    shorter = input.resize or input.size
    resized_height = resized_width = shorter
    if input.fit == "shorter":  # as torchvision: the longer side is rounded down
        resized_height, resized_width = (shorter * height // width, shorter) if width <= height else (shorter, shorter * width // height)
    resized = _resized(picture, resized_height, resized_width, input.interpolation)
    top, left = round((resized_height - input.size) / 2), round((resized_width - input.size) / 2)
    _planes(resized[top : top + input.size, left : left + input.size], out)


def cut_out(picture: UInt8[np.ndarray, "H W 3"], box: tuple[float, float, float, float]) -> UInt8[np.ndarray, "h w 3"]:
    """The part of `picture` within x0, y0, x1, y1, rounded to whole pixels and clipped to the picture; at least one pixel.

    The released code of the revisited benchmarks takes Pillow's crop, which rounds alike and is black where a box reaches over the edge.
    """
    height, width = picture.shape[:2]
    left, right = (min(max(round(x), 0), width) for x in box[::2])
    top, bottom = (min(max(round(y), 0), height) for y in box[1::2])
    left, top = min(left, width - 1), min(top, height - 1)
    return picture[top : max(bottom, top + 1), left : max(right, left + 1)]


def _resized(picture: UInt8[np.ndarray, "H W 3"], height: int, width: int, interpolation: str) -> UInt8[np.ndarray, "h w 3"]:
    if picture.shape[:2] == (height, width):
        return picture
    # Unsqueezed as a tensor: the stride of a batch axis made by NumPy hides from torch that the pixels are interleaved.
    pixels = torch.from_numpy(picture).unsqueeze(0).permute(0, 3, 1, 2)
    resized = torch.nn.functional.interpolate(pixels, (height, width), mode=interpolation, antialias=True)
    return resized.permute(0, 2, 3, 1)[0].numpy()


def _planes(pixels: UInt8[np.ndarray, "S S 3"], out: UInt8[np.ndarray, "3 S S"]) -> None:
    """Interleaved to planar, straight into the batch; 8 times as fast as NumPy's transposed copy."""
    cv2.split(pixels, [out[0], out[1], out[2]])
