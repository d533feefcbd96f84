"""Memory of each stage under a hard limit: `python -m tests.torture.memory --rows N`.

Drawn images of 5 per class, half of the classes for training; embeddings have 512 dimensions. Each stage runs
as a process under the limit PEAK on its private memory (RLIMIT_DATA), below which it must finish. Before, it
runs under TOO_SMALL, in which it finishes or ends with a message. `unseen evaluate` runs on VECTORS drawn
vectors, as many as SOP has images, compared with each other.
"""

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from pipeline.data.embeddings import write as write_embeddings
from tests.torture import results
from tests.torture.miniature import Project, project

STATE = results.RESULTS / "memory.json"
GIB = 2**30
TOO_SMALL = 600 * 2**20  # bytes: for the libraries, and less than the data
CELL = ("parts", "ms", "0")
VECTORS, DIM, EVALUATE_PEAK = 120_053, 512, 2.0  # rows, dimensions, GiB
# stage -> its arguments, and its largest private memory in GiB
PEAK: dict[str, tuple[tuple[str, ...], float]] = {
    "resolve": ((), 2.0),
    "ingest": (("parts",), 2.0),
    "train": (CELL, 3.0),
    "export": (CELL, 3.0),
    "evaluate": (CELL, 3.0),
    "analyze": ((), 3.0),
    "report": ((), 2.0),
}


def enlarge(path: Path, rows: int) -> None:
    """Sets the number of images of params.yaml, and 512 dimensions."""
    yaml = YAML()
    params = yaml.load(path.read_text(encoding="utf-8"))
    classes = rows // 10
    block = params["datasets"]["parts"]
    block["source"] |= {"train_classes": classes, "test_classes": rows // 5 - classes, "images_per_class": 5}
    block["recipe"]["dim"] = 512
    block["recipe"]["training"]["validate_every"] = 4
    params["evaluate"].update({"bootstrap": 1000, "map": True})
    params["analyze"].update({"pairs": 1_000_000, "transfer_splits": 100})
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(params, file)


def run(copy: Project, command: Sequence[str], limit: int) -> dict[str, Any]:
    """Runs a module under a limit. Returns its status, peak, CPU seconds and, if it fails, its messages."""

    def set_limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    output = copy.scratch / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=copy.path,
            env=copy.environment(),
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=set_limit,
        )
        _, status, usage = os.wait4(process.pid, 0)
    text = output.read_text(encoding="utf-8", errors="replace")
    return {
        "status": os.waitstatus_to_exitcode(status),
        "peak_gib": usage.ru_maxrss / 2**20,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "errors": [line for line in text.splitlines() if line.startswith(("error:", "Traceback"))],
        "end": text[-500:],
    }


def measured(copy: Project, command: Sequence[str], peak: float, only_large: bool = False) -> dict[str, Any]:
    """The results of a command under both limits. Raises RuntimeError if `peak` GiB do not suffice."""
    small = None if only_large else run(copy, command, TOO_SMALL)
    large = run(copy, command, int(peak * GIB))
    if large["status"] != 0:
        raise RuntimeError(f"{command} fails with {peak:g} GiB: {large['end']}")
    result = {
        "limit_gib": peak,
        "peak_gib": round(large["peak_gib"], 2),
        "cpu_seconds": large["cpu_seconds"],
        "too_small": "not run",
    }
    if small is not None:
        message = "; ".join(small["errors"]) or f"status {small['status']}"
        result["too_small"] = "finished" if small["status"] == 0 else message
        result["cpu_seconds"] += small["cpu_seconds"]
    return result


def campaign(rows: int, vectors: int, state: Path) -> None:
    """Measures everything again."""
    recorded = results.load(state)
    with project() as copy:
        enlarge(copy.path / "params.yaml", rows)
        for stage, (arguments, peak) in PEAK.items():
            values = measured(copy, (f"stages.{stage}", *arguments), peak)
            result = results.current(recorded, stage, (f"stages.{stage}", "pipeline.ingest.sources.parts"))
            result |= {"commit": results.commit(), "rows": f"{rows:,} images", **values}
            results.save(state, recorded)
        file = copy.scratch / "vectors.arrow"
        draw = np.random.default_rng(0)
        drawn = draw.standard_normal((vectors, DIM), dtype=np.float32)
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        write_embeddings(file, np.arange(vectors), np.arange(vectors) // 5, drawn)
        command = ("unseen", "evaluate", str(file), "--bootstrap", "100")
        values = measured(copy, command, EVALUATE_PEAK, only_large=True)  # a run takes many CPU minutes
        result = results.current(recorded, "unseen evaluate", ("unseen.evaluation",))
        result |= {"commit": results.commit(), "rows": f"{vectors:,} vectors", **values}
        results.save(state, recorded)


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory of each stage at the size of a published set.")
    parser.add_argument("--rows", type=int, default=120_055, help="images of the stages")
    parser.add_argument("--vectors", type=int, default=VECTORS, help="of unseen evaluate")
    parser.add_argument("--state", type=Path, default=STATE, help="file of the results")
    arguments = parser.parse_args()
    campaign(arguments.rows, arguments.vectors, arguments.state)


if __name__ == "__main__":
    main()
