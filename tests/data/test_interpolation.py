"""Bicubic resizing: within two grey levels of Pillow in training and testing at all factors, and clamped at
hard edges."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.oracles.resize import resized
from tests.params import resolve
from unseen.config.document import Params
from unseen.data.settings import Input
from unseen.data.transforms import SplitMix64, crop_for_testing, crop_for_training, random_crop

Picture = Callable[..., np.ndarray]
WHOLE = Input(size=32, resize=None, fit="square", crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), flip=0.0)
PARAMS = Params(Path(__file__).resolve().parents[2] / "params.yaml")


def pillow(picture: np.ndarray, width: int, height: int) -> np.ndarray:
    """Two calls resize rows before columns. One call of Pillow 13 may take the other order; Pillow 12 never
    does."""
    rows = Image.fromarray(picture).resize((width, picture.shape[0]), Image.Resampling.BICUBIC)
    return np.asarray(rows.resize((width, height), Image.Resampling.BICUBIC)).astype(int)


def square(picture: np.ndarray, size: int, interpolation: str) -> np.ndarray:
    """The picture as a square, (size, size, 3)."""
    out = np.empty((3, size, size), np.uint8)
    crop_for_testing(picture, WHOLE.model_copy(update={"size": size, "interpolation": interpolation}), out)
    return out.transpose(1, 2, 0).astype(int)


def psnr(difference: np.ndarray) -> float:
    return 20 * math.log10(255 / max(1e-9, math.sqrt((difference.astype(float) ** 2).mean())))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(500, 375), (100, 120), (1200, 900), (40, 30)])
@pytest.mark.parametrize("size", [64, 224])
def test_training_pixels_against_pillow(picture: Picture, shape: tuple[int, int], size: int) -> None:
    """The bound is two grey levels, one for all but one pixel in ten thousand, and a PSNR above 60 dB, for
    enlarging and for shrinking up to 14 times."""
    input = Input(size=size, resize=None, interpolation="bicubic")
    source, out = picture(*shape), np.empty((3, size, size), np.uint8)
    for key in range(6):
        left, top, width, height = random_crop(*shape, SplitMix64(key), input)
        reference = pillow(source[top : top + height, left : left + width], size, size)
        for flip in (0.0, 1.0):
            crop_for_training(source, key, input.model_copy(update={"flip": flip}), out)
            difference = np.abs((out[:, :, ::-1] if flip else out).transpose(1, 2, 0).astype(int) - reference)
            assert difference.max() <= 2
            assert (difference > 1).mean() < 1e-4
            assert psnr(difference) > 60


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("shape", [(97, 61), (24, 24), (2, 3)])  # the second has the size of the crop
def test_memory_format_does_not_change_pixels(
    picture: Picture, shape: tuple[int, int], interpolation: str
) -> None:
    source, whole = picture(*shape), (1.0, 1.0)
    input = Input(size=24, crop_scale=whole, crop_ratio=whole, interpolation=interpolation)
    planes, interleaved = np.zeros((3, 24, 24), np.uint8), np.zeros((24, 24, 3), np.uint8)
    for key in range(3):
        crop_for_training(source, key, input, planes)
        crop_for_training(source, key, input, interleaved.transpose(2, 0, 1))
        assert planes.any()
        np.testing.assert_array_equal(interleaved.transpose(2, 0, 1), planes)


@pytest.mark.parametrize(("size", "resize"), [(64, 72), (224, 256), (384, None)])
@pytest.mark.parametrize("shape", [(500, 375), (375, 501), (61, 97)])
def test_test_pixels_against_pillow(
    picture: Picture, shape: tuple[int, int], size: int, resize: int | None
) -> None:
    """torchvision's Resize and CenterCrop with bicubic interpolation, spelled out with Pillow."""
    source, out = picture(*shape), np.empty((3, size, size), np.uint8)
    width, height = shape
    shorter = resize or size
    target = (shorter, shorter * height // width) if width <= height else (shorter * width // height, shorter)
    left, top = round((target[0] - size) / 2), round((target[1] - size) / 2)
    crop_for_testing(source, Input(size=size, resize=resize, interpolation="bicubic"), out)
    difference = np.abs(
        out.transpose(1, 2, 0).astype(int) - pillow(source, *target)[top : top + size, left : left + size]
    )
    assert difference.max() <= 2
    assert (difference > 1).mean() < 1e-4
    assert psnr(difference) > 60


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    ("width", "height", "size"), [(17, 9, 32), (40, 61, 24), (61, 40, 64), (1, 1, 8), (3, 200, 16)]
)
def test_pixels_against_the_definition(interpolation: str, width: int, height: int, size: int) -> None:
    """Black and white noise is the worst case: all overshoot is clamped."""
    source = np.random.default_rng(0).integers(0, 2, (height, width, 3)).astype(np.uint8) * 255
    assert np.abs(square(source, size, interpolation) - resized(source, size, size, interpolation)).max() <= 2


