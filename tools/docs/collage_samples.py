"""How pictures of Cifar Collage are made (GSP figure 4): the images of the cells, and the picture of them.

python -m tools.docs.collage_samples figure-4 [data/raw/cifar100]

The second argument is the folder or archive of the binary CIFAR-100 (data/raw/README.md). The samples are
those of data set `collage`: a red frame marks the image of the class, the others are of the shared classes.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from jaxtyping import UInt8
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from unseen.data.ingest.collection import Picture
from unseen.data.ingest.settings import CollageSource
from unseen.data.ingest.sources.cifar import SIDE
from unseen.data.ingest.sources.collage import Collage, collection
from unseen.report.svg import save
from unseen.runtime.errors import UserError

SAMPLES = 4  # of each split
GAP = 6  # pixels between the images of the cells


def samples(pictures: list[Picture], seed: int = 0) -> list[Picture]:
    """Some pictures of train, then of test, each of another class."""
    generator = np.random.default_rng(seed)
    chosen = []
    for split in ("train", "test"):
        own = sorted({picture.class_name for picture in pictures if picture.split == split})
        for name in generator.permutation(own)[:SAMPLES].tolist():
            of_class = [picture for picture in pictures if picture.class_name == name]
            chosen.append(of_class[generator.integers(len(of_class))])
    return chosen


def apart(picture: UInt8[np.ndarray, "64 64 3"]) -> UInt8[np.ndarray, "side side 3"]:
    """The four images of a picture with a white gap between them."""
    spaced = np.full((2 * SIDE + GAP, 2 * SIDE + GAP, 3), 255, np.uint8)
    for y in (0, 1):
        for x in (0, 1):
            cell = picture[y * SIDE : (y + 1) * SIDE, x * SIDE : (x + 1) * SIDE]
            top, left = y * (SIDE + GAP), x * (SIDE + GAP)
            spaced[top : top + SIDE, left : left + SIDE] = cell
    return spaced


def draw(path: Path, source: CollageSource) -> None:
    """Writes <path>.svg and <path>.pdf. Raises UserError if the files are not the published CIFAR-100."""
    with TemporaryDirectory() as scratch:
        listed = collection(source, Path(scratch))
        assert isinstance(listed.read, Collage)
        save(_figure(listed.read, samples(listed.pictures)), path)


def _figure(read: Collage, chosen: list[Picture]) -> Figure:
    figure = Figure(figsize=(1.5 * len(chosen), 3.6), layout="constrained")
    cells, pictures = figure.subplots(2, len(chosen))
    for above, below, picture in zip(cells, pictures, chosen, strict=True):
        content = read(picture.source)
        above.imshow(apart(content))
        above.add_patch(_frame(read.cell(picture.source)))
        above.set_title(picture.class_name.replace("/", "\n").replace("_", " "), fontsize=7)
        below.imshow(content)
    cells[0].set_ylabel("images of the cells")
    pictures[0].set_ylabel("picture")
    for each in (*cells, *pictures):
        each.set(xticks=[], yticks=[])
        each.spines[:].set_visible(False)
    return figure


def _frame(cell: int) -> Rectangle:
    """Around the image of a cell of `apart`."""
    y, x = divmod(cell, 2)
    corner = (x * (SIDE + GAP) - 0.5, y * (SIDE + GAP) - 0.5)
    return Rectangle(corner, SIDE, SIDE, fill=False, edgecolor="red", linewidth=1.5, clip_on=False)


if __name__ == "__main__":
    try:
        draw(Path(sys.argv[1]), CollageSource(path=sys.argv[2]) if sys.argv[2:] else CollageSource())
    except UserError as error:
        sys.exit(str(error))
