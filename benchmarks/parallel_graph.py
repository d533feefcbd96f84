"""A graph of independent stages that sleep: `unseen run -j SLOTS` against `dvc repro`, in seconds of wall
time.

Stages that sleep need no processor, so that the ratio shows the cost of the scheduler, of DVC and of its
locks. 40 stages of 15 s on 8 slots must run at least 6 times faster than in sequence; 8 is the limit, and a
stage must cost at most 0.3 CPU seconds. `--slots 2 4 8` measures the curve of the speed-up. `--seconds 1.5`
is a quick look with the same graph, without a target of the ratio; `--stages 2000 --seconds 0` shows the CPU
seconds of a large graph.
"""

import argparse
import contextlib
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import Ratio, save

from dvc_parallel.parallel import run
from unseen.runtime.cores import usable_cores

TARGET = 6.0
TARGET_CPU = 0.3  # seconds of a stage
TARGET_SECONDS = 15.0  # of a stage, from which the target applies
DVC_YAML = """
stages:
  sleep:
    matrix:
      number: ${numbers}
    cmd: exec sh stage.sh ${item.number}
    deps:
    - stage.sh
    outs:
    - out-${item.number}
"""


def dvc(*arguments: str) -> str:
    """The standard output of DVC."""
    command = [sys.executable, "-m", "dvc", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def project(directory: Path, stages: int, seconds: float) -> None:
    """A DVC project without git in `directory`, which becomes the working directory."""
    directory.mkdir()
    os.chdir(directory)
    (directory / "dvc.yaml").write_text(DVC_YAML, encoding="utf-8")
    (directory / "params.yaml").write_text(f"numbers: {list(range(stages))}\n", encoding="utf-8")
    (directory / "stage.sh").write_text(f"sleep {seconds}; echo $1 > out-$1\n", encoding="utf-8")
    dvc("init", "-q", "--no-scm")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stages", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=TARGET_SECONDS, help="sleep of each stage")
    parser.add_argument("--slots", type=int, nargs="+", default=[8], help="each is measured")
    arguments = parser.parse_args()
    stages, seconds = arguments.stages, arguments.seconds
    here = Path.cwd()
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    print(f"{stages} stages of {seconds:g} s, {usable_cores()} cores")
    with tempfile.TemporaryDirectory(prefix="parallel-graph-") as directory:
        parallel = {
            slots: in_parallel(Path(directory, f"parallel-{slots}"), stages, seconds, slots)
            for slots in arguments.slots
        }
        project(Path(directory, "sequence"), stages, seconds)
        start = time.perf_counter()
        dvc("repro", "-q")
        sequence = time.perf_counter() - start
        os.chdir(here)
    print(f"    in sequence {sequence:6.1f} s")
    ratios = {}
    for slots, (duration, processor) in parallel.items():
        has_target = seconds >= TARGET_SECONDS and slots >= 8
        ratios[slots] = Ratio(sequence / duration, at_least=TARGET if has_target else None)
        note = (
            f"   target {TARGET:g}: {'missed' if missed(ratios[slots]) else 'reached'}" if has_target else ""
        )
        print(f"    {slots:3d} slots    {duration:6.1f} s   ratio {ratios[slots].value:.2f}{note}")
        print(f"                 {processor:6.3f} CPU seconds a stage, target {TARGET_CPU:g}")
    save(
        "parallel_graph",
        {
            "stages": stages,
            "seconds": seconds,
            "cores": usable_cores(),
            "sequence": sequence,
            "parallel": {str(slots): duration for slots, (duration, _) in parallel.items()},
            "cpu_per_stage": {str(slots): processor for slots, (_, processor) in parallel.items()},
        },
        {f"sequence / {slots} slots": ratio for slots, ratio in ratios.items()},
    )
    too_much = any(processor > TARGET_CPU for _, processor in parallel.values())
    sys.exit(too_much or any(missed(ratio) for ratio in ratios.values()))


def cpu() -> float:
    """CPU seconds of this process and of its children that ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def in_parallel(directory: Path, stages: int, seconds: float, slots: int) -> tuple[float, float]:
    """Seconds of a parallel run of a new project in `directory`, and its CPU seconds for each stage."""
    project(directory, stages, seconds)
    start, before = time.perf_counter(), cpu()
    with contextlib.redirect_stdout(io.StringIO()):
        status = run([], [], slots, lambda stage: {}, lambda: None, Path("logs"))
    duration, processor = time.perf_counter() - start, (cpu() - before) / stages
    assert status == 0
    changed = json.loads(dvc("status", "--json"))
    assert changed == {}, changed
    return duration, processor


def missed(ratio: Ratio) -> bool:
    return ratio.at_least is not None and ratio.value < ratio.at_least


if __name__ == "__main__":
    main()
