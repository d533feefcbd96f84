"""The coded residual transform compared with its matrix products alone, which are a lower bound, and with its
definition.

The heads of the paper: 80 images, an 8 x 8 map of 512 channels (MiT-B2 at 227 px), 64 prototypes; one branch,
and both branches (D = 128 and 1024) that share all but their last layers, with a network per prototype and
with one network for all. Forward and backward to features and weights, one thread. The definition computes
all differences x_j - c_k in one tensor.
"""

import statistics
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from timing import Ratio, gemm_gflops, interleave, ratio, save
from torch import Tensor

from unseen.networks.coded_residual import CodedResidualBranches, CodedResidualTransform, coded_residuals

REQUIRED = 1.2
ROUNDS = 7
B, L, SIDE, M, HIDDEN, D = 80, 512, 8, 64, 128, (128, 1024)
TRANSFORM, DEFINITION = "transform", "definition"
HEADS = {  # name: shared branches, shared network
    "one branch": (False, False),
    "one branch, one network": (False, True),
    "shared branches": (True, False),
    "shared branches, one network": (True, True),
}


def main() -> int:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    features = torch.randn(B, L, SIDE, SIDE, requires_grad=True)
    prototypes = CodedResidualTransform(L, M, D[0], HIDDEN).prototypes
    weights, residuals = torch.rand(B, M, SIDE**2), torch.randn(B, M, L)
    positions, centres = features.detach().flatten(2), prototypes.detach()

    def transform() -> None:
        prototypes.grad = features.grad = None  # as in a training step: do not add to the last gradient
        coded_residuals(features.flatten(2), prototypes).backward(residuals)

    def products() -> None:
        _ = centres @ positions, weights @ positions.transpose(1, 2)
        _ = (
            residuals @ positions,
            residuals.transpose(1, 2) @ weights,
            centres.T @ weights,
            weights @ positions.transpose(1, 2),
        )

    def definition() -> None:
        residuals_by_definition(features.flatten(2).transpose(1, 2), prototypes).backward(residuals)

    candidates = {TRANSFORM: transform, _products(TRANSFORM): products}
    for name, (branches, network) in HEADS.items():
        candidates[name] = _step(features, branches, network)
        candidates[_products(name)] = _head_products(products, residuals, branches, network)
    seconds = interleave(candidates, ROUNDS)
    seconds |= interleave({TRANSFORM + " again": transform, DEFINITION: definition}, 1)
    to_definition = ratio(seconds, DEFINITION, TRANSFORM + " again")
    to_products = {name: ratio(seconds, name, _products(name)) for name in (TRANSFORM, *HEADS)}
    milliseconds = {name: 1000 * statistics.median(times) for name, times in seconds.items()}
    for name, value in milliseconds.items():
        print(f"{name:45s} {value:8.1f} ms")
    for name, value in to_products.items():
        print(f"{name} / its products {value:.2f} (at most {REQUIRED})")
    print(f"definition / transform {to_definition:.0f}")
    save(
        "crt_head",
        {
            "milliseconds": milliseconds,
            "over_products": to_products,
            "definition_over_transform": to_definition,
            "required": REQUIRED,
            "control_gflops": gemm_gflops(),
        },
        {f"{name} / its products": Ratio(to_products[name], at_most=REQUIRED) for name in HEADS},
    )
    return int(max(to_products[name] for name in HEADS) > REQUIRED)


def _products(name: str) -> str:
    return f"{name}, its products"


def _step(features: Tensor, branches: bool, network: bool) -> Callable[[], None]:
    """Forward and backward of one head."""
    count = 2 if branches else 1
    head = CodedResidualBranches(L, (M,) * count, D[:count], (HIDDEN,) * count, branches, network)
    gradients = [torch.randn(B, dim) for dim in D[:count]]

    def step() -> None:
        head.zero_grad()
        features.grad = None
        torch.autograd.backward(head(features), gradients)

    return step


def _head_products(
    products: Callable[[], None], residuals: Tensor, branches: bool, network: bool
) -> Callable[[], None]:
    """The matrix products of that head: those of the transform, two layers forward, and both operands of both
    layers backward."""
    dim = sum(D) if branches else D[0]
    networks, rows = (1, B * M) if network else (M, B)
    inputs = residuals.flatten(0, 1)[None] if network else residuals.transpose(0, 1)
    first, hidden = torch.randn(networks, L, HIDDEN), torch.randn(networks, rows, HIDDEN)
    second = torch.randn(networks * HIDDEN, dim)
    concatenated, output = torch.randn(B, networks * HIDDEN), torch.randn(B, dim)

    def all_products() -> None:
        products()
        _ = inputs @ first, hidden @ first.transpose(1, 2), inputs.transpose(1, 2) @ hidden
        _ = concatenated @ second, output @ second.T, concatenated.T @ output

    return all_products


def residuals_by_definition(features: Tensor, prototypes: Tensor) -> Tensor:
    """r_k = sum_j softplus(x_j . c_k) (x_j - c_k), features (B, P, L)."""
    differences = features[:, None] - prototypes[None, :, None]
    correlation = torch.einsum("bpl,ml->bmp", features, prototypes)
    return (F.softplus(correlation)[..., None] * differences).sum(2)


if __name__ == "__main__":
    sys.exit(main())
