"""Pooling weights of a toy problem: the exact partial transport against the smoothed one (GSP figure 2).

python -m tools.docs.toy_transport figure-2.svg

A map has 10 x 10 features in two dimensions, of which some are near one of three prototypes. Both problems
minimise the cost of transporting the share mu of the features to prototypes (pipeline/poolings/transport.py);
the exact one has no entropy and is a linear program, which scipy solves. Pooling weights are (1/P - rho) /
mu. The paper does not print its features, so the picture has its form and not its values.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from matplotlib import rc_context
from matplotlib.figure import Figure
from scipy.optimize import linprog

from unseen.poolings.transport import TransportPooling

SIDE = 10  # positions per side of the map
RATIO = 0.3  # mu
EPSILONS = (5.0, 20.0, 100.0)
PROTOTYPES = np.array([[0.8, 0.0], [-0.4, 0.7], [-0.4, -0.7]])


def toy_features(seed: int = 0) -> Float[np.ndarray, "P 2"]:
    """A disc of features near the prototypes in a background near the origin, within the unit ball."""
    generator = np.random.default_rng(seed)
    y, x = np.divmod(np.arange(SIDE**2), SIDE) - np.array([[4.5], [4.5]])
    background = 0.12 * generator.standard_normal((SIDE**2, 2))
    part = PROTOTYPES[generator.integers(0, len(PROTOTYPES), SIDE**2)] + background
    features = np.where((np.hypot(x, y) < 3.5)[:, None], part, background)
    return features / np.maximum(1, np.linalg.norm(features, axis=1, keepdims=True))


def exact_weights(features: Float[np.ndarray, "P 2"], ratio: float) -> Float[np.ndarray, " P"]:
    """minimise <c, pi> subject to rho_j + sum_i pi_ij = 1/P, sum_ij pi_ij = mu, rho, pi >= 0."""
    count, prototypes = len(features), len(PROTOTYPES)
    cost = np.linalg.norm(PROTOTYPES[:, None] - features, axis=2)  # (M, P)
    by_feature = np.hstack([np.eye(count), np.tile(np.eye(count), prototypes)])
    mass = np.hstack([np.zeros((1, count)), np.ones((1, prototypes * count))])
    solution = linprog(
        np.concatenate([np.zeros(count), cost.ravel()]),
        A_eq=np.vstack([by_feature, mass]),
        b_eq=np.concatenate([np.full(count, 1 / count), [ratio]]),
    )
    assert solution.success, solution.message
    weights: np.ndarray = (1 / count - solution.x[:count]) / ratio
    return weights


def smoothed_weights(
    features: Float[np.ndarray, "P 2"], ratio: float, epsilon: float
) -> Float[np.ndarray, " P"]:
    """The weights of the pooling."""
    columns = torch.from_numpy(features.T.copy())[None]
    active, prototypes = torch.tensor(True), torch.from_numpy(PROTOTYPES)
    weights: np.ndarray = TransportPooling.apply(columns, prototypes, active, ratio, epsilon)[2][0].numpy()
    return weights


def draw(path: Path) -> None:
    """Writes the maps of weights: of the linear program, and of each epsilon."""
    features = toy_features()
    maps = {"linear program": exact_weights(features, RATIO)}
    maps |= {f"epsilon {value:g}": smoothed_weights(features, RATIO, value) for value in EPSILONS}
    with rc_context({"svg.hashsalt": "unseen", "svg.fonttype": "none"}):
        _figure(maps).savefig(path, metadata={"Date": None})


def _figure(maps: dict[str, np.ndarray]) -> Figure:
    figure = Figure(figsize=(2.6 * len(maps), 2.9), layout="constrained")
    for axes, (title, weights) in zip(figure.subplots(1, len(maps)), maps.items(), strict=True):
        image = axes.imshow(weights.reshape(SIDE, SIDE), vmin=0, vmax=1 / (RATIO * SIDE**2), cmap="viridis")
        distance = np.abs(weights - maps["linear program"]).sum() / 2
        axes.set(title=title, xlabel=f"differs by {100 * distance:.0f}% of the weight", xticks=[], yticks=[])
    figure.colorbar(image, label="pooling weight")
    return figure


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
