"""Constants of bigger galleries, for docs/scale.md: bytes per vector, build and search time per million vectors, at which recall.

Unit vectors of 128 dimensions around centres, ten to a centre, of two spectra: "decaying", whose standard deviation falls as 1 / sqrt(i) (18
effective dimensions; the embeddings of the default graph have 8 to 14 of 64), and "flat", the worst case of cells. Queries are gallery rows.
Every kind of index searches the same queries in turns on one core; its times are quoted against exact search of the same gallery in the same turns.
A number of rows may be given: two of them say how a constant grows. Exits with 1 where an index reaches less recall than its setting is known for.
"""

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before the libraries are loaded: CPU seconds of one core are compared

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from timing import interleave, ratio, save

from pipeline.index.approximate import Hnsw, Ivf, IvfPq, approximate_search, build, load, recall
from pipeline.index.approximate import save as save_index
from pipeline.index.exact import exact_search
from pipeline.index.kinds import Setting

ROWS = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
DIM, QUERIES, K, ROUNDS = 128, 1000, 10, 3
EXACT = "exact"
SPECTRA = {"decaying": 0.5, "flat": 0.0}  # exponent of the decay
INDEXES: dict[str, tuple[tuple[Setting, float], ...]] = {  # built once, searched at each setting; the least recall of either spectrum
    "ivf": ((Ivf(probes=16), 0.5), (Ivf(probes=64), 0.7), (Ivf(probes=256), 0.85)),
    "hnsw": ((Hnsw(search_width=16), 0.7), (Hnsw(search_width=64), 0.9), (Hnsw(search_width=256), 0.95)),
    "ivf_pq, 32 bytes": ((IvfPq(refine=None), 0.4),),
    "ivf_pq, 32 bytes and vectors": ((IvfPq(), 0.6), (IvfPq(refine=1000), 0.7)),
    "ivf_pq, 64 bytes": ((IvfPq(code_bytes=64, refine=None), 0.5),),
    "ivf_pq, 64 bytes and vectors": ((IvfPq(code_bytes=64), 0.7),),
}


def gallery(decay: float) -> np.ndarray:
    generator = np.random.default_rng(0)
    spread = np.arange(1, DIM + 1, dtype=np.float32) ** np.float32(-decay)
    centres = generator.standard_normal((ROWS // 10, DIM), dtype=np.float32)
    x = centres[generator.integers(len(centres), size=ROWS)] + 0.9 * generator.standard_normal((ROWS, DIM), dtype=np.float32)
    x *= spread
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def named(setting: Setting) -> str:
    if isinstance(setting, Hnsw):
        return f"hnsw, width {setting.search_width}"
    if isinstance(setting, IvfPq):
        return f"ivf_pq, {setting.code_bytes} bytes" + (f", {setting.refine} anew" if setting.refine is not None else "")
    return f"ivf, {setting.probes} probes"


def built(make: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return make(), time.process_time() - start


def measure(spectrum: str) -> tuple[dict[str, dict[str, float]], bool]:
    """What is measured of every index, and whether all reach their recall."""
    vectors, ids = gallery(SPECTRA[spectrum]), np.arange(ROWS)
    chosen = np.sort(np.random.default_rng(1).permutation(ROWS)[:QUERIES])
    queries = vectors[chosen]
    turns: dict[str, Callable[[], object]] = {EXACT: lambda: exact_search(queries, chosen, vectors, ids, K)}
    rows: dict[str, dict[str, float]] = {EXACT: {"recall": 1.0, "bytes": 4 * DIM, "build": 0.0}}
    least: dict[str, float] = {}
    for settings in INDEXES.values():
        index, seconds = built(lambda settings=settings: build(vectors, ids, settings[0][0]))
        with TemporaryDirectory() as directory:
            path = Path(directory, "index")
            save_index(path, index)
            size = sum(file.stat().st_size for file in path.iterdir()) / ROWS
            for setting, bound in settings:
                name = named(setting)
                loaded = load(path, vectors, ids, setting)
                turns[name] = lambda index=loaded: approximate_search(index, queries, chosen, K)
                rows[name] = {"recall": recall(loaded, vectors, ids, K, QUERIES, 1).at_k, "bytes": size, "build": seconds}
                least[name] = bound
    seconds_of = interleave(turns, ROUNDS)
    print(f"{ROWS:,} rows, {DIM} dimensions, {spectrum} spectrum")
    for name, row in rows.items():
        row["query_ms"] = 1000 * statistics.median(seconds_of[name]) / QUERIES
        row["times_faster"] = ratio(seconds_of, EXACT, name)
        print(
            f"{name:28} recall@{K} {row['recall']:.3f}  {row['bytes']:6.0f} bytes/vector  build {row['build'] * 1e6 / ROWS:7.1f} us/vector"
            f"  query {row['query_ms']:7.3f} ms  {row['times_faster']:6.1f}x"
        )
    return rows, all(rows[name]["recall"] >= bound for name, bound in least.items())


def main() -> int:
    results = {spectrum: measure(spectrum) for spectrum in SPECTRA}
    indexes = {spectrum: rows for spectrum, (rows, _) in results.items()}
    save(f"approximate-{ROWS}", {"rows": ROWS, "dim": DIM, "queries": QUERIES, "k": K, "indexes": indexes})
    return 0 if all(reached for _, reached in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
