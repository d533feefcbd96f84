"""Memory of each stage under a hard limit: `python -m tests.torture.memory --rows N`.

A zip archive of a user with as many images and classes as SOP, half of the classes for training: pictures of
12 x 12 random pixels, a small network, embeddings of 512 dimensions. Each stage runs as a process under the
limits SMALL on its private memory (RLIMIT_DATA), in which it finishes or ends with one message; a traceback
and an end without a message are violations. If it did not finish, it runs under the limit PEAK, in which it
must. Ray, which runs the trials of a sweep, does not start under SMALL, so `sweep` runs under PEAK only.
`unseen evaluate` runs on VECTORS drawn vectors, as many as SOP has images, compared with each other.
"""

import argparse
import contextlib
import os
import resource
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from tests.torture import results
from tests.torture.miniature import Project, project
from unseen.data.embeddings import write as write_embeddings

STATE = results.RESULTS / "memory.json"
POLL = 0.02  # seconds between two reads of the memory of a process
GIB = 2**30
SMALL = (600 * 2**20, GIB)  # bytes: for the libraries, and for a part of the data
CELL = ("folder", "ms", "0")
FOLDS = (("folder", "ms", "1", "0"), ("folder", "ms", "2", "0"))
IMAGES_PER_CLASS = 120_053 / 22_634  # of SOP
SIDE = 12  # pixels
VECTORS, DIM, EVALUATE_PEAK = 120_053, 512, 2.0  # rows, dimensions, GiB
# stage -> its arguments, and its largest private memory in GiB
PEAK: dict[str, tuple[tuple[str, ...], float]] = {
    "resolve": ((), 2.0),
    "ingest": (("folder",), 2.0),
    "train": (CELL, 3.0),
    "export": (CELL, 3.0),
    "evaluate": (CELL, 3.0),
    "analyze": (CELL, 3.0),
    "train_fold": (FOLDS[0], 3.0),
    "export_fold": (FOLDS[0], 3.0),
    "ensemble": (CELL[:2], 4.0),
    "sweep": (CELL[:2], 3.0),
    "report": ((), 2.0),
}
ONLY_PEAK = ("sweep",)


