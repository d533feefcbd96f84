"""The overhead of Ray in a training: wall and CPU seconds of one worker without Ray and of two workers under
Ray.

The loop only performs the imports of a training. A process without Ray that does the same is measured first.
Then two workers start on a private cluster: with few helper processes (pipeline/cluster/lean_trainer.py), and
with Ray's trainer. The output lists the CPU seconds of Ray's processes by name. Only Ray's trainer starts
PlacementGroupCleaner, DatasetManager and _AutoscalingCoordinatorActor; lean_trainer.py saves their time. The
script exits with 1 if its training takes more CPU seconds than that of Ray's trainer.
"""

import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
from timing import Ratio, save

from unseen.cluster import train_workers
from unseen.cluster.training import run_training
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.stages import TrainSettings
from unseen.methods.settings import Recipe
from unseen.runtime.files import write_json
from unseen.runtime.stage import ROOT
from unseen.training.job import job_of

DATASET, METHOD = "parts", "ms"
INTERVAL = 0.2  # seconds between two samples of the processes


def recipe() -> Recipe:
    return Definitions(Params(ROOT / "params.yaml")).layers(DATASET, METHOD).recipe()


def loop(job: Any, rank: int, world: int, device: Any, report: Any = None) -> dict[str, float]:
    """Performs the imports of the training, and writes a log."""
    import_module("unseen.training.loop")
    if rank == 0:
        write_json(job.outputs.log, {})
    return {}


class Processes:
    """CPU seconds, by name, of the processes that this one starts within the block."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[int, float], float] = {}
        self.names: dict[tuple[int, float], str] = {}
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Processes":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.done.wait(INTERVAL):
            for process in psutil.Process().children(recursive=True):
                try:
                    times, line = process.cpu_times(), process.cmdline()
                    key = process.pid, process.create_time()
                except psutil.Error:
                    continue
                self.seconds[key] = times.user + times.system
                self.names[key] = line[0] if line and line[0].startswith("ray::") else "others of Ray"

    def by_name(self) -> dict[str, float]:
        total: dict[str, float] = defaultdict(float)
        for key, seconds in self.seconds.items():
            total[re.sub(r"\s+", "", self.names[key])] += seconds
        return dict(sorted(total.items(), key=lambda item: -item[1]))


def measure(title: str, workers: int) -> tuple[float, float]:
    """Prints and returns the wall and CPU seconds of a training with `workers` workers."""
    with tempfile.TemporaryDirectory() as directory, Processes() as processes:
        settings = TrainSettings(workers=workers, gpu="no")
        job = job_of(DATASET, METHOD, 0, recipe(), Path(directory), settings)
        start, cpu = time.perf_counter(), time.process_time()
        run_training(job, settings, loop)
        wall, this_process = time.perf_counter() - start, time.process_time() - cpu
        assert job.outputs is not None
        log = json.loads(job.outputs.log.read_text())
    by_name = processes.by_name()
    total = this_process + sum(by_name.values())
    print(f"{title}: {wall:5.1f} s wall, {total:5.1f} s CPU")
    for part in ("ray_seconds", "train_seconds"):
        if part in log:
            print(f"    {part} {log[part]}")
    for name, seconds in by_name.items():
        print(f"    {seconds:5.1f} s CPU  {name}")
    return wall, total


def main() -> int:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import unseen.training.loop"], check=True, cwd=ROOT)
    print(f"process without Ray with the loop's imports: {time.perf_counter() - start:5.1f} s wall")
    alone = measure("1 worker, in this process", 1)
    few = measure("2 workers, few helper processes", 2)
    from ray.train.torch import TorchTrainer

    train_workers.trainer_class = lambda private, elastic=False: TorchTrainer
    usual = measure("2 workers, Ray's TorchTrainer", 2)
    save(
        "ray_overhead",
        {"one worker": alone, "few helper processes": few, "Ray's TorchTrainer": usual},
        {
            "few helper processes / Ray's TorchTrainer, CPU": Ratio(few[1] / usual[1], at_most=1.0),
            "few helper processes / Ray's TorchTrainer, wall": Ratio(few[0] / usual[0]),
        },
    )
    return int(few[1] > usual[1])


if __name__ == "__main__":
    sys.exit(main())
