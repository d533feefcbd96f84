"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009) from their binary archives: 60,000 images of 32 x 32 pixels.

    cifar-10-batches-bin/   data_batch_1.bin ... data_batch_5.bin, test_batch.bin    per image: label, then 3
    x 32 x 32 bytes
                            batches.meta.txt                                         names of the labels, one
                            per line
    cifar-100-binary/       train.bin, test.bin                                      per image: coarse label,
    fine label, 3 x 32 x 32 bytes
                            coarse_label_names.txt, fine_label_names.txt

Their official parts hold the same classes, so they are no split for retrieval of unseen ones. No paper of
this project splits these sets by class (GSP trains on all of CIFAR-10 for figure 5, and makes the Collage of
CIFAR-100), so the split here is this project's: the first half of the labels is train, the other test, in
label order, which is that of names. `images` keeps the official parts; class names then begin with the split,
because a class of a set of shards is in one split only.

The python archives are pickles of the same pixels: never read.
"""

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from pipeline.config.dataset import Cifar10Source, Cifar100Source, CollageSource
from pipeline.ingest.collection import Collection, Picture
from pipeline.ingest.files.tree import Branch, Tree
from pipeline.ingest.releases import PUBLISHED, not_there
from pipeline.runtime.errors import UserError

SIDE = 32
_PIXELS = 3 * SIDE * SIDE
_PIXEL_FILE = "pixels.npy"


class Layout(NamedTuple):
    """Files of an archive. Every class has the same number of images in the test file, and over all train
    files."""

    files: tuple[str, ...]  # the last one is the official test part
    names: tuple[str, ...]  # of the labels, in the order of the bytes of a record
    labels: tuple[int, ...]
    per_file: tuple[int, ...]  # images


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
    """An archive, read: its pixels lie in a file of their own, which every process maps."""

    where: str
    pixels: Path  # .npy, uint8 (images, 32, 32, 3)
    sources: list[str]  # `train.bin/00017`
    in_test: list[bool]  # of the official parts
    labels: Int[np.ndarray, "images kinds"]
    names: tuple[list[str], ...]  # of each kind of label


def collection(source: Cifar10Source | Cifar100Source, scratch: Path) -> Collection:
    """The pictures of the set by class; super-classes, where it has them, are groups. Raises UserError where
    the files are not the published ones."""
    cifar = read(source, source.kind, scratch)
    half = len(cifar.names[-1]) // 2
    pictures = []
    for name, official_test, labels in zip(cifar.sources, cifar.in_test, cifar.labels.tolist(), strict=True):
        by_class = source.split == "classes"
        split = "test" if (labels[-1] >= half if by_class else official_test) else "train"
        class_name = cifar.names[-1][labels[-1]]
        group = cifar.names[0][labels[0]] if len(labels) > 1 else None
        pictures.append(
            Picture(name, class_name if by_class else f"{split}/{class_name}", split, group=group)
        )
    facts = {"published": PUBLISHED[source.kind].title, "unseen_classes": source.split == "classes"}
    return Collection(cifar.where, pictures, Pixels(cifar.pixels, cifar.sources), facts)


class Pixels:
    """The pixels of an image by its source. The file is mapped in each process."""

    def __init__(self, path: Path, sources: list[str]) -> None:
        self.path = path
        self.starts: dict[str, int] = {}  # the first image of each file
        for number, source in enumerate(sources):
            self.starts.setdefault(source.partition("/")[0], number)
        self._mapped: np.ndarray | None = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_mapped": None}

    def __call__(self, source: str) -> UInt8[np.ndarray, "32 32 3"]:
        return self.image(self.number(source))

    def number(self, source: str) -> int:
        file, _, number = source.partition("/")
        return self.starts[file] + int(number)

    def image(self, number: int) -> UInt8[np.ndarray, "32 32 3"]:
        if self._mapped is None:
            self._mapped = np.load(self.path, mmap_mode="r")
        return np.asarray(self._mapped[number])


def read(source: Cifar10Source | Cifar100Source | CollageSource, kind: str, scratch: Path) -> Cifar:
    """Reads an archive; `scratch` holds the pixels as long as they are needed.

    Raises UserError for a missing file, a size that is not that of the records, a label beyond the named
    ones, classes that are not of equal size, and classes that are in two super-classes.
    """
    layout, published = LAYOUTS[kind], PUBLISHED[kind]
    tree = Tree(Path(source.path), published, scratch)
    branch = tree.below(layout.files[0])
    for name in (*layout.files, *layout.names):
        if branch is None or name not in branch:
            pickled = (
                " (its files are those of the python version, which are pickles: fetch the binary version)"
                if _is_python(tree)
                else ""
            )
            raise not_there(kind, tree.path, f"holds no {name}{pickled}")
    assert branch is not None
    names = tuple(
        _names(branch, name, count) for name, count in zip(layout.names, layout.labels, strict=True)
    )
    pixels = np.lib.format.open_memmap(
        scratch / _PIXEL_FILE, "w+", np.uint8, (sum(layout.per_file), SIDE, SIDE, 3)
    )
    labels: list[np.ndarray] = []
    sources: list[str] = []
    for file, images in zip(layout.files, layout.per_file, strict=True):
        records = _records(branch, file, images, layout, names)
        pixels[len(sources) : len(sources) + images] = (
            records[:, -_PIXELS:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
        )
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
    where = f"{branch.tree.path}: {branch.root}{file}"
    content = branch.read(file)
    record = len(layout.labels) + _PIXELS
    if len(content) != images * record:
        whole = (
            f"{len(content) // record:,} records of {record:,} bytes and {len(content) % record:,} bytes more"
        )
        raise UserError(
            f"{where} has {len(content):,} bytes, {whole}; expected {images:,} records, {images * record:,} "
            "bytes.",
            _ANEW,
        )
    records = np.frombuffer(content, np.uint8).reshape(images, record)
    for kind, known in enumerate(names):
        if (largest := int(records[:, kind].max())) >= len(known):
            number = int(records[:, kind].argmax())
            raise UserError(
                f"{where}: image {number:,} has label {largest}; {layout.names[kind]} names {len(known)}.",
                _ANEW,
            )
    return records


def _names(branch: Branch, file: str, count: int) -> list[str]:
    names = branch.text(file).split()
    if len(names) != count or len(set(names)) != count:
        raise UserError(
            f"{branch.tree.path}: {branch.root}{file} names {len(set(names))} different labels, expected "
            f"{count}.",
            _ANEW,
        )
    return names


def _require_balance(cifar: Cifar, layout: Layout) -> None:
    in_test = np.array(cifar.in_test)
    for part, images in ((in_test, layout.per_file[-1]), (~in_test, sum(layout.per_file[:-1]))):
        for kind, count in enumerate(layout.labels):
            found = np.bincount(cifar.labels[part, kind], minlength=count)
            if (found != images // count).any():
                odd = int((found != images // count).argmax())
                name = cifar.names[kind][odd]
                raise UserError(
                    f"{cifar.where}: {name} has {found[odd]:,} of {images:,} images, expected "
                    f"{images // count:,}.",
                    _ANEW,
                )
    above: dict[int, set[int]] = defaultdict(set)
    for labels in cifar.labels.tolist():
        above[labels[-1]].add(labels[0])
    for label, parents in above.items():
        if len(parents) > 1 and len(layout.labels) > 1:
            found_in = ", ".join(cifar.names[0][parent] for parent in sorted(parents))
            raise UserError(
                f"{cifar.where}: {cifar.names[-1][label]} is in more than one super-class: {found_in}.", _ANEW
            )


def _is_python(tree: Tree) -> bool:
    return any(
        name.endswith(("/data_batch_1", "cifar-100-python/train")) or name == "data_batch_1"
        for name in tree.names()
    )


_ANEW = "It is not the published file: fetch the archive again."
