"""Small archives in the layouts of CIFAR-10 and CIFAR-100: the real files and labels, a few images of each
class."""

import functools
import io
import tarfile
from pathlib import Path

import numpy as np

from unseen.data.ingest.sources.cifar import LAYOUTS, Layout

COARSE = (
    "aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices "
    "household_furniture insects large_carnivores "
    "large_man-made_outdoor_things large_natural_outdoor_scenes large_omnivores_and_herbivores "
    "medium-sized_mammals non-insect_invertebrates people "
    "reptiles small_mammals trees vehicles_1 vehicles_2"
)
NAMES = {
    "cifar10": {
        "batches.meta.txt": "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n"
    },
    "cifar100": {
        "coarse_label_names.txt": "\n".join(COARSE.split()) + "\n",
        "fine_label_names.txt": "".join(f"thing_{label:03d}\n" for label in range(100)),
    },
}
SMALL = {
    "cifar10": LAYOUTS["cifar10"]._replace(per_file=(20,) * 6),
    "cifar100": LAYOUTS["cifar100"]._replace(per_file=(200, 200)),
}
FOLDERS = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}


@functools.cache
def planes(file: str, number: int) -> np.ndarray:
    """The three colour planes of an image. They differ for every image."""
    return np.random.default_rng([number, *file.encode()]).integers(0, 256, (3, 32, 32), np.uint8)


def labels(kind: str, number: int) -> list[int]:
    """The labels of an image. Here sub-class f of CIFAR-100 is in super-class f mod 20."""
    return [number % 10] if kind == "cifar10" else [number % 100 % 20, number % 100]


@functools.cache
def records(kind: str, file: str, images: int) -> bytes:
    return b"".join(bytes(labels(kind, n)) + planes(file, n).tobytes() for n in range(images))


def files(kind: str) -> dict[str, bytes]:
    """All files of the archive."""
    layout: Layout = SMALL[kind]
    texts = {name: text.encode() for name, text in NAMES[kind].items()}
    return texts | {
        name: records(kind, name, images) for name, images in zip(layout.files, layout.per_file, strict=True)
    }


def unpacked(root: Path, kind: str, **changed: bytes | None) -> Path:
    """The unpacked folder. `changed` replaces the content of a file (dots of its name as `_`); None omits the
    file."""
    folder = root / FOLDERS[kind]
    folder.mkdir(parents=True)
    for name, content in files(kind).items():
        new = changed.get(name.replace(".", "_"), content)
        if new is not None:
            (folder / name).write_bytes(new)
    return root


def packed(root: Path, kind: str) -> Path:
    """The archive as published."""
    root.mkdir(parents=True, exist_ok=True)
    with tarfile.open(
        root / f"cifar-{kind.removeprefix('cifar')}-binary.tar.gz", "w:gz", compresslevel=1
    ) as archive:
        for name, content in files(kind).items():
            member = tarfile.TarInfo(f"{FOLDERS[kind]}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return root
