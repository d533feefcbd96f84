"""How everything here is measured: CPU seconds of this process, candidates in shuffled turns, ratios within a
round.

A shared machine makes wall time useless and CPU time noisy. Candidates that take turns see the same noise;
the median of the ratios of the rounds cancels what is left of it. Run as a script this prints the control:
what a plain matrix product reaches on one core just now.
"""

import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from pipeline.runtime.files import write_json

RESULTS = Path(__file__).parent / "results"


def interleave(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each candidate in each round, after one call to warm up. The order is shuffled anew in
    every round, by a fixed seed."""
    order = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds + 1):
        names = list(candidates)
        order.shuffle(names)
        for name in names:
            start = time.process_time()
            candidates[name]()
            if turn:
                seconds[name].append(time.process_time() - start)
    return seconds


def ratio(seconds: dict[str, list[float]], slow: str, fast: str) -> float:
    """How many times `slow` takes the time of `fast`: the median over the rounds."""
    return statistics.median(a / b for a, b in zip(seconds[slow], seconds[fast], strict=True))


def save(name: str, results: dict[str, object]) -> None:
    """Writes benchmarks/results/<name>.json."""
    write_json(RESULTS / f"{name}.json", results)


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
