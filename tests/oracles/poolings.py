"""Transport pooling in float64: the convex problem, its limit, its scalar root, and the iteration and
gradient of the paper."""

import math

import numpy as np
import torch
from scipy.optimize import brentq, linprog, minimize
from torch import Tensor


def costs(features: Tensor, prototypes: Tensor) -> Tensor:
    """c (M, P): distances of clipped prototypes and clipped features (P, L) of one image, pair by pair."""

    def clipped(u: Tensor) -> Tensor:
        return u / u.norm() if u.norm() > 1 else u

    return torch.stack(
        [torch.stack([(clipped(w) - clipped(f)).norm() for f in features]) for w in prototypes]
    )


def root(cost: np.ndarray, ratio: float, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """(pi, rho) from the only unknown, by Brent's method."""
    positions = cost.shape[1]
    logs = [
        math.log(sum(math.exp(-epsilon * (c - column.min())) for c in column)) - epsilon * column.min()
        for column in cost.T
    ]

    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))

    def excess(tau: float) -> float:
        return sum(sigmoid(tau + b) for b in logs) / positions - ratio

    centre = math.log(ratio / (1 - ratio))
    low, high = centre - max(logs) - 1, centre - min(logs) + 1
    tau = brentq(excess, low, high, xtol=1e-14, rtol=1e-15, maxiter=500)
    selected = np.array([sigmoid(tau + b) for b in logs])
    share = np.exp(-epsilon * (cost - cost.min(0)))
    return share / share.sum(0) * selected / positions, (1 - selected) / positions


def iteration(cost: Tensor, ratio: float, epsilon: float, steps: int) -> tuple[Tensor, Tensor]:
    """Proposition 4.2 with its missing inverse: (pi, rho) after `steps` updates."""
    positions = cost.shape[1]
    kernel = torch.exp(-epsilon * cost)
    s, t = kernel.sum(0), torch.ones((), dtype=cost.dtype)
    for _ in range(steps):
        rho = 1 / (positions * (1 + t * s))
        t = ratio / (s * rho).sum()
    return t * kernel * rho, rho


def iteration_gradient(
    pi: Tensor, rho: Tensor, ratio: float, epsilon: float, by_pi: Tensor, by_rho: Tensor
) -> Tensor:
    """Proposition 4.3 with its bracket corrected: dL/dc from dL/dpi and dL/drho at the solution."""
    positions = len(rho)
    q = rho * by_rho + (pi * by_pi).sum(0)
    eta = (rho * by_rho).sum() - positions * (q * rho).sum()
    bracket = q - eta / (1 - ratio - positions * (rho * rho).sum()) * rho
    return -epsilon * (pi * by_pi - positions * pi * bracket)


def convex_program(cost: np.ndarray, ratio: float, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """(pi, rho) from a general solver of the objective and the constraints."""
    prototypes, positions = cost.shape

    def split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x[:-positions].reshape(prototypes, positions), x[-positions:]

    def objective(x: np.ndarray) -> float:
        return float((cost * split(x)[0]).sum() + (x * np.log(x)).sum() / epsilon)

    def slope(x: np.ndarray) -> np.ndarray:
        return np.concatenate([cost.ravel(), np.zeros(positions)]) + (np.log(x) + 1) / epsilon

    rows = np.concatenate([np.tile(np.eye(positions), prototypes), np.eye(positions)], axis=1)
    mass = np.concatenate([np.ones(prototypes * positions), np.zeros(positions)])[None]
    initial = np.concatenate(
        [
            np.full(prototypes * positions, ratio / (prototypes * positions)),
            np.full(positions, (1 - ratio) / positions),
        ]
    )
    constraint = {
        "type": "eq",
        "fun": lambda x: np.concatenate([rows @ x - 1 / positions, mass @ x - ratio]),
        "jac": lambda _: np.concatenate([rows, mass]),
    }
    solution = minimize(
        objective,
        initial,
        jac=slope,
        bounds=[(1e-12, 1)] * len(initial),
        constraints=[constraint],
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-15},
    )
    assert solution.success, solution.message
    return split(solution.x)


def linear_program(cost: np.ndarray, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """(pi, rho) without entropy, the limit of large epsilon."""
    prototypes, positions = cost.shape
    rows = np.concatenate([np.tile(np.eye(positions), prototypes), np.eye(positions)], axis=1)
    mass = np.concatenate([np.ones(prototypes * positions), np.zeros(positions)])[None]
    solution = linprog(
        np.concatenate([cost.ravel(), np.zeros(positions)]),
        A_eq=np.concatenate([rows, mass]),
        b_eq=np.concatenate([np.full(positions, 1 / positions), [ratio]]),
    )
    assert solution.success, solution.message
    return solution.x[:-positions].reshape(prototypes, positions), solution.x[-positions:]


def greedy_k_center(points: list[list[float]], initial: list[list[float]], count: int) -> list[int]:
    """`count` times the point that is farthest from all chosen ones."""
    centres, chosen = list(initial), []
    for _ in range(count):
        free = [i for i in range(len(points)) if i not in chosen]
        best = max(free, key=lambda i: min(math.dist(points[i], c) for c in centres))
        chosen.append(best)
        centres.append(points[best])
    return chosen
