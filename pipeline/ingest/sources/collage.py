"""Cifar Collage (GSP, ICCV 2023, section 5.1): does a pooling find the part of a picture that says the class?

Of the 20 super-classes of CIFAR-100 four are shared: background. The other 16 are the classes. A picture is
one image of a class and three of the background, stitched 2 x 2 to 64 x 64 pixels, the class at a random
place. Every image of a class makes one picture; background images come from a shuffled pool, shuffled again
when fewer than three are left. Of the five sub-classes of every super-class, shared ones too, the first three
in name order are train and the last two test, so test shows other animals before other scenery.

As the released code (tensorflow/framework/datasets/cifar_collage.py), not as the text, which says
"4x4-stitched", and keeps the third sub-class for validation: that is `train_subclasses: 2`. The sub-class is
the group of a picture. Both official parts of CIFAR-100 are used: 600 images per sub-class. A class of train
and one of test bear the same super-class but share no sub-class: they are two classes here, and named by
their split.

`distilled`: the class images alone, 32 x 32, without a background: what a perfect pooling would see.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8

from pipeline.config.dataset import CollageSource
from pipeline.ingest.collection import Collection, Picture
from pipeline.ingest.releases import PUBLISHED
from pipeline.ingest.sources.cifar import SIDE, Cifar, Pixels, read
from pipeline.runtime.errors import UserError

SHARED = ("large_man-made_outdoor_things", "large_natural_outdoor_scenes", "trees", "flowers")
TEST_SUBCLASSES = 2
_CELLS = ((0, 0), (0, 1), (1, 0), (1, 1))  # row, column


def collection(source: CollageSource, scratch: Path) -> Collection:
    """The pictures of the set, named by the class image they hold. Raises UserError where the files are not
    the published CIFAR-100."""
    cifar = read(source, "cifar100", scratch)
    split_of = splits(cifar, source.train_subclasses)
    coarse = [cifar.names[0][label] for label in cifar.labels[:, 0].tolist()]
    fine = [cifar.names[1][label] for label in cifar.labels[:, 1].tolist()]
    pictures = [
        Picture(name, f"{split_of[sub]}/{super_class}", split_of[sub], group=sub)
        for name, super_class, sub in zip(cifar.sources, coarse, fine, strict=True)
        if sub in split_of and super_class not in SHARED
    ]
    facts = {"published": PUBLISHED["cifar100"].title, "unseen_classes": True}
    pixels = Pixels(cifar.pixels, cifar.sources)
    if source.distilled:
        return Collection(cifar.where, pictures, pixels, facts)
    plan = np.full((len(cifar.sources), len(_CELLS)), -1, np.int32)
    shared = [
        split_of.get(sub) if super_class in SHARED else None
        for super_class, sub in zip(coarse, fine, strict=True)
    ]
    for stream, split in enumerate(("train", "test")):
        pool = np.array([number for number, found in enumerate(shared) if found == split])
        classes = np.array([pixels.number(picture.source) for picture in pictures if picture.split == split])
        plan[classes] = draw(
            classes, pool, np.random.Generator(np.random.PCG64(np.random.SeedSequence([source.seed, stream])))
        )
    return Collection(cifar.where, pictures, Collage(pixels, plan), facts)


def splits(cifar: Cifar, train_subclasses: int) -> dict[str, str]:
    """The split of each sub-class; one that is in neither is left out. Raises UserError when the
    super-classes are not those of CIFAR-100."""
    if missing := [name for name in SHARED if name not in cifar.names[0]]:
        raise UserError(
            f"{cifar.where}: coarse_label_names.txt has no {missing[0]}.",
            "It is not the published file: fetch the archive again.",
        )
    below: dict[int, set[int]] = {}
    for parent, label in cifar.labels.tolist():
        below.setdefault(parent, set()).add(label)
    split_of = {}
    for labels in below.values():
        names = sorted(cifar.names[1][label] for label in labels)
        split_of.update(
            dict.fromkeys(names[:train_subclasses], "train") | dict.fromkeys(names[-TEST_SUBCLASSES:], "test")
        )
    return split_of


def draw(
    classes: Int[np.ndarray, " n"], pool: Int[np.ndarray, " p"], generator: np.random.Generator
) -> Int[np.ndarray, "n 4"]:
    """The image in each cell of every picture, left to right and top to bottom: the class image, and the next
    three of the shuffled pool."""
    cells = np.empty((len(classes), len(_CELLS)), np.int32)
    shuffled, used = generator.permutation(pool), 0
    for row, number in enumerate(classes.tolist()):
        if used + 3 > len(pool):
            shuffled, used = generator.permutation(pool), 0
        place = int(generator.integers(len(_CELLS)))
        cells[row] = np.insert(shuffled[used : used + 3], place, number)
        used += 3
    return cells


class Collage:
    """The pixels of a picture by the source of its class image."""

    def __init__(self, pixels: Pixels, plan: Int[np.ndarray, "images 4"]) -> None:
        self.pixels, self.plan = pixels, plan

    def __call__(self, source: str) -> UInt8[np.ndarray, "64 64 3"]:
        picture = np.empty((2 * SIDE, 2 * SIDE, 3), np.uint8)
        for (row, column), number in zip(_CELLS, self.plan[self.pixels.number(source)].tolist(), strict=True):
            picture[row * SIDE : (row + 1) * SIDE, column * SIDE : (column + 1) * SIDE] = self.pixels.image(
                number
            )
        return picture
