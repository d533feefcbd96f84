"""Pictures resized to a square, and queries cropped to their boxes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.data.loader import EvalLoader
from unseen.data.settings import Input
from unseen.data.shard_writer import ShardWriter
from unseen.data.shards import Shards
from unseen.data.transforms import SplitMix64, crop_for_testing, crop_for_training, cut_out, random_crop

WHOLE = Input(size=32, resize=None, fit="square", crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), flip=0.0)


def pillow(picture: np.ndarray, width: int, height: int) -> np.ndarray:
    return np.asarray(Image.fromarray(picture).resize((width, height), Image.Resampling.BILINEAR)).astype(int)


@pytest.mark.parametrize(("width", "height"), [(90, 50), (50, 90), (32, 32), (33, 200), (20, 25)])
def test_a_square_contains_the_complete_picture(
    picture: Callable[..., np.ndarray], width: int, height: int
) -> None:
    original = picture(width, height)
    tested, trained = (np.empty((3, 32, 32), np.uint8) for _ in range(2))
    crop_for_testing(original, WHOLE, tested)
    assert np.abs(tested.transpose(1, 2, 0).astype(int) - pillow(original, 32, 32)).max() <= 1
    crop_for_training(original, 7, WHOLE, trained)
    assert np.array_equal(trained, tested), "training without random crops equals testing"


def test_a_larger_square_is_cropped_in_its_middle(picture: Callable[..., np.ndarray]) -> None:
    original, out = picture(90, 50), np.empty((3, 32, 32), np.uint8)
    crop_for_testing(original, Input(size=32, resize=40, fit="square"), out)
    assert np.abs(out.transpose(1, 2, 0).astype(int) - pillow(original, 40, 40)[4:36, 4:36]).max() <= 1


def test_random_crops_have_the_shape_of_the_picture() -> None:
    """Ratios are relative to the square: a box of ratio 1 has the aspect ratio of the picture."""
    boxes = np.array(
        [
            random_crop(400, 100, SplitMix64(key), WHOLE.model_copy(update={"crop_scale": (0.2, 0.9)}))
            for key in range(300)
        ]
    )
    assert np.abs(boxes[:, 2] / boxes[:, 3] - 4).max() < 0.1
    area = boxes[:, 2] * boxes[:, 3] / 40_000
    assert area.min() < 0.25
    assert area.max() > 0.85


@pytest.mark.parametrize(
    ("box", "part"),
    [
        ((3.4, 2.6, 20.0, 9.5), (slice(3, 10), slice(3, 20))),
        ((-5.0, -0.2, 50.0, 50.0), (slice(0, 30), slice(0, 40))),
        ((39.7, 29.6, 41.0, 31.0), (slice(29, 30), slice(39, 40))),
        ((10.1, 10.1, 10.2, 10.3), (slice(10, 11), slice(10, 11))),
    ],
)
def test_a_box_is_rounded_and_clipped_and_never_empty(
    box: tuple[float, ...], part: tuple[slice, slice]
) -> None:
    original = np.arange(30 * 40 * 3, dtype=np.uint32).astype(np.uint8).reshape(30, 40, 3)
    assert np.array_equal(cut_out(original, box), original[part])


def test_a_box_within_the_picture_equals_the_crop_of_pillow(picture: Callable[..., np.ndarray]) -> None:
    original, corners = picture(40, 30), np.random.default_rng(0).uniform(0, 14, (50, 4))
    for x0, y0, across, down in corners.tolist():
        box = (x0, y0, x0 + across + 1, y0 + down + 1)
        assert np.array_equal(cut_out(original, box), np.asarray(Image.fromarray(original).crop(box)))


def test_the_loader_reads_only_the_box(
    picture: Callable[..., np.ndarray], encoded: Callable[..., np.ndarray], tmp_path: Path
) -> None:
    boxed, box = picture(60, 44), (10.0, 4.0, 50.0, 40.0)
    files = [
        encoded(Image.fromarray(image), "PNG").tobytes()
        for image in (boxed, boxed, np.ascontiguousarray(boxed[4:40, 10:50]))
    ]
    with ShardWriter(tmp_path, ["one", "two"], 2**20) as writer:
        for row, (file, its) in enumerate(zip(files, (box, None, None), strict=True)):
            writer.add(file, 0, "test", f"{row}.png", 60, 44, box=its)
        writer.finish({"dataset": "boxes"})
    ((images, rows),) = EvalLoader(Shards(tmp_path), np.arange(3), WHOLE, 4)
    assert rows.tolist() == [0, 1, 2]
    assert np.array_equal(images[0], images[2])
    assert not np.array_equal(images[0], images[1])
