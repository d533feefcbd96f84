"""Memory of each stage at the size of a published set: `python -m tests.torture.memory --rows 120055`.

Drawn images of 5 per class, half of the classes for training; embeddings have 512 dimensions. Each stage runs
as a process under the hard limit PEAK on its private memory (RLIMIT_DATA), which it must not exceed. Then it
runs under TOO_SMALL. Then it must end with one message, without a traceback.
"""

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.torture import results
from tests.torture.miniature import Project, project

STATE = results.RESULTS / "memory.json"
PACKAGES = ("pipeline", "stages")
GIB = 2**30
TOO_SMALL = 600 * 2**20  # bytes: for the libraries, and less than the data
CELL = ("parts", "ms", "0")
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


def run(copy: Project, stage: str, arguments: tuple[str, ...], limit: int) -> dict[str, Any]:
    """Runs a stage under a limit. Returns its status, peak, CPU seconds and, if it fails, its messages."""

    def set_limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    output = copy.scratch / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", f"stages.{stage}", *arguments],
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


def campaign(rows: int, state: Path) -> None:
    """Measures the stages that the results lack. A stage whose inputs do not exist runs again."""
    recorded = results.load(state)
    result = results.current(recorded, f"{rows:,} images", PACKAGES)
    stages = result.setdefault("stages", {})
    with project() as copy:
        enlarge(copy.path / "params.yaml", rows)
        for stage, (arguments, peak) in PEAK.items():
            small = run(copy, stage, arguments, TOO_SMALL)
            measured = run(copy, stage, arguments, int(peak * GIB))
            stages[stage] = {
                "limit_gib": peak,
                "peak_gib": round(measured["peak_gib"], 2),
                "cpu_seconds": measured["cpu_seconds"],
                "finished": measured["status"] == 0,
                "too_small": "finished"
                if small["status"] == 0
                else "; ".join(small["errors"]) or small["end"],
            }
            results.save(state, recorded)
            print(stage, stages[stage], "" if measured["status"] == 0 else measured["end"], flush=True)
            if measured["status"] != 0:
                return


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory of each stage at the size of a published set.")
    parser.add_argument("--rows", type=int, default=120_055)
    parser.add_argument("--state", type=Path, default=STATE, help="file of the results")
    arguments = parser.parse_args()
    campaign(arguments.rows, arguments.state)


if __name__ == "__main__":
    main()
