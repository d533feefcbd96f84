"""Cifar Collage (GSP, ICCV 2023, section 5.1): tests whether a pooling selects the part of a picture that
determines the class.

Four of the 20 super-classes of CIFAR-100 are background, the other 16 are the classes. A picture is one image
of a class and three background images, stitched 2 x 2 to 64 x 64 pixels, with the class image at a random
cell. Every image of a class makes one picture. Background images come from a shuffled pool, which is shuffled
again when fewer than three are left. In name order, the first three sub-classes of every super-class, also of
the background, are train and the last two test. Test pictures therefore show other objects on other
backgrounds.

This follows the released code (tensorflow/framework/datasets/cifar_collage.py). The text describes
"4x4-stitched" pictures and uses the third sub-class for validation; `train_subclasses: 2` excludes that
sub-class from train. The group of a picture is its sub-class. Both official parts of CIFAR-100 are used: 600
images per sub-class. A super-class is two classes, one of train and one of test, which share no sub-class.
Class names begin with the split.

`distilled`: the class images alone, 32 x 32, without background: the input of an ideal pooling.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8

from unseen.data.ingest.collection import Collection, Picture
from unseen.data.ingest.releases import PUBLISHED
from unseen.data.ingest.settings import CollageSource
from unseen.data.ingest.sources.cifar import SIDE, Cifar, Pixels, read
from unseen.runtime.errors import UserError

SHARED = ("large_man-made_outdoor_things", "large_natural_outdoor_scenes", "trees", "flowers")
TEST_SUBCLASSES = 2
_CELLS = ((0, 0), (0, 1), (1, 0), (1, 1))  # row, column


def collection(source: CollageSource, scratch: Path) -> Collection:
    """The pictures of the set, named by their class image. Raises UserError if the files are not the
    published CIFAR-100."""
    cifar = read(source, "cifar100", scratch)
    split_of = splits(cifar, source.train_subclasses)
    coarse = [cifar.names[0][label] for label in cifar.labels[:, 0].tolist()]
    fine = [cifar.names[1][label] for label in cifar.labels[:, 1].tolist()]
    pictures = []
    background: dict[str, list[int]] = {"train": [], "test": []}  # numbers of images, by split
    for number, (source_name, super_class, sub_class) in enumerate(
        zip(cifar.sources, coarse, fine, strict=True)
    ):
        split = split_of.get(sub_class)
        if split is None:
            continue
        if super_class in SHARED:
            background[split].append(number)
        else:
            pictures.append(Picture(source_name, f"{split}/{super_class}", split, group=sub_class))
    facts = {"published": PUBLISHED["cifar100"].title, "unseen_classes": True}
    pixels = Pixels(cifar.pixels, cifar.sources)
    if source.distilled:
        return Collection(cifar.location, pictures, pixels, facts)
    cells = np.full((len(cifar.sources), len(_CELLS)), -1, np.int32)
    for stream, (split, pool) in enumerate(background.items()):
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([source.seed, stream])))
        classes = np.array([pixels.number(picture.source) for picture in pictures if picture.split == split])
        cells[classes] = draw(classes, np.array(pool), generator)
    return Collection(cifar.location, pictures, Collage(pixels, cells), facts)


def splits(cifar: Cifar, train_subclasses: int) -> dict[str, str]:
    """The split of each sub-class, without sub-classes that are in neither split. Raises UserError if the
    super-classes are not those of CIFAR-100."""
    if missing := [name for name in SHARED if name not in cifar.names[0]]:
        raise UserError(
            f"{cifar.location}: coarse_label_names.txt has no {missing[0]}.",
            "It is not the published file: fetch the archive again.",
        )
    sub_classes: dict[int, set[int]] = {}  # by super-class
    for super_class, sub_class in cifar.labels.tolist():
        sub_classes.setdefault(super_class, set()).add(sub_class)
    split_of = {}
    for labels in sub_classes.values():
        names = sorted(cifar.names[1][label] for label in labels)
        split_of.update(dict.fromkeys(names[:train_subclasses], "train"))
        split_of.update(dict.fromkeys(names[-TEST_SUBCLASSES:], "test"))
    return split_of


def draw(
    classes: Int[np.ndarray, " n"], pool: Int[np.ndarray, " p"], generator: np.random.Generator
) -> Int[np.ndarray, "n 4"]:
    """The number of the image in each cell of every picture, left to right and top to bottom: the class
    image, and the next three images of the shuffled pool."""
    cells = np.empty((len(classes), len(_CELLS)), np.int32)
    shuffled, used = generator.permutation(pool), 0
    for row, number in enumerate(classes.tolist()):
        if used + 3 > len(pool):
            shuffled, used = generator.permutation(pool), 0
        class_cell = int(generator.integers(len(_CELLS)))
        cells[row] = np.insert(shuffled[used : used + 3], class_cell, number)
        used += 3
    return cells


class Collage:
    """Reads the pixels of a picture by the source of its class image."""

    def __init__(self, pixels: Pixels, cells: Int[np.ndarray, "images 4"]) -> None:
        self.pixels, self.cells = pixels, cells

    def cell(self, source: str) -> int:
        """The cell of the class image, left to right and top to bottom."""
        number = self.pixels.number(source)
        return self.cells[number].tolist().index(number)

    def __call__(self, source: str) -> UInt8[np.ndarray, "64 64 3"]:
        picture = np.empty((2 * SIDE, 2 * SIDE, 3), np.uint8)
        numbers = self.cells[self.pixels.number(source)].tolist()
        for (row, column), number in zip(_CELLS, numbers, strict=True):
            y, x = row * SIDE, column * SIDE
            picture[y : y + SIDE, x : x + SIDE] = self.pixels.image(number)
        return picture
