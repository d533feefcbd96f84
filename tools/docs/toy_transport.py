"""Pooling weights of a toy problem: the exact partial transport against the smoothed one (GSP figure 2).

python -m tools.docs.toy_transport figure-2

The problem of the paper (section 4.2): a map of 10 x 10 features in three dimensions, which are the colours
of an image. Half of the positions are red or blue, the colours of the two prototypes; the other half is
green. The true share is mu = 0.5, and the problem has mu = 0.2. Both problems minimise the cost of
transporting the share mu of the features to prototypes (pipeline/poolings/transport.py). The exact one has no
entropy and is a linear program, which scipy solves: it discards red and blue positions. The smoothed one
keeps them. Pooling weights are (1/P - rho) / mu.

The paper does not print the arrangement, the colours of single positions and epsilon. Here a red and a blue
square are on green, and normal noise makes the nearest positions unique: with equal colours the linear
program has many solutions.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from scipy.optimize import linprog

from unseen.poolings.transport import TransportPooling
from unseen.report.svg import save

SIDE = 10  # positions per side of the map
COUNT = SIDE**2
RATIO = 0.2  # mu
EPSILONS = (100.0, 20.0, 5.0, 1.0)
PROTOTYPES = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])  # red, blue
NOISE = 0.03  # standard deviation


def of_prototypes() -> Float[np.ndarray, "P 2"]:
    """One where a position has the colour of a prototype: a red square above a blue one."""
    masks = np.zeros((SIDE, SIDE, 2))
    masks[0:5, 0:5, 0] = masks[5:10, 5:10, 1] = 1
    return masks.reshape(COUNT, 2)


def toy_features(seed: int = 0) -> Float[np.ndarray, "P 3"]:
    """Red, blue and green features with noise, within [0, 1]."""
    red, blue = of_prototypes().T
    colours = np.stack([red, 1 - red - blue, blue], axis=1)
    noise = NOISE * np.random.default_rng(seed).standard_normal(colours.shape)
    return np.clip(colours + noise, 0, 1)


def exact_weights(features: Float[np.ndarray, "P D"], ratio: float) -> Float[np.ndarray, " P"]:
    """minimise <c, pi> subject to rho_j + sum_i pi_ij = 1/P, sum_ij pi_ij = mu, rho, pi >= 0 (P1)."""
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
    features: Float[np.ndarray, "P D"], ratio: float, epsilon: float
) -> Float[np.ndarray, " P"]:
    """The weights of the pooling (P2)."""
    columns = torch.from_numpy(features.T.copy())[None]
    active, prototypes = torch.tensor(True), torch.from_numpy(PROTOTYPES)
    weights: np.ndarray = TransportPooling.apply(columns, prototypes, active, ratio, epsilon)[2][0].numpy()
    return weights


def described(weights: Float[np.ndarray, " P"]) -> str:
    """How many red and blue positions have at least half of an equal share of the weight, and the weight of
    all green ones."""
    near = of_prototypes().any(axis=1)
    count = int((weights[near] >= 0.5 / near.sum()).sum())
    green = 100 * weights[~near].sum()
    return f"uses {count} of {near.sum()} red and blue\n{green:.0f}% of the weight on green"


def draw(path: Path) -> None:
    """Writes <path>.svg and <path>.pdf: features, prototypes, weights of both problems."""
    features = toy_features()
    maps = {"linear program": exact_weights(features, RATIO)}
    maps |= {f"epsilon {value:g}": smoothed_weights(features, RATIO, value) for value in EPSILONS}
    save(_figure(features, maps), path)


def _figure(features: np.ndarray, maps: dict[str, np.ndarray]) -> Figure:
    figure = Figure(figsize=(2.3 * (len(maps) + 1) + 1.1, 3.0), layout="constrained")
    widths = [1, 0.12, *[1] * len(maps)]
    image, prototypes, *axes = figure.subplots(1, len(widths), width_ratios=widths)
    image.imshow(features.reshape(SIDE, SIDE, 3))
    image.set(title="features", xlabel=f"true share 0.5\nmu {RATIO:g}")
    prototypes.imshow(PROTOTYPES[:, None])
    prototypes.set(ylabel="prototypes")
    prototypes.yaxis.set_label_position("right")
    for each, (title, weights) in zip(axes, maps.items(), strict=True):
        drawn = each.imshow(weights.reshape(SIDE, SIDE), vmin=0, vmax=1 / (RATIO * COUNT), cmap="Greys")
        each.set(title=title, xlabel=described(weights))
    for each in (image, prototypes, *axes):
        each.set(xticks=[], yticks=[])
    figure.colorbar(drawn, label="pooling weight")
    return figure


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
