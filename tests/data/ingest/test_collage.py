"""Cifar Collage: the images in each cell, and that train and test share no sub-class, in classes or in
background."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.ingest import cifars
from unseen.data.decode import decode
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import CollageSource, IngestSettings
from unseen.data.ingest.sources import cifar, collage
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError

SHARED = {9: "large_man-made_outdoor_things", 10: "large_natural_outdoor_scenes", 17: "trees", 2: "flowers"}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar, "LAYOUTS", cifars.SMALL)


def run(root: Path, output: Path, processes: int = 1, **source: Any) -> dict[str, Any]:
    return ingest(CollageSource(path=str(root), **source), IngestSettings(), output, "collage", processes)


def tiles(picture: np.ndarray) -> list[bytes]:
    """The four images of a picture, left to right and top to bottom."""
    return [picture[r : r + 32, c : c + 32].tobytes() for r in (0, 32) for c in (0, 32)]


def image(file: str, number: int) -> bytes:
    return np.ascontiguousarray(cifars.planes(file, number).transpose(1, 2, 0)).tobytes()


@pytest.fixture(scope="module")
def labels_of() -> dict[bytes, tuple[int, int]]:
    """Super-class and sub-class of every image by its pixels."""
    layout = cifars.SMALL["cifar100"]
    return {
        image(file, n): (n % 100 % 20, n % 100)
        for file, count in zip(layout.files, layout.per_file, strict=True)
        for n in range(count)
    }


def test_background_classes_are_those_of_the_released_code() -> None:
    assert set(collage.SHARED) == set(SHARED.values())


@pytest.mark.slow
@pytest.mark.parametrize("train_subclasses", [3, 2])
def test_each_picture_has_one_class_image_and_three_background_images(
    tmp_path: Path, labels_of: Any, train_subclasses: Any
) -> None:
    root = cifars.packed(tmp_path / "raw", "cifar100")
    manifest = run(root, tmp_path / "out", train_subclasses=train_subclasses)
    shards = Shards(tmp_path / "out", verify=True)
    assert manifest["counts"] == {
        "train": {"images": 16 * train_subclasses * 4, "classes": 16},
        "test": {"images": 16 * 2 * 4, "classes": 16},
    }
    assert manifest["unseen_classes"] is True
    assert manifest["published"] == "CIFAR-100"
    class_cells = []
    sub_classes, background = {"train": set(), "test": set()}, {"train": set(), "test": set()}
    for row, source in enumerate(shards.sources):
        file, _, number = source.partition("/")
        cells = tiles(decode(shards.image(row)))
        class_cell = cells.index(image(file, int(number)))
        class_cells.append(class_cell)
        split = str(shards.splits[row])
        super_class, sub = labels_of[cells[class_cell]]
        assert shards.class_names[shards.labels[row]] == f"{split}/{cifars.COARSE.split()[super_class]}"
        assert shards.groups[row] == f"thing_{sub:03d}"
        sub_classes[split].add(sub)
        others = [labels_of[tile] for n, tile in enumerate(cells) if n != class_cell]
        assert {super_class for super_class, _ in others} <= SHARED.keys()
        assert len(set(cells)) == 4
        background[split].update(sub for _, sub in others)
    assert set(class_cells) == {0, 1, 2, 3}
    # The sub-classes of a super-class are, in name order, label, label + 20, ... + 80.
    for split, labels in (("train", range(20 * train_subclasses)), ("test", range(60, 100))):
        assert sub_classes[split] == {label for label in labels if label % 20 not in SHARED}
        assert background[split] == {label for label in labels if label % 20 in SHARED}


@pytest.mark.slow
def test_distilled_pictures_are_the_class_images(tmp_path: Path) -> None:
    root = cifars.unpacked(tmp_path / "raw", "cifar100")
    run(root, tmp_path / "whole")
    run(root, tmp_path / "distilled", distilled=True)
    whole, distilled = Shards(tmp_path / "whole"), Shards(tmp_path / "distilled")
    assert whole.sources == distilled.sources
    assert whole.class_names == distilled.class_names
    assert set(map(tuple, distilled.sizes.tolist())) == {(32, 32)}
    assert set(map(tuple, whole.sizes.tolist())) == {(64, 64)}
    for row in (0, 100, 200):
        file, _, number = distilled.sources[row].partition("/")
        assert decode(distilled.image(row)).tobytes() == image(file, int(number))


@pytest.mark.slow
def test_pictures_depend_only_on_the_seed(tmp_path: Path) -> None:
    packed = cifars.packed(tmp_path / "packed", "cifar100")
    unpacked = cifars.unpacked(tmp_path / "unpacked", "cifar100")
    run(packed, tmp_path / "packed-shards")
    run(unpacked, tmp_path / "unpacked-shards")
    run(unpacked, tmp_path / "other-seed", seed=1)
    from_packed, from_unpacked, other_seed = (
        (tmp_path / name / "shard-00000.arrow").read_bytes()
        for name in ("packed-shards", "unpacked-shards", "other-seed")
    )
    assert from_packed == from_unpacked
    assert from_packed != other_seed


def test_repeats_a_background_image_only_after_all_others() -> None:
    pool = np.arange(100, 110)
    cells = collage.draw(np.arange(7), pool, np.random.default_rng(0))
    shared = [[number for number in row if number >= 100] for row in cells.tolist()]
    assert [[number for number in row if number < 100] for row in cells.tolist()] == [[n] for n in range(7)]
    assert all(len(row) == 3 for row in shared)
    for start in (0, 3):  # Ten images suffice for three pictures; fewer than three images remain.
        assert len({number for row in shared[start : start + 3] for number in row}) == 9
    assert shared[0] != shared[3]


def test_class_cells_are_uniformly_distributed() -> None:
    cells = collage.draw(np.zeros(8000, np.int64), np.arange(1, 100), np.random.default_rng(0))
    counts = np.bincount(np.argmin(cells, axis=1), minlength=4)
    assert np.abs(counts - 2000).max() < 4 * np.sqrt(8000 * 0.25 * 0.75)


def test_refuses_other_super_classes(tmp_path: Path) -> None:
    text = cifars.NAMES["cifar100"]["coarse_label_names.txt"].replace("trees", "shrubs")
    root = cifars.unpacked(tmp_path / "raw", "cifar100", coarse_label_names_txt=text.encode())
    with pytest.raises(UserError, match=r"coarse_label_names\.txt has no trees"):
        run(root, tmp_path / "out")


def test_refuses_a_missing_archive(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    expected = r"(?s)raw contains no train\.bin\..*cifar-100-binary\.tar\.gz \(168,513,733 bytes, md5 03b5dce"
    with pytest.raises(UserError, match=expected):
        run(tmp_path / "raw", tmp_path / "out")