def write_images(path: Path, count: int) -> None:
    """A zip archive with a folder of pictures of random pixels for each class."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, SIDE * SIDE * 3), np.uint8)
    size = 54 + pixels.shape[1]
    head = struct.pack("<2sIII", b"BM", size, 0, 54)
    head += struct.pack("<IiiHHIIiiII", 40, SIDE, SIDE, 1, 24, 0, pixels.shape[1], 2835, 2835, 0, 0)
    classes = max(2, round(count / IMAGES_PER_CLASS))
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for row in range(count):
            archive.writestr(f"c{row % classes:05d}/{row}.bmp", head + pixels[row].tobytes())


def enlarge(path: Path) -> None:
    """Sets the data set of params.yaml, 512 dimensions, and the settings of a full run with a sweep and an
    ensemble."""
    yaml = YAML()
    params = yaml.load(path.read_text(encoding="utf-8"))
    params["run"]["datasets"] = ["folder"]
    recipe = params["datasets"].pop("parts")["recipe"]
    recipe["dim"] = DIM
    params["sweep"]["ms"]["space"] = {"dim": {"grid": [DIM // 2, DIM]}}
    recipe["backbone"]["pretrained"] = False
    recipe["training"]["validate_every"] = 4
    params["datasets"]["folder"] = {"source": {"path": "data/raw/folder/images.zip"}, "recipe": recipe}
    params["evaluate"].update({"map": True})
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
        peak, ended = 0.0, 0
        while not ended:
            peak = max(peak, peak_gib(process.pid))
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            time.sleep(POLL)
    text = output.read_text(encoding="utf-8", errors="replace")
    return {
        "status": os.waitstatus_to_exitcode(status),
        "peak_gib": peak,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "errors": [line for line in text.splitlines() if line.startswith(("error:", "Traceback"))],
        "end": text[-500:],
    }


def peak_gib(process: int) -> float:
    """The largest resident memory of a process until now, 0 after its end. (`ru_maxrss` is at least that of
    the process that started it.)"""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**20
    return 0.0


def measured(copy: Project, command: Sequence[str], peak: float, only_large: bool = False) -> dict[str, Any]:
    """The results of a command under each small limit until it finishes and, if it does not or with
    `only_large`, under `peak` GiB. Raises RuntimeError if these do not suffice."""
    answers: dict[str, str] = {}
    violations: dict[str, str] = {}
    cpu_seconds = 0.0
    for limit in (*(() if only_large else SMALL), int(peak * GIB)):
        last = run(copy, command, limit)
        cpu_seconds += last["cpu_seconds"]
        if last["status"] == 0:
            break
        name, errors = f"{limit / GIB:.2g} GiB", last["errors"]
        answers[name] = "; ".join(errors) or f"status {last['status']}"
        if len(errors) != 1 or not errors[0].startswith("error:"):
            violations[name] = f"status {last['status']}: {last['end']}"
    else:
        raise RuntimeError(f"{command} fails with {peak:g} GiB: {last['end']}")
    return {
        "limit_gib": limit / GIB,
        "peak_gib": round(last["peak_gib"], 2),
        "cpu_seconds": cpu_seconds,
        "answers": answers,
        "violations": violations,
    }


def campaign(rows: int, vectors: int, state: Path) -> None:
    """Measures everything again."""
    with project(several=True) as copy:
        enlarge(copy.path / "params.yaml")
        write_images(copy.path / "data/raw/folder/images.zip", rows)
        size = f"{rows:,} images"
        for stage, (arguments, peak) in PEAK.items():
            if stage == "ensemble":  # reads all members
                for member in ("train_fold", "export_fold"):
                    run(copy, (f"unseen.stages.{member}", *FOLDS[1]), int(PEAK[member][1] * GIB))
            command = (f"unseen.stages.{stage}", *arguments)
            measure(copy, stage, command, peak, size, state, only_large=stage in ONLY_PEAK)
        file = copy.scratch / "vectors.arrow"
        draw = np.random.default_rng(0)
        drawn = draw.standard_normal((vectors, DIM), dtype=np.float32)
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        write_embeddings(file, np.arange(vectors), np.arange(vectors) // 5, drawn)
        command = ("unseen", "evaluate", str(file))
        drawn_size = f"{vectors:,} vectors"
        measure(copy, "unseen evaluate", command, EVALUATE_PEAK, drawn_size, state, only_large=True)


def measure(
    copy: Project,
    name: str,
    command: Sequence[str],
    peak: float,
    size: str,
    state: Path,
    only_large: bool = False,
) -> None:
    """Runs a command and records its row."""
    module = "unseen.cli.evaluation" if name == "unseen evaluate" else f"unseen.stages.{name}"
    modules = (module, "unseen.data.ingest.sources.folder")
    identity = {"digest": results.version(modules), "commit": results.commit()}
    values = measured(copy, command, peak, only_large)
    results.record(state, name, {**identity, "rows": size, **values})
    violation = f", {len(values['violations'])} violations" if values["violations"] else ""
    peak_and_time = f"{values['peak_gib']} GiB, {values['cpu_seconds']:.0f} CPU s"
    print(f"{name}, {size}: {peak_and_time}{violation}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory of each stage at the size of a published set.")
    parser.add_argument("--rows", type=int, default=120_053, help="images of the stages")
    parser.add_argument("--vectors", type=int, default=VECTORS, help="of unseen evaluate")
    parser.add_argument("--state", type=Path, default=STATE, help="file of the results")
    arguments = parser.parse_args()
    campaign(arguments.rows, arguments.vectors, arguments.state)


if __name__ == "__main__":
    main()
