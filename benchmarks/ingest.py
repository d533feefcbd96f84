"""Ingest of published archives: its time compared with decoding the images, and its memory at the size of
SOP.

Time: the same JPEGs in the layouts of SOP (zip, folder) and CUB (tgz), on one core, compared with `decode`
alone. Reading the archive, its checksum, the check that every image is complete, the search for duplicates,
two sha256 and writing the shards together must take less time than decoding. Decompression is also measured
alone, because the project does not implement it. `decode` with reused memory, as in the loader, is a further
reference: ingest of a folder must take less than 1.2 times its time. Memory: 120,053 images in the layout of
SOP with two worker processes; the sum over all processes must be below 1.5 GiB.
"""

import contextlib
import functools
import io
import os
import statistics
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import simplejpeg
from PIL import Image
from timing import Ratio, interleave, ratio, save

from unseen.data.decode import FORMATS, decode
from unseen.data.ingest.census import Count
from unseen.data.ingest.files.tarball import inflate
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import CubSource, IngestSettings, SopSource
from unseen.data.ingest.sources import cub, sop
from unseen.data.scratch import Scratch

TIMES_OF_DECODING = 1.0  # in every layout
TIMES_OF_REUSE = 1.2  # a folder
MEBIBYTES = 1536
CLASSES, IMAGES = 20, 400  # of the timed sets
ROUNDS = 9
OURS, REUSE, PILLOW, INFLATE = (
    "decode alone",
    "decode alone, same memory",
    "decode alone, Pillow",
    "inflate alone, tgz",
)


def photographs() -> list[bytes]:
    """Different JPEGs of 500 x 375 pixels and quality 90, similar to those of CUB and SOP."""
    # not at the top: it imports torch, and the workers of ingest import this file
    from loader import photograph

    images = []
    for seed in range(IMAGES):
        stream = io.BytesIO()
        Image.fromarray(photograph(500, 375, seed)).save(stream, "JPEG", quality=90)
        images.append(stream.getvalue())
    return images


def sop_files(images: list[bytes], counts: dict[str, Count]) -> dict[str, bytes]:
    """Files in the layout of SOP, with the numbers of images and classes of `counts`."""
    files, image, label = {}, 0, 0
    for split, list_file in sop.LISTS.items():
        lines = [" ".join(sop.HEADER)]
        for number in range(counts[split].images):
            group = number * counts[split].classes // counts[split].images + label + 1
            path = f"bicycle_final/{111085122871 + group}_{number}.JPG"
            files[f"Stanford_Online_Products/{path}"] = images[image]
            image += 1
            lines.append(f"{image} {group} 1 {path}")
        label += counts[split].classes
        files[f"Stanford_Online_Products/{list_file}"] = "\n".join([*lines, ""]).encode()
    return files


def cub_files(images: list[bytes]) -> dict[str, bytes]:
    """Files in the layout of CUB-200-2011."""
    names = [f"{number * CLASSES // IMAGES + 1:03d}.Bird/{number}.jpg" for number in range(IMAGES)]
    paths = "".join(f"{number} {name}\n" for number, name in enumerate(names, 1))
    labels = "".join(f"{number} {int(name[:3])}\n" for number, name in enumerate(names, 1))
    files = {f"CUB_200_2011/images/{name}": image for name, image in zip(names, images, strict=True)}
    files["CUB_200_2011/images.txt"] = paths.encode()
    files["CUB_200_2011/image_class_labels.txt"] = labels.encode()
    return files


