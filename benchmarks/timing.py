"""The measurement of all benchmarks: CPU seconds of this process, candidates in random order within each
round, ratios within a round.

On a shared machine wall time is not reproducible, and CPU time is noisy. Candidates of the same round have
similar noise; the median of the ratios over the rounds removes most of the rest. As a script this module
prints a control: the present speed of a matrix product on one core.
"""

import json
import os
import random
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from unseen.runtime.files import write_json

RESULTS = Path(__file__).parent / "results"


class Ratio(NamedTuple):
    """A measured ratio, and its limit if it has one."""

    value: float
    at_least: float | None = None
    at_most: float | None = None

    def content(self) -> dict[str, float]:
        limits = {"at_least": self.at_least, "at_most": self.at_most}
        return {"ratio": float(f"{self.value:.3g}")} | {k: v for k, v in limits.items() if v is not None}


def interleave(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each candidate in each round, after a first round that is not counted. Each round has
    another random order, from a fixed seed."""
    order = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for round_number in range(rounds + 1):
        names = list(candidates)
        order.shuffle(names)
        for name in names:
            start = time.process_time()
            candidates[name]()
            if round_number:
                seconds[name].append(time.process_time() - start)
    return seconds


def ratio(seconds: dict[str, list[float]], slow: str, fast: str) -> float:
    """The time of `slow` divided by that of `fast`: the median over the rounds."""
    return statistics.median(a / b for a, b in zip(seconds[slow], seconds[fast], strict=True))


def save(name: str, results: dict[str, object], ratios: Mapping[str, Ratio] | None = None) -> None:
    """Writes benchmarks/results/<name>.json, which git ignores.

    Variable RATIOS, which `make bench` sets, is a file in git: `ratios` replace those of `name` there.
    """
    write_json(RESULTS / f"{name}.json", results)
    if ratios and (path := os.environ.get("RATIOS")):
        ours = {key: ratio.content() for key, ratio in ratios.items()}
        others = json.loads(Path(path).read_text(encoding="utf-8")) if Path(path).is_file() else {}
        write_json(Path(path), dict(sorted({**others, name: ours}.items())))


def gemm_gflops() -> float:
    """GFLOP per CPU second of a 1024 x 1024 x 1024 product in float32 on one thread."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        a = torch.rand(1024, 1024)
        times = interleave({"control": lambda: a @ a}, 5)["control"]
    finally:
        torch.set_num_threads(threads)
    return 2 * 1024**3 / statistics.median(times) / 1e9


if __name__ == "__main__":
    print(f"control: {gemm_gflops():.0f} GFLOP/s, 1024^3 float32 on one core")
