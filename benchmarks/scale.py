"""Costs of a training that grow with the data set, beside the images themselves: synthetic indexes of 10^5,
10^6 and 10^7 rows with ten images of a class on average.

    python benchmarks/scale.py [--rows 100000 1000000 10000000] [--steps 100]

For each size, in a process of its own: seconds and memory to open the shards, to hold out classes, to make
the P x K sampler (batch of 128, K = 4) and the shuffled one, the first step of an epoch, and one later step.
The shards are empty files: no image is read. A plan whose cost per step grows with the number of classes or
images is quadratic over an epoch; the cost per image of an epoch must not grow by more than MOST from the
smallest to the largest size.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from timing import Ratio, save

from unseen.data.class_split import hold_out
from unseen.data.sampler import make_sampler
from unseen.data.settings import Batch
from unseen.data.shard_schema import SCHEMA_VERSION
from unseen.data.shards import Shards
from unseen.methods.settings import parse_recipe
from unseen.runtime.digest import sha256_of

PER_CLASS, PER_SHARD = 10, 10_000
BATCH = {"classes": 32, "images_per_class": 4}
MOST = 4.0  # the caches of a core hold 10^5 rows and not 10^7


def write(directory: Path, rows: int) -> None:
    """The index and manifest of a data set with `rows` images, a tenth of them of test classes."""
    generator = np.random.default_rng(0)
    classes = rows // PER_CLASS
    labels = np.sort(
        np.concatenate([np.repeat(np.arange(classes), 2), generator.integers(0, classes, rows - 2 * classes)])
    )
    names = pa.array([f"class {label:08d}" for label in range(classes)])
    numbers = np.arange(rows)
    text = pa.array(numbers).cast(pa.string())
    splits = pa.array(["train", "test"]).take(pa.array((labels >= classes * 9 // 10).astype(np.int32)))
    side = pa.array(np.full(rows, 256, np.int32))
    yes = pa.array(np.ones(rows, bool))
    table = pa.table(
        {
            "row_id": pa.array(numbers),
            "label": pa.array(labels),
            "class_name": names.take(pa.array(labels)),
            "split": splits,
            "source": pc.binary_join_element_wise("photos/of/a/shop/", text, ".jpg", ""),
            "sha256": pc.utf8_lpad(text.cast(pa.large_string()), 64, "0"),
            "width": side,
            "height": side,
            "shard": pa.array((numbers // PER_SHARD).astype(np.int32)),
            "batch": pa.array((numbers % PER_SHARD // 256).astype(np.int32)),
            "offset": pa.array((numbers % 256).astype(np.int32)),
            "is_query": yes,
            "is_gallery": yes,
        }
    )
    pq.write_table(table, directory / "index.parquet")
    shards = [f"shard-{number:05d}.arrow" for number in range(-(-rows // PER_SHARD))]
    for name in shards:
        (directory / name).write_bytes(b"ARROW1")
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "counts": {},
        "class_names": names.to_pylist(),
        "shards": dict.fromkeys(shards, ""),
        "shard_bytes": dict.fromkeys(shards, 6),
        "shard_rows": {name: min(PER_SHARD, rows - n * PER_SHARD) for n, name in enumerate(shards)},
        "index": sha256_of(directory / "index.parquet"),
    }
    (directory / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def measure(directory: Path, steps: int) -> dict[str, float]:
    """CPU seconds of each part, in this process, and the peak of its memory."""
    figures: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any], times: int = 1) -> Any:
        start = time.process_time()
        result = work()
        figures[name] = (time.process_time() - start) / times
        return result

    base = _peak()
    shards = timed("open", lambda: Shards(directory))
    figures["open_mib"] = _peak() - base
    recipe = parse_recipe({"method": "baseline", "training": {"validation_share": 0.1}})
    split = timed("hold_out", lambda: hold_out(shards, recipe.training.validation_share, 0))
    for sampling in ("classes", "shuffled"):
        batch = Batch.model_validate({**BATCH, "sampling": sampling})
        sampler = timed(f"{sampling}_make", lambda batch=batch: make_sampler(split.labels, batch, 0))
        timed(f"{sampling}_first_step", lambda sampler=sampler: sampler.draw(0))
        some = min(steps, sampler.steps_per_epoch - 1)
        later = np.linspace(1, sampler.steps_per_epoch - 1, some).astype(int).tolist()
        timed(
            f"{sampling}_step",
            lambda sampler=sampler, later=later: [sampler.draw(step) for step in later],
            some,
        )
        figures[f"{sampling}_steps"] = sampler.steps_per_epoch
        figures[f"{sampling}_per_image"] = (
            figures[f"{sampling}_first_step"] / sampler.steps_per_epoch + figures[f"{sampling}_step"]
        ) / batch.size
    figures["peak_mib"] = _peak()
    return figures


def _peak() -> float:
    """MiB. The maximum of getrusage would include the process that started this one."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)  # of the process of one size
    options = parser.parse_args()
    if options.directory is not None:
        print(json.dumps(measure(options.directory, options.steps)))
        return 0
    results: dict[int, dict[str, float]] = {}
    for rows in options.rows:
        with tempfile.TemporaryDirectory() as directory:
            write(Path(directory), rows)
            command = [sys.executable, __file__, "--steps", str(options.steps), "--directory", directory]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        results[rows] = json.loads(output.splitlines()[-1])
        print(f"{rows:,} rows", flush=True)
        for name, value in results[rows].items():
            print(f"  {name:24} {value:14.6g}", flush=True)
    first, last = results[options.rows[0]], results[options.rows[-1]]
    growth = {
        name: last[f"{name}_per_image"] / first[f"{name}_per_image"] for name in ("classes", "shuffled")
    }
    save(
        "scale",
        {str(rows): figures for rows, figures in results.items()},
        {f"{name} sampling, growth": Ratio(value, at_most=MOST) for name, value in growth.items()},
    )
    print(
        "  ".join(f"{name} sampling: {value:.1f} times the cost per image" for name, value in growth.items())
    )
    return 0 if max(growth.values()) <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
