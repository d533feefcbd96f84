"""Augmentation: all randomness comes from the key, crops have the usual distribution, and pixels are within
one grey level of Pillow."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.data.centre import region_for_testing
from unseen.data.settings import Input
from unseen.data.transforms import (
    SplitMix64,
    crop_for_testing,
    crop_for_training,
    random_crop,
)

Picture = Callable[..., np.ndarray]


def for_training(picture: np.ndarray, key: int, input: Input) -> np.ndarray:
    out = np.zeros((3, input.size, input.size), np.uint8)
    crop_for_training(picture, key, input, out)
    return out


def for_testing(picture: np.ndarray, input: Input) -> np.ndarray:
    out = np.zeros((3, input.size, input.size), np.uint8)
    crop_for_testing(picture, input, out)
    return out


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return 20 * math.log10(255 / max(1e-9, math.sqrt(((a.astype(float) - b) ** 2).mean())))


def test_splitmix_gives_the_published_sequence() -> None:
    """The first outputs of the reference C code for the state 1234567."""
    numbers = SplitMix64(1234567)
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert [numbers.uniform() for _ in range(5)] == [(value >> 11) / 2**53 for value in published]


def test_uniform_numbers_fill_their_range() -> None:
    # consecutive keys are the worst case
    numbers = np.array([SplitMix64(key).uniform(2.0, 5.0) for key in range(4000)])
    assert numbers.min() >= 2
    assert numbers.max() < 5
    counts = np.histogram(numbers, 10, (2, 5))[0]
    assert ((counts - 400) ** 2 / 400).sum() < 27.9  # chi-square, 9 degrees of freedom, p = 0.001
    bounded = [SplitMix64(key).below(3) for key in range(300)]
    assert set(bounded) == {0, 1, 2}


@pytest.mark.parametrize(("width", "height", "mean"), [(500, 375, 0.475), (500, 500, 0.52)])
def test_the_mean_area_of_crops_is_that_of_the_page_of_deviations(
    width: int, height: int, mean: float
) -> None:
    """Of crops with an area of 0.16 to 1 of the image: large ones are rejected."""
    input = Input(crop_scale=(0.16, 1.0), crop_ratio=(0.75, 4 / 3))
    boxes = np.array([random_crop(width, height, SplitMix64(key), input) for key in range(20_000)])
    assert (boxes[:, 2] * boxes[:, 3]).mean() / (width * height) == pytest.approx(mean, abs=0.005)
    page = (Path(__file__).resolve().parents[2] / "docs/deviations.md").read_text(encoding="utf-8")
    assert "a mean area of 0.475 (photos of 500 x 375) and 0.52 (square ones)" in page


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(500, 375), (90, 120), (64, 64)])
def test_crop_distribution(width: int, height: int) -> None:
    """Area share and log-ratio are uniform and independent where the box fits. Boxes lie inside, and
    positions reach both borders."""
    input = Input(size=64, resize=None, crop_scale=(0.1, 0.3))
    boxes = np.array([random_crop(width, height, SplitMix64(key), input) for key in range(3000)])
    left, top, box_width, box_height = boxes.T
    assert (left >= 0).all()
    assert (top >= 0).all()
    assert (left + box_width <= width).all()
    assert (top + box_height <= height).all()
    assert left.min() == 0
    assert (left + box_width).max() == width
    share = box_width * box_height / (width * height)
    log_ratio = np.log(box_width / box_height)
    assert abs(share.mean() - 0.2) < 0.005
    assert abs(share.std() - 0.2 / math.sqrt(12)) < 0.005
    assert abs(log_ratio.mean()) < 0.03
    assert abs(log_ratio.std() - 2 * math.log(4 / 3) / math.sqrt(12)) < 0.02
    assert abs(np.corrcoef(share, log_ratio)[0, 1]) < 0.08
    assert abs(np.corrcoef(left, top)[0, 1]) < 0.08


@pytest.mark.parametrize(
    ("width", "height", "box"),
    [
        (1000, 10, (493, 0, 13, 10)),
        (10, 1000, (0, 493, 10, 13)),
        (1, 1, (0, 0, 1, 1)),
        (300, 1, (149, 0, 1, 1)),
    ],
)
def test_extreme_shapes_fall_back_to_the_centre(
    width: int, height: int, box: tuple[int, int, int, int]
) -> None:
    assert random_crop(width, height, SplitMix64(3), Input(crop_scale=(0.9, 1.0))) == box


def test_fallback_by_ratio() -> None:
    narrow = Input(crop_scale=(1.0, 1.0), crop_ratio=(0.5, 0.6))
    assert random_crop(100, 100, SplitMix64(0), narrow) == (20, 0, 60, 100)
    wide = Input(crop_scale=(1.0, 1.0), crop_ratio=(2.0, 3.0))
    assert random_crop(100, 100, SplitMix64(0), wide) == (0, 25, 100, 50)
    allowed = Input(crop_scale=(1.0, 1.0), crop_ratio=(0.5, 2.0))
    assert random_crop(1000, 1000, SplitMix64(0), allowed) == (0, 0, 1000, 1000)


def test_augmentation_depends_only_on_the_key(picture: Picture) -> None:
    input = Input(size=32, resize=None)
    source = picture(90, 70)
    first = [for_training(source, key, input) for key in range(20)]
    np.random.seed(7)  # noqa: NPY002 - the global generator must not matter
    repeated = [for_training(source, key, input) for key in reversed(range(20))][::-1]
    np.testing.assert_array_equal(first, repeated)
    assert len({image.tobytes() for image in first}) == 20
    assert for_training(source, 2**64 - 1, input).shape == (3, 32, 32)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(500, 375), (100, 120), (1200, 900), (40, 30)])
@pytest.mark.parametrize("size", [64, 224])
def test_training_pixels_against_pillow(picture: Picture, shape: tuple[int, int], size: int) -> None:
    """No pixel differs by more than one grey level, and the PSNR is above 60 dB, for enlarging and for
    shrinking up to 14 times."""
    input = Input(size=size, resize=None)
    source = picture(*shape)
    for key in range(6):
        left, top, width, height = random_crop(*shape, SplitMix64(key), input)
        box = Image.fromarray(source[top : top + height, left : left + width])
        reference = np.asarray(box.resize((size, size), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        pixels = for_training(source, key, input.model_copy(update={"flip": 0.0}))
        mirrored = for_training(source, key, input.model_copy(update={"flip": 1.0}))
        for image in (pixels, mirrored[:, :, ::-1]):
            difference = np.abs(image.astype(int) - reference)
            assert difference.max() <= 1
            assert difference.mean() < 0.05
            assert psnr(image, reference) > 60


def test_mirrors_with_the_given_probability(picture: Picture) -> None:
    source = picture(60, 60)
    fixed = Input(size=16, resize=None, crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), flip=0.3)
    unmirrored = for_training(source, 0, fixed.model_copy(update={"flip": 0.0}))
    mirrored = for_training(source, 0, fixed.model_copy(update={"flip": 1.0}))
    images = [for_training(source, key, fixed) for key in range(600)]
    share = np.mean([np.array_equal(image, mirrored) for image in images])
    assert abs(share - 0.3) < 0.06
    assert all(np.array_equal(image, mirrored) or np.array_equal(image, unmirrored) for image in images)


@pytest.mark.parametrize(("size", "resize"), [(64, 72), (227, 256), (224, None)])
@pytest.mark.parametrize("shape", [(500, 375), (375, 501), (100, 100), (61, 97)])
def test_test_pixels_against_pillow(
    picture: Picture, shape: tuple[int, int], size: int, resize: int | None
) -> None:
    """torchvision's Resize and CenterCrop, spelled out with Pillow."""
    source = picture(*shape)
    width, height = shape
    shorter = resize or size
    target = (
        (shorter, int(shorter * height / width))
        if width <= height
        else (int(shorter * width / height), shorter)
    )
    left, top = round((target[0] - size) / 2), round((target[1] - size) / 2)
    resized = np.asarray(Image.fromarray(source).resize(target, Image.Resampling.BILINEAR))
    reference = resized[top : top + size, left : left + size].transpose(2, 0, 1)
    pixels = for_testing(source, Input(size=size, resize=resize))
    assert np.abs(pixels.astype(int) - reference).max() <= 1
    assert psnr(pixels, reference) > 60


