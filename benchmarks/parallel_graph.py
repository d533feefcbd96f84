"""A graph of independent stages that sleep: `unseen run -j SLOTS` against `dvc repro`, in seconds of wall
time.

Stages that sleep need no processor, so that the ratio shows the cost of the scheduler, of DVC's processes and
of DVC's lock. Each stage costs one start of DVC, about a second of processor time: on a machine with few
cores, short stages wait for it. 40 stages of 15 s on 8 slots must run at least 6 times faster than in
sequence; 8 is the limit. `--seconds 1.5` is a quick look with the same graph, without a target.
"""

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from timing import Ratio, save

from pipeline.runtime.cores import usable_cores
from pipeline.scheduling.parallel import run_parallel
from pipeline.scheduling.scheduler import State

TARGET = 6.0
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


class NoCluster:
    """No stage needs Ray."""

    def environment(self, stage: str) -> Mapping[str, str]:
        return {}

    def end(self) -> None:
        pass


def dvc(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "dvc", *arguments], check=True, stdout=subprocess.DEVNULL)


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
    parser.add_argument("--slots", type=int, default=8)
    arguments = parser.parse_args()
    stages, seconds, slots = arguments.stages, arguments.seconds, arguments.slots
    here = Path.cwd()
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    with tempfile.TemporaryDirectory(prefix="parallel-graph-") as directory:
        project(Path(directory, "parallel"), stages, seconds)
        start = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            states = run_parallel([], [], slots, NoCluster())
        parallel = time.perf_counter() - start
        assert list(states.values()) == [State.DONE] * stages
        dvc("status")
        project(Path(directory, "sequence"), stages, seconds)
        start = time.perf_counter()
        dvc("repro", "-q")
        sequence = time.perf_counter() - start
        os.chdir(here)
    ratio = sequence / parallel
    print(f"{stages} stages of {seconds:g} s, {slots} slots, {usable_cores()} cores")
    print(f"    in sequence {sequence:6.1f} s   in parallel {parallel:6.1f} s   ratio {ratio:.2f}")
    has_target = seconds >= TARGET_SECONDS and slots >= 8
    save(
        "parallel_graph",
        {
            "stages": stages,
            "seconds": seconds,
            "slots": slots,
            "cores": usable_cores(),
            "sequence": sequence,
            "parallel": parallel,
            "ratio": ratio,
        },
        {f"sequence / {slots} slots": Ratio(ratio, at_least=TARGET if has_target else None)},
    )
    if has_target:
        print(f"    target {TARGET:g}: {'reached' if ratio >= TARGET else 'missed'}")
        sys.exit(ratio < TARGET)


if __name__ == "__main__":
    main()
