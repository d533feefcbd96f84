"""GSP figure 7, left: the backward pass of autograd grows with k, that of the closed form does not."""

from pathlib import Path

import torch

from tools.docs.backward_time import SOLVERS, backward_seconds, draw


def test_only_autograd_takes_longer_with_more_iterations() -> None:
    cost = 2 * torch.rand(8, 16, 25, generator=torch.Generator().manual_seed(0))
    seconds = backward_seconds(cost, (2, 200), rounds=5)
    assert {name: {k: len(times) for k, times in by_k.items()} for name, by_k in seconds.items()} == {
        name: {2: 5, 200: 5} for name in SOLVERS
    }
    growth = {name: min(times[200]) / min(times[2]) for name, times in seconds.items()}
    assert growth["autograd"] > 5
    assert growth["closed form"] < growth["autograd"] / 3


def test_the_solvers_have_the_same_gradient_after_convergence() -> None:
    cost = 2 * torch.rand(2, 4, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gradients = []
    for solve in SOLVERS.values():
        costs = cost.clone().requires_grad_()
        plan, rest = solve(costs, 0.3, 5.0, 200)
        (plan.square().sum() + rest.square().sum()).backward()
        gradients.append(costs.grad)
    torch.testing.assert_close(*gradients)


def test_the_figure_has_a_curve_per_solver(tmp_path: Path) -> None:
    seconds = {
        "autograd": {1: [0.001] * 4, 100: [0.1] * 4},
        "closed form": {1: [0.002] * 4, 100: [0.003] * 4},
    }
    for name in ("a", "b"):
        draw(tmp_path / name, seconds)
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert (tmp_path / "b.svg").read_text(encoding="utf-8") == text
    assert (tmp_path / "b.pdf").read_bytes() == (tmp_path / "a.pdf").read_bytes()
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    for label in ("autograd", "closed form", "iterations k"):
        assert label in text
