"""Cost and recall of every kind of index, for docs/scale.md, on synthetic vectors on one core.

    python benchmarks/approximate.py [rows]        default: 200,000; compare two sizes to see the growth

Unit vectors of 128 dimensions, ten around each centre, with two spectra: "decaying" (standard deviations
decrease as 1 / sqrt(i): 18 effective dimensions; the embeddings of the default graph have 8 to 14 of 64) and
"flat", the worst case for cells. The queries are gallery rows. All indexes search the same queries; the ratio
to exact search is computed within each round. Exits with 1 if an index has a lower recall than listed here.
"""

import os

# Before the libraries are loaded, so that CPU seconds of one core are compared.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import faiss
import numpy as np
from timing import Ratio, interleave, ratio, save

from unseen.evaluation.index.exact import exact_search
from unseen.evaluation.index.index import Index, build, search
from unseen.evaluation.index.kinds import prepare
from unseen.evaluation.index.recall import recall
from unseen.evaluation.settings import Flat, Hnsw, Ivf, IvfPq, Setting

ROWS = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
DIM, QUERIES, K, ROUNDS = 128, 1000, 10, 3
EXACT = "exact"
SPECTRA = {"decaying": 0.5, "flat": 0.0}  # exponent of the decay
# Each index is built once and searched with each setting; the number is the required recall on both spectra.
INDEXES: dict[str, tuple[tuple[Setting, float], ...]] = {
    "flat": ((Flat(), 1.0),),
    "ivf": ((Ivf(probes=16), 0.5), (Ivf(probes=64), 0.7), (Ivf(probes=256), 0.85)),
    "hnsw": ((Hnsw(search_width=16), 0.7), (Hnsw(search_width=64), 0.9), (Hnsw(search_width=256), 0.95)),
    "ivf_pq, 32 bytes": ((IvfPq(refine=None), 0.4),),
    "ivf_pq, 32 bytes and vectors": ((IvfPq(), 0.6), (IvfPq(refine=1000), 0.7)),
    "ivf_pq, 64 bytes": ((IvfPq(code_bytes=64, refine=None), 0.5),),
    "ivf_pq, 64 bytes and vectors": ((IvfPq(code_bytes=64), 0.7),),
}


def gallery(decay: float) -> np.ndarray:
    """Unit vectors around random centres; standard deviation i^-decay in dimension i."""
    generator = np.random.default_rng(0)
    deviations = np.arange(1, DIM + 1, dtype=np.float32) ** np.float32(-decay)
    centres = generator.standard_normal((ROWS // 10, DIM), dtype=np.float32)
    labels = generator.integers(len(centres), size=ROWS)
    noise = generator.standard_normal((ROWS, DIM), dtype=np.float32)
    vectors = (centres[labels] + 0.9 * noise) * deviations
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def name_of(setting: Setting) -> str:
    if isinstance(setting, Flat):
        return "flat"
    if isinstance(setting, Hnsw):
        return f"hnsw, width {setting.search_width}"
    if isinstance(setting, IvfPq):
        refined = f", {setting.refine} refined" if setting.refine is not None else ""
        return f"ivf_pq, {setting.code_bytes} bytes{refined}"
    return f"ivf, {setting.probes} probes"


def timed(make: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return make(), time.process_time() - start


def search_with(index: Index, queries: np.ndarray, query_ids: np.ndarray) -> object:
    prepare(index.engine, index.setting)  # the previous search may have used another setting of this engine
    return search(index, queries, query_ids, K)


def measure(spectrum: str) -> tuple[dict[str, dict[str, float]], bool]:
    """The measurements of each index by name, and whether all have the listed recall."""
    vectors, ids = gallery(SPECTRA[spectrum]), np.arange(ROWS)
    query_ids = np.sort(np.random.default_rng(1).permutation(ROWS)[:QUERIES])
    queries = vectors[query_ids]
    searches: dict[str, Callable[[], object]] = {
        EXACT: lambda: exact_search(queries, query_ids, vectors, ids, K)
    }
    rows: dict[str, dict[str, float]] = {EXACT: {"recall": 1.0, "bytes": 4 * DIM, "build": 0.0}}
    required: dict[str, float] = {}
    for settings in INDEXES.values():
        index, seconds = timed(lambda settings=settings: build(vectors, ids, settings[0][0]))
        size = len(faiss.serialize_index(index.engine)) / ROWS
        for setting, bound in settings:
            name, index = name_of(setting), index._replace(setting=setting)
            prepare(index.engine, setting)
            measured = recall(index, vectors, ids, vectors, ids, K, QUERIES, 1)
            rows[name] = {"recall": measured.at_k, "bytes": size, "build": seconds}
            searches[name], required[name] = partial(search_with, index, queries, query_ids), bound
    seconds_of = interleave(searches, ROUNDS)
    print(f"{ROWS:,} rows, {DIM} dimensions, {spectrum} spectrum")
    for name, row in rows.items():
        row["query_ms"] = 1000 * statistics.median(seconds_of[name]) / QUERIES
        row["times_faster"] = ratio(seconds_of, EXACT, name)
        print(
            f"{name:28} recall@{K} {row['recall']:.3f}  {row['bytes']:6.0f} bytes/vector"
            f"  build {row['build'] * 1e6 / ROWS:7.1f} us/vector"
            f"  query {row['query_ms']:7.3f} ms  {row['times_faster']:6.1f}x"
        )
    return rows, all(rows[name]["recall"] >= bound for name, bound in required.items())


def main() -> int:
    results = {spectrum: measure(spectrum) for spectrum in SPECTRA}
    indexes = {spectrum: rows for spectrum, (rows, _) in results.items()}
    save(
        f"approximate-{ROWS}",
        {"rows": ROWS, "dim": DIM, "queries": QUERIES, "k": K, "indexes": indexes},
        {
            f"{name}, {spectrum} spectrum / exact": Ratio(row["times_faster"])
            for spectrum, rows in indexes.items()
            for name, row in rows.items()
        },
    )
    return 0 if all(reached for _, reached in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
