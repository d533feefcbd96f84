"""Seconds that Ray adds to a training: from the call to the first line of the loop, and from its last line
to the return.

They are compared with a bare process that imports what the loop imports.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pipeline.cluster.training import run_training
from pipeline.config import Params, Recipe, TrainSettings, resolve
from pipeline.runtime.files import write_json
from pipeline.runtime.stage import ROOT
from pipeline.training.job import job_of

DATASET, METHOD = "parts", "ms"


def recipe() -> Recipe:
    return resolve(Params(ROOT / "params.yaml"), DATASET, METHOD)


def loop(job: Any, rank: int, world: int, device: Any, report: Any = None) -> dict[str, float]:
    """Imports what the training imports, and writes a log."""
    import pipeline.training.loop  # noqa: F401

    if rank == 0:
        write_json(job.outputs.log, {})
    return {}


def main() -> None:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import pipeline.training.loop"], check=True, cwd=ROOT)
    print(f"bare process with the loop's imports: {time.perf_counter() - start:5.1f} s")
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as directory:
            job = job_of(DATASET, METHOD, 0, recipe(), Path(directory))
            start = time.perf_counter()
            run_training(job, TrainSettings(workers=workers), loop)
            whole = time.perf_counter() - start
            assert job.outputs is not None
            log = json.loads(job.outputs.log.read_text())
        parts = "  ".join(f"{name} {seconds:.1f}" for name, seconds in log["ray_seconds"].items())
        print(f"{workers} worker{'s' * (workers > 1)}: {whole:5.1f} s of which Ray {sum(log['ray_seconds'].values()):.1f} ({parts})")


if __name__ == "__main__":
    main()
