"""Opening, building and searching a catalog of synthetic vectors, for docs/scale.md.

    python benchmarks/catalog.py [--rows 1000000] [--dim 512] [--index flat]

The vectors are on the disk before the build, as those of a build that was killed after its last picture. Ten
pictures around each centre, with a spectrum that decays as 1 / sqrt(i) (benchmarks/approximate.py). Exits
with 1 if opening takes more than 0.2 s, or if building adds more than 1.2 times the size of the vectors to
the memory of the process.
"""

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before the libraries are loaded

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
from timing import Ratio, save

from unseen.evaluation.index.index import search
from unseen.evaluation.index.kinds import KINDS
from unseen.frozen.pictures import Listed, Stamp
from unseen.frozen.store import VECTORS, ArrayStore
from unseen_search.catalog.catalog import Catalog
from unseen_search.catalog.write import FLAT_BELOW, Contents, Model, default_setting, write_catalog

OPENING, ADDED = 0.2, 1.2  # seconds; times the size of the vectors
BLOCK, QUERIES, ROUNDS = 50_000, 20, 5
OPEN = """
import sys, time
from unseen_search.catalog.catalog import Catalog
start = time.perf_counter()
catalog = Catalog(sys.argv[1])
print(time.perf_counter() - start)
"""


def write_vectors(path: Path, rows: int, dim: int) -> np.ndarray:
    """Writes the vectors, and maps them into memory."""
    generator = np.random.default_rng(0)
    deviations = np.arange(1, dim + 1, dtype=np.float32) ** np.float32(-0.5)
    vectors = np.lib.format.open_memmap(path, "w+", np.float32, (rows, dim))
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        centres = generator.standard_normal((count // 10 + 1, dim), dtype=np.float32).repeat(10, 0)[:count]
        block = centres + 0.9 * generator.standard_normal((count, dim), dtype=np.float32)
        block *= deviations
        vectors[start : start + count] = block / np.linalg.norm(block, axis=1, keepdims=True)
    vectors.flush()
    del vectors
    return np.load(path, mmap_mode="r")


class Peak:
    """The largest memory of this process that is not a file, above that at the start."""

    def __init__(self) -> None:
        self._process, self._done = psutil.Process(), threading.Event()
        self._first = self._peak = self._now()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Peak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def added(self) -> int:
        return self._peak - self._first

    def _now(self) -> int:
        memory = self._process.memory_info()
        return int(memory.rss - memory.shared)

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self._peak = max(self._peak, self._now())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--index", choices=KINDS, default="flat")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        vectors = write_vectors(root / "vectors.npy", options.rows, options.dim)
        setting = default_setting(FLAT_BELOW, options.dim)
        if setting.kind != options.index:
            setting = KINDS[options.index]()
        digests = [f"{row:064x}" for row in range(options.rows)]
        pictures = Listed(
            [f"product {row // 10:07d}/{row:08d}.jpg" for row in range(options.rows)],
            digests,
            [Stamp(10_000, row) for row in range(options.rows)],
            {},
        )
        model = Model("synthetic", "0" * 64, options.dim, [], "float32")
        contents = Contents(root / "photos", pictures, [None] * options.rows, "none", model)
        size = vectors.size * 4
        stored = ArrayStore(root, options.dim, VECTORS)
        with Peak() as memory:
            start, cpu = time.perf_counter(), time.process_time()
            stored.add(digests, lambda rows: vectors[rows])
            write_catalog(root / "catalog", contents, stored, setting)
            built, cpu = time.perf_counter() - start, time.process_time() - cpu
        disk = sum(path.stat().st_size for path in (root / "catalog").rglob("*") if path.is_file())
        command = [sys.executable, "-c", OPEN, str(root / "catalog")]
        opened = [
            float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for _ in range(ROUNDS)
        ]
        catalog = Catalog(root / "catalog")
        seconds = []
        for row in range(QUERIES):
            query = np.ascontiguousarray(vectors[row * 7919 % options.rows][None])
            start = time.perf_counter()
            search(catalog.index, query, None, 10)
            seconds.append(time.perf_counter() - start)
        recall = catalog.about["recall"]
        added, median = memory.added / size, statistics.median(opened)
        name = f"{options.rows} x {options.dim}, {options.index}"
        save(
            "catalog",
            {
                "rows": options.rows,
                "dim": options.dim,
                "index": options.index,
                "build_seconds": built,
                "build_cpu_seconds": cpu,
                "opening_seconds": opened,
                "search_seconds": seconds,
                "recall": recall,
            },
            {
                f"{name}: opening, seconds": Ratio(median, at_most=OPENING),
                f"{name}: memory added / vectors": Ratio(added, at_most=ADDED),
                f"{name}: disk / vectors": Ratio(disk / size),
            },
        )
        vectors_size = f"{options.dim} dimensions, {size / 2**20:,.0f} MiB"
        print(f"{options.rows:,} vectors of {vectors_size}; {setting.kind}")
        print(f"build: {built:.0f} s, {cpu:.0f} CPU seconds")
        print(f"memory that the build adds, divided by the vectors: {added:.2f} (at most {ADDED})")
        print(f"catalog on the disk, divided by the vectors: {disk / size:.2f}")
        print(f"opening: median {median:.3f} s, largest {max(opened):.3f} s (at most {OPENING})")
        print(f"search: median {1000 * statistics.median(seconds):.1f} ms a query")
        if recall is not None:
            print(f"recall at 1 {recall['at_1']:.3f}, at 10 {recall['at_k']:.3f}")
        return int(median > OPENING or added > ADDED)


if __name__ == "__main__":
    sys.exit(main())
