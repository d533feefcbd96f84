"""The resizing in NumPy has the pixels of torch's kernel."""

import numpy as np
import pytest
import torch

from unseen.data.resample import resampled


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_pixels_are_those_of_torch(interpolation: str) -> None:
    numbers = np.random.default_rng(0)
    for number in range(40):
        before = numbers.integers(1, 300, 2)
        height, width = numbers.integers(1, 260, 2).tolist()
        if number % 8 == 0:
            height = int(before[0])  # only the width changes
        picture = numbers.integers(0, 256, (*before, 3), np.uint8)
        if number % 2:  # black and white: the largest overshoots
            picture = picture // 128 * 255
        images = torch.from_numpy(picture).unsqueeze(0).permute(0, 3, 1, 2)
        expected = torch.nn.functional.interpolate(
            images, (height, width), mode=interpolation, antialias=True
        )
        np.testing.assert_array_equal(
            resampled(picture, height, width, interpolation), expected[0].permute(1, 2, 0).numpy()
        )
