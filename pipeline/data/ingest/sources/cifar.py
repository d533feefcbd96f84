"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009) from their binary archives: 60,000 images of 32 x 32 pixels.

    cifar-10-batches-bin/
        data_batch_1.bin ... data_batch_5.bin, test_batch.bin    per image: label, then 3 x 32 x 32 bytes
        batches.meta.txt                                         names of the labels, one per line
    cifar-100-binary/
        train.bin, test.bin                                      per image: coarse label, fine label, pixels
        coarse_label_names.txt, fine_label_names.txt

The official train and test parts contain the same classes, so they are not a split for retrieval of unseen
classes. No paper of this project splits these sets by class (GSP trains on all of CIFAR-10 for figure 5, and
makes the Collage from CIFAR-100). The split here is this project's: the first half of the labels is train,
the other half test. The order of labels is the order of names. With `split: images` the official parts are
used. Class names then begin with the split, because a class of a set of shards is in only one split.

The python archives contain pickles of the same pixels; they are never read.
"""

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from unseen.data.ingest.collection import Collection, Picture
from unseen.data.ingest.files.tree import Branch, Tree
from unseen.data.ingest.releases import PUBLISHED, missing_data_error
from unseen.data.ingest.settings import Cifar10Source, Cifar100Source, CollageSource
from unseen.runtime.errors import UserError

SIDE = 32
_PIXELS = 3 * SIDE * SIDE
_PIXEL_FILE = "pixels.npy"


class Layout(NamedTuple):
    """The files of an archive. Every class has the same number of images in the test file, and in all train
    files together."""

    files: tuple[str, ...]  # the last file is the official test part
    # files with the names of each kind of label, in the order of the bytes of a record
    names: tuple[str, ...]
    labels: tuple[int, ...]  # number of labels of each kind
    per_file: tuple[int, ...]  # number of images


LAYOUTS = {
    "cifar10": Layout(
        (*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"),
        ("batches.meta.txt",),
        (10,),
        (10_000,) * 6,
    ),
    "cifar100": Layout(
        ("train.bin", "test.bin"),
        ("coarse_label_names.txt", "fine_label_names.txt"),
        (20, 100),
        (50_000, 10_000),
    ),
}


class Cifar(NamedTuple):
    """The content of an archive. The pixels are in a separate file that every process maps."""

    location: str  # path of the archive, for messages
    pixels: Path  # .npy, uint8 (images, 32, 32, 3)
    sources: list[str]  # `train.bin/00017`
    in_test: list[bool]  # whether the image is in the official test part
    labels: Int[np.ndarray, "images kinds"]
    names: tuple[list[str], ...]  # of each kind of label


def collection(source: Cifar10Source | Cifar100Source, scratch: Path) -> Collection:
    """The pictures of the set with their classes. The super-classes of CIFAR-100 are groups. Raises UserError
    if the files are not the published ones."""
    cifar = read(source, source.kind, scratch)
    first_test_label = len(cifar.names[-1]) // 2
    by_class = source.split == "classes"
    pictures = []
    for name, in_test, labels in zip(cifar.sources, cifar.in_test, cifar.labels.tolist(), strict=True):
        is_test = labels[-1] >= first_test_label if by_class else in_test
        split = "test" if is_test else "train"
        class_name = cifar.names[-1][labels[-1]]
        if not by_class:
            class_name = f"{split}/{class_name}"
        group = cifar.names[0][labels[0]] if len(labels) > 1 else None
        pictures.append(Picture(name, class_name, split, group=group))
    facts = {"published": PUBLISHED[source.kind].title, "unseen_classes": by_class}
    return Collection(cifar.location, pictures, Pixels(cifar.pixels, cifar.sources), facts)


class Pixels:
    """Reads the pixels of an image by its source. Each process maps the file."""

    def __init__(self, path: Path, sources: list[str]) -> None:
        self.path = path
        self.starts: dict[str, int] = {}  # number of the first image of each file
        for number, source in enumerate(sources):
            self.starts.setdefault(source.partition("/")[0], number)
        self._mapped: np.ndarray | None = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_mapped": None}

    def __call__(self, source: str) -> UInt8[np.ndarray, "32 32 3"]:
        return self.image(self.number(source))

    def number(self, source: str) -> int:
        """The number of an image in the pixel file."""
        file, _, number = source.partition("/")
        return self.starts[file] + int(number)

    def image(self, number: int) -> UInt8[np.ndarray, "32 32 3"]:
        if self._mapped is None:
            self._mapped = np.load(self.path, mmap_mode="r")
        return np.asarray(self._mapped[number])


def read(source: Cifar10Source | Cifar100Source | CollageSource, kind: str, scratch: Path) -> Cifar:
    """Reads an archive. The pixel file is written to `scratch`, which must exist as long as pixels are read.

    Raises UserError for a missing file, a file whose size differs from that of its records, a label without a
    name, classes of unequal size, and a class in two super-classes.
    """
    layout, published = LAYOUTS[kind], PUBLISHED[kind]
    tree = Tree(Path(source.path), published, scratch)
    branch = tree.below(layout.files[0])
    for name in (*layout.files, *layout.names):
        if branch is None or name not in branch:
            hint = ""
            if _is_python_version(tree):
                hint = " (its files are pickles, the python version: fetch the binary version)"
            raise missing_data_error(kind, tree.path, f"contains no {name}{hint}")
    assert branch is not None
    names = tuple(
        _names(branch, name, count) for name, count in zip(layout.names, layout.labels, strict=True)
    )
    shape = (sum(layout.per_file), SIDE, SIDE, 3)
    pixels = np.lib.format.open_memmap(scratch / _PIXEL_FILE, "w+", np.uint8, shape)
    labels: list[np.ndarray] = []
    sources: list[str] = []
    for file, images in zip(layout.files, layout.per_file, strict=True):
        records = _records(branch, file, images, layout, names)
        planes = records[:, -_PIXELS:].reshape(-1, 3, SIDE, SIDE)
        pixels[len(sources) : len(sources) + images] = planes.transpose(0, 2, 3, 1)
        labels.append(records[:, :-_PIXELS].astype(np.int64))
        sources += [f"{file}/{number:05d}" for number in range(images)]
    pixels.flush()
    in_test = [source.startswith(f"{layout.files[-1]}/") for source in sources]
    cifar = Cifar(str(tree.path), scratch / _PIXEL_FILE, sources, in_test, np.concatenate(labels), names)
    _require_balance(cifar, layout)
    return cifar


def _records(
    branch: Branch, file: str, images: int, layout: Layout, names: tuple[list[str], ...]
) -> UInt8[np.ndarray, "images record"]:
    """The records of one file."""
    location = f"{branch.tree.path}: {branch.root}{file}"
    content = branch.read(file)
    size = len(layout.labels) + _PIXELS
    if len(content) != images * size:
        whole, surplus = divmod(len(content), size)
        raise UserError(
            f"{location} has {len(content):,} bytes, "
            f"{whole:,} records of {size:,} bytes and {surplus:,} bytes more; "
            f"expected {images:,} records, {images * size:,} bytes.",
            _FETCH_AGAIN,
        )
    records = np.frombuffer(content, np.uint8).reshape(images, size)
    for kind, label_names in enumerate(names):
        largest = int(records[:, kind].max())
        if largest >= len(label_names):
            number = int(records[:, kind].argmax())
            raise UserError(
                f"{location}: image {number:,} has label {largest}; "
                f"{layout.names[kind]} names {len(label_names)}.",
                _FETCH_AGAIN,
            )
    return records


def _names(branch: Branch, file: str, count: int) -> list[str]:
    """The `count` names of one kind of label."""
    names = branch.text(file).split()
    if len(names) != count or len(set(names)) != count:
        raise UserError(
            f"{branch.tree.path}: {branch.root}{file} names {len(set(names))} different labels, "
            f"expected {count}.",
            _FETCH_AGAIN,
        )
    return names


def _require_balance(cifar: Cifar, layout: Layout) -> None:
    """Checks that labels of one kind have equally many images, and that each class is in one super-class."""
    in_test = np.array(cifar.in_test)
    for part, images in ((in_test, layout.per_file[-1]), (~in_test, sum(layout.per_file[:-1]))):
        for kind, count in enumerate(layout.labels):
            expected = images // count
            counts = np.bincount(cifar.labels[part, kind], minlength=count)
            if (counts != expected).any():
                label = int((counts != expected).argmax())
                raise UserError(
                    f"{cifar.location}: {cifar.names[kind][label]} has {counts[label]:,} "
                    f"of {images:,} images, expected {expected:,}.",
                    _FETCH_AGAIN,
                )
    super_classes: dict[int, set[int]] = defaultdict(set)  # by class
    for labels in cifar.labels.tolist():
        super_classes[labels[-1]].add(labels[0])
    for label, parents in super_classes.items():
        if len(parents) > 1 and len(layout.labels) > 1:
            names = ", ".join(cifar.names[0][parent] for parent in sorted(parents))
            raise UserError(
                f"{cifar.location}: {cifar.names[-1][label]} is in more than one super-class: {names}.",
                _FETCH_AGAIN,
            )


def _is_python_version(tree: Tree) -> bool:
    endings = ("/data_batch_1", "/cifar-100-python/train")
    return any(f"/{name}".endswith(endings) for name in tree.names())


_FETCH_AGAIN = "It is not the published file: fetch the archive again."