def test_a_picture_of_the_target_size_is_unchanged(picture: Picture) -> None:
    source = picture(64, 64)
    np.testing.assert_array_equal(for_testing(source, Input(size=64, resize=None)), source.transpose(2, 0, 1))


@pytest.mark.parametrize("size", [(96, 72), (72, 96), (101, 55), (64, 64), (50, 131)])
@pytest.mark.parametrize(
    "settings", [{}, {"resize": 40}, {"resize": 40, "fit": "square"}, {"resize": None}], ids=str
)
def test_the_region_is_the_part_of_the_image_that_the_network_gets(
    size: tuple[int, int], settings: dict[str, object]
) -> None:
    width, height = size
    input = Input.parse({"size": 32, "resize": 36, **settings})
    # Red and green increase with x and y, so that the pixels of the crop are their positions.
    x, y = np.linspace(0, 250, width), np.linspace(0, 250, height)
    image = np.zeros((height, width, 3), np.uint8)
    image[..., 0], image[..., 1] = x, y[:, None]
    crop = np.empty((3, 32, 32), np.uint8)
    crop_for_testing(image, input, crop)
    left, top, right, bottom = region_for_testing(width, height, input)
    centers = (np.arange(32) + 0.5) / 32
    for channel, (first, last) in enumerate(((left, right), (top, bottom))):
        line = crop[0].mean(0) if channel == 0 else crop[1].mean(1)
        expected = 250 * (first + centers * (last - first))
        assert np.abs(line - expected)[3:-3].max() < 4