def test_overshoot_is_clamped() -> None:
    """The cubic filter exceeds the range of bytes beside a hard edge. The result must be black or white
    without wrapping."""
    edge = np.zeros((16, 16, 3), np.uint8)
    edge[:, 8:] = 255
    enlarged = square(edge, 64, "bicubic")
    assert set(np.unique(enlarged[:, :28])) == {0}
    assert set(np.unique(enlarged[:, 36:])) == {255}
    faint = square(np.where(edge > 0, np.uint8(200), np.uint8(50)), 64, "bicubic")
    assert faint.min() < 45, "overshoot remains where the range of bytes allows it"
    assert faint.max() > 205


def test_the_two_filters_differ(picture: Picture) -> None:
    """The mean difference is about one grey level, 40 to 50 dB."""
    source = picture(250, 250)
    difference = square(source, 224, "bicubic") - square(source, 224, "bilinear")
    assert 0.3 < np.abs(difference).mean() < 3
    assert 40 < psnr(difference) < 50


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_a_uniform_picture_stays_uniform(interpolation: str) -> None:
    """The integer weights of the kernel sum to 1."""
    for grey in (0, 1, 77, 128, 254, 255):
        for width, height, size in ((500, 375, 224), (40, 30, 224), (50, 1, 50)):
            assert set(
                np.unique(square(np.full((height, width, 3), grey, np.uint8), size, interpolation))
            ) == {grey}


@pytest.mark.parametrize("dataset", ["cub", "parts", "landmarks"])
def test_recipes_use_the_resizing_of_their_authors(dataset: str) -> None:
    interpolations = {
        method: resolve(PARAMS, dataset, method).input.interpolation
        for method in ("irt_o", "irt_l", "irt_r", "crt", "multihead", "gsp", "ms")
    }
    assert {method for method, filter in interpolations.items() if filter == "bicubic"} == {
        "irt_o",
        "irt_l",
        "irt_r",
    }


@pytest.mark.parametrize("turned", [False, True])
def test_a_long_image_is_cut_before_it_is_resized(picture: Picture, turned: bool) -> None:
    """The limit of the pixels allows 178,956,970 x 1, 10^13 pixels after resizing."""
    source, expected, out = picture(2_000, 8), *np.empty((2, 3, 32, 32), np.uint8)
    long = np.concatenate([source[:, ::-1]] * 30 + [source] + [source[:, ::-1]] * 30, axis=1)
    longest = np.zeros((1, 178_956_970, 3), np.uint8)
    input = Input(size=32, resize=40, interpolation="bicubic")
    if turned:
        source, long, longest = (image.transpose(1, 0, 2) for image in (source, long, longest))
    crop_for_testing(source, input, expected)
    crop_for_testing(long, input, out)
    assert np.abs(out.astype(int) - expected.astype(int)).max() <= 1
    crop_for_testing(longest, input, out)
    assert not out.any()
