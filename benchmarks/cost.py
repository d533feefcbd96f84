"""The predicted cost of a training step (training/cost.py) against a training: peak memory and seconds.

    python benchmarks/cost.py [methods ...] [--batch 8]

Each method of step.py is trained on the CPU in a process of its own, in float32 on one thread, with the
loader and the photographs of step.py. Memory: the highest resident memory of a few steps, without what the
process had before it built the method. Seconds: CPU seconds of a step, the mean of three after a first one.
Other programs change them less than wall time. The prediction is measured in the same process, after the
training. Both ratios are prediction / training, and are to be within 15% of 1.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from step import CLASSES, IMAGES, METHODS, _recipe, _run, _train, write_photographs
from timing import Ratio, save

from unseen.config.document import Params
from unseen.training import cost
from unseen.training.reproducible import reproducible

WITHIN = 0.15
STEPS = 3
_CPU = torch.device("cpu")
_STATUS = Path("/proc/self/status")


def main() -> int:
    parser = argparse.ArgumentParser(description="predicted against measured cost of a training step")
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(_measured(options.methods[0], options.batch)))
        return 0
    heads = ("GB predicted", "measured", "ratio", "s predicted", "measured", "ratio")
    print(" " * 14 + "".join(f"{head:>14s}" for head in heads))
    rows: dict[str, dict[str, float]] = {}
    ratios: dict[str, float] = {}
    for name in options.methods:
        command = [sys.executable, __file__, name, "--child", f"--batch={options.batch}"]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        row = json.loads(output.splitlines()[-1])
        rows[name] = row
        line = f"{name:14s}"
        for part, scale in (("memory", 1e9), ("seconds", 1)):
            predicted, measured = row[f"predicted {part}"], row[part]
            ratios[f"{name}: {part}"] = predicted / measured
            line += f"{predicted / scale:14.2f}{measured / scale:14.2f}{predicted / measured:14.2f}"
        print(line, flush=True)
    content = {"batch": options.batch, "methods": rows}
    save("cost", content, {name: Ratio(value, 1 - WITHIN, 1 + WITHIN) for name, value in ratios.items()})
    return int(any(abs(value - 1) > WITHIN for value in ratios.values()))


def _measured(name: str, batch: int) -> dict[str, float]:
    """Predicted and measured bytes and CPU seconds of a step of one method."""
    recipe = _recipe(Params(Path("params.yaml")), name, batch, compiled=False)
    training = recipe.training.model_copy(update={"precision": "float32", "threads": 1})
    recipe = recipe.model_copy(update={"training": training})
    predicted = cost.resident(cost.step_cost(recipe, CLASSES, CLASSES * IMAGES))
    with reproducible(_CPU, 1), tempfile.TemporaryDirectory() as directory:
        write_photographs(Path(directory, "shards"))
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = _kilobytes("VmRSS")
        run = _run(recipe, name, Path(directory), _CPU)
        with run.background:
            _train(run, 1)
            began = time.process_time()
            _train(run, STEPS)
            seconds = (time.process_time() - began) / STEPS
        memory = 1024 * (_kilobytes("VmHWM") - before)
        del run
        expected = cost.measured_seconds(recipe, CLASSES, CLASSES * IMAGES, predicted, _CPU)
    return {
        "predicted memory": predicted.memory(recipe.batch.size),
        "memory": memory,
        "predicted seconds": expected,
        "seconds": seconds,
    }


def _kilobytes(field: str) -> int:
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1])


if __name__ == "__main__":
    sys.exit(main())
