"""Duration of the backward pass of the transport over the iterations k of its solver (GSP figure 7, left).

python -m tools.docs.backward_time figure-7-left

Both curves have the plan after k steps of proposition 4.2. Autograd goes back through every step. The
gradient of proposition 4.3 needs the plan alone, so that its duration does not depend on k. A duration is CPU
time of this process on one thread, from the gradients of plan and rest to that of the costs of 32 images with
49 positions and 64 prototypes. The paper does not state the size of its problem or its machine.
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from unseen.poolings.transport_iteration import ClosedForm, iterate
from unseen.report.svg import save

COST_SHAPE = (32, 64, 49)  # B, M, P
RATIO, EPSILON = 0.3, 5.0  # mu, epsilon
ITERATIONS = (1, 10, 25, 50, 100, 200)  # k; the paper trains with 100
ROUNDS = 15  # the point is the median, the bar the quartiles
Solver = Callable[[Tensor, float, float, int], tuple[Tensor, Tensor]]
SOLVERS: dict[str, Solver] = {"autograd": iterate, "closed form": ClosedForm.apply}
Seconds = dict[str, dict[int, list[float]]]  # solver -> k -> CPU seconds of the rounds


def backward_seconds(
    cost: Float[Tensor, "B M P"], iterations: tuple[int, ...] = ITERATIONS, rounds: int = ROUNDS
) -> Seconds:
    """CPU seconds of the backward pass of each solver for each k. The solvers alternate within a round, so
    that the load of the machine affects them alike. A first round is not counted."""
    seconds: Seconds = {name: {k: [] for k in iterations} for name in SOLVERS}
    for round_number in range(rounds + 1):
        for k in iterations:
            for name, solve in SOLVERS.items():
                costs = cost.detach().clone().requires_grad_()
                plan, rest = solve(costs, RATIO, EPSILON, k)
                loss = plan.square().sum() + rest.square().sum()
                start = time.process_time()
                loss.backward()
                if round_number:
                    seconds[name][k].append(time.process_time() - start)
    return seconds


def draw(path: Path, seconds: Seconds) -> None:
    """Writes <path>.svg and <path>.pdf: milliseconds over k."""
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = figure.subplots()
    for name, times in seconds.items():
        low, middle, high = zip(*(_quartiles(values) for values in times.values()), strict=True)
        axes.plot(list(times), middle, marker="o", label=name)
        axes.fill_between(list(times), low, high, alpha=0.25, linewidth=0)
    axes.set(xlabel="iterations k", ylabel="backward pass, CPU milliseconds", yscale="log")
    axes.legend()
    save(figure, path)


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile, in milliseconds."""
    first, second, third = statistics.quantiles(values, n=4)
    return 1e3 * first, 1e3 * second, 1e3 * third


def main(path: Path) -> None:
    torch.set_num_threads(1)
    cost = 2 * torch.rand(
        COST_SHAPE, generator=torch.Generator().manual_seed(0)
    )  # distances in the unit ball
    seconds = backward_seconds(cost)
    print(f"{'k':>4}" + "".join(f"  {name:>14}" for name in seconds) + "   CPU ms of the backward pass")
    for k in ITERATIONS:
        print(f"{k:4d}" + "".join(f"  {_quartiles(times[k])[1]:14.3f}" for times in seconds.values()))
    draw(path, seconds)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