def timed(root: Path) -> dict[str, Callable[[], object]]:
    """The candidates. All process the same images."""
    images = photographs()
    half = Count(IMAGES // 2, CLASSES // 2)
    sop.COUNTS.update(train=half, test=half)
    cub.COUNTS.update(train=half, test=half)
    cub.LAST_TRAIN_CLASS = CLASSES // 2
    pack(sop_files(images, sop.COUNTS), root / "sop.zip")
    with zipfile.ZipFile(root / "sop.zip") as archive:
        archive.extractall(root / "sop")
    with tarfile.open(root / "cub.tgz", "w:gz") as tarball:
        for name, content in cub_files(images).items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tarball.addfile(member, io.BytesIO(content))
    run = functools.partial(ingest, settings=IngestSettings(), output=root / "out", processes=1)
    scratch = Scratch()
    return {
        REUSE: lambda: [decode(np.frombuffer(image, np.uint8), scratch) for image in images],
        INFLATE: lambda: inflate(root / "cub.tgz", root / "cub.tar"),
        OURS: lambda: [decode(np.frombuffer(image, np.uint8)) for image in images],
        PILLOW: lambda: [
            np.asarray(Image.open(io.BytesIO(image), formats=FORMATS).convert("RGB")) for image in images
        ],
        "ingest, zip": lambda: run(SopSource(path=str(root / "sop.zip")), dataset="sop"),
        "ingest, folder": lambda: run(SopSource(path=str(root / "sop")), dataset="sop"),
        "ingest, tgz": lambda: run(CubSource(path=str(root / "cub.tgz")), dataset="cub"),
    }


def peak_of(work: Callable[[], object]) -> float:
    """The largest sum, in MiB, of the resident memory of this process and of those that it starts (sampled).
    It includes the memory that was resident before."""
    peak, done = 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.05):
            total = 0
            for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    total += process.memory_info().rss
            peak = max(peak, total / 2**20)

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    done.set()
    watcher.join()
    return peak


def large_archive(path: Path) -> None:
    """Writes an archive with as many different images as SOP. They are small, because memory depends on the
    number of images and not on their size."""
    generator = np.random.default_rng(0)
    counts = {"train": Count(59_551, 11_318), "test": Count(60_502, 11_316)}
    sop.COUNTS.update(counts)

    def small_image() -> bytes:
        colours = generator.integers(0, 256, (4, 4, 3), np.uint8)
        pixels = np.ascontiguousarray(np.kron(colours, np.ones((8, 8, 1), np.uint8)))
        return bytes(simplejpeg.encode_jpeg(pixels, 90))

    images = [small_image() for _ in range(sum(count.images for count in counts.values()))]
    pack(sop_files(images, counts), path)


def pack(files: dict[str, bytes], path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def main() -> int:
    with (
        tempfile.TemporaryDirectory() as temporary,
        open(os.devnull, "w") as null,
        contextlib.redirect_stderr(null),
    ):
        root = Path(temporary)
        before = psutil.Process().memory_info().rss / 2**20
        large_archive(root / "large.zip")
        start = time.perf_counter()
        source = SopSource(path=str(root / "large.zip"))
        peak = peak_of(lambda: ingest(source, IngestSettings(), root / "large", "sop", 2))
        wall = time.perf_counter() - start
        seconds = interleave(timed(root), ROUNDS)
    ratios = {name: ratio(seconds, name, OURS) for name in seconds}
    folder_to_reuse = ratio(seconds, "ingest, folder", REUSE)
    print(f"{'':28}{'us of CPU per image':>20}{'x decode alone':>16}{'x same memory':>15}{'x Pillow':>10}")
    for name in seconds:
        columns = (
            f"{ratios[name]:16.2f}{ratio(seconds, name, REUSE):15.2f}{ratio(seconds, name, PILLOW):10.2f}"
        )
        print(f"{name:28}{statistics.median(seconds[name]) / IMAGES * 1e6:20.0f}{columns}")
    print(
        f"120,053 images of a zip, 2 processes: {peak:,.0f} MiB in all processes together ({before:,.0f} "
        f"before), {wall:.0f} s"
    )
    save(
        "ingest",
        {
            "times_of_decoding": ratios,
            "folder_times_of_decoding_into_the_same_memory": folder_to_reuse,
            "peak_mebibytes": peak,
        },
        {
            f"{name} / decoding": Ratio(value, at_most=TIMES_OF_DECODING)
            for name, value in ratios.items()
            if name.startswith("ingest")
        },
    )
    worst = max(value for name, value in ratios.items() if name.startswith("ingest"))
    print(
        f"required: below {TIMES_OF_DECODING} times decoding (folder: below {TIMES_OF_REUSE} times decoding "
        f"into the same memory), below {MEBIBYTES:,} MiB"
    )
    return int(worst >= TIMES_OF_DECODING or folder_to_reuse >= TIMES_OF_REUSE or peak >= MEBIBYTES)


if __name__ == "__main__":
    sys.exit(main())
