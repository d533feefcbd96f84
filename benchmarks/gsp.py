"""The GSP layer compared with the 100 iterations of the paper: CPU time of forward and backward on one
thread, and the number of kernels that a GPU would launch.

32 images, 64 prototypes, 128 channels, mu = 0.3, epsilon = 5. All candidates start from the same feature map
(B, L, H, W), clip, compute distances, solve and sum, and back-propagate to the map and to the prototypes. The
output lists the required ratios. Exits with 1 if a ratio is too small.

    closed form          as in the authors' code: distances by autograd, 100 iterations on the row sums,
                         gradient of proposition 4.3 on the plan
    autograd, hoisted    autograd through 100 iterations on the row sums
    autograd, literal    autograd through 100 iterations on the matrix t exp(-epsilon c), as proposition 4.2
    is
                         printed
"""

import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
from timing import Ratio, gemm_gflops, interleave, ratio, save
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from unseen.poolings.gsp import Gsp

BATCH, DIM, PROTOTYPES, RATIO, EPSILON, ITERATIONS = 32, 128, 64, 0.3, 5.0, 100
# Below the smallest ratio of several runs on a busy machine: 1.70 to 2.63, 3.54 to 4.40, 7.28 to 12.79.
REQUIRED = {(49, "closed form"): 1.5, (49, "autograd, hoisted"): 3.0, (49, "autograd, literal"): 6.0}
# Operations that neither compute nor copy. Every other operation is at least one kernel.
VIEWS = {
    *("view", "_unsafe_view", "view_as", "transpose", "t", "permute", "expand", "unsqueeze", "squeeze"),
    *("slice", "select", "split", "unbind", "as_strided", "detach", "alias", "set_"),
    *("empty", "empty_like", "empty_strided", "new_empty", "_local_scalar_dense", "is_same_size"),
}
Turn = Callable[[], object]
Plan = Callable[[Tensor], tuple[Tensor, Tensor]]


def iterate(cost: Tensor) -> tuple[Tensor, Tensor]:
    """Proposition 4.2 with the row sums computed outside of the loop: (pi, rho) of costs (B, M, P)."""
    kernel = torch.exp(-EPSILON * cost)
    mass, t = kernel.sum(1), torch.ones(len(cost), 1)
    for _ in range(ITERATIONS):
        rho = 1 / (cost.shape[2] * (1 + t * mass))
        t = RATIO / (mass * rho).sum(1, keepdim=True)
    return t.unsqueeze(1) * kernel * rho.unsqueeze(1), rho


def iterate_literally(cost: Tensor) -> tuple[Tensor, Tensor]:
    """Proposition 4.2 as printed."""
    kernel, t = torch.exp(-EPSILON * cost), torch.ones(len(cost), 1, 1)
    for _ in range(ITERATIONS):
        rho = 1 / (cost.shape[2] * (1 + (t * kernel).sum(1, keepdim=True)))
        t = RATIO / (kernel * rho).sum((1, 2), keepdim=True)
    return t * kernel * rho, rho.squeeze(1)


class ClosedForm(torch.autograd.Function):
    """The iteration with the gradient of proposition 4.3, on residual and plan as one (B, M + 1, P)
    matrix."""

    @staticmethod
    def forward(ctx: Any, cost: Tensor) -> Tensor:
        pi, rho = iterate(cost)
        plan = torch.cat([rho.unsqueeze(1), pi], dim=1)
        ctx.save_for_backward(plan)
        return plan

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (plan,) = ctx.saved_tensors
        count, weighed = plan.shape[2], plan * gradient
        rho, by_rho = plan[:, :1], weighed[:, :1]
        q = weighed.sum(1, keepdim=True)
        eta = by_rho.sum(2, keepdim=True) - count * (q * rho).sum(2, keepdim=True)
        shift = eta / (1 - RATIO - count * rho.square().sum(2, keepdim=True))
        return (-EPSILON * (weighed - count * (q - shift * rho) * plan))[:, 1:]


def closed_form(cost: Tensor) -> tuple[Tensor, Tensor]:
    plan = ClosedForm.apply(cost)
    return plan[:, 1:], plan[:, 0]


def peer(plan: Plan, prototypes: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The layer in autograd with the given solver."""

    def pool(x: Tensor) -> tuple[Tensor, Tensor]:
        flat = x.flatten(2).transpose(1, 2)
        short = flat / flat.norm(dim=2, keepdim=True).clamp(min=1)
        centers = prototypes / prototypes.norm(dim=1, keepdim=True).clamp(min=1)
        pi, rho = plan(torch.cdist(centers.expand(len(x), -1, -1), short))
        return torch.einsum("bp,bpl->bl", (1 / flat.shape[1] - rho) / RATIO, flat), pi.sum(2) / RATIO

    return pool


def candidates(positions: int) -> dict[str, Turn]:
    side = round(positions**0.5)
    layer = Gsp(DIM, PROTOTYPES, RATIO, EPSILON, 0, 1024)
    layer.initialized.fill_(True)
    features = (0.1 * torch.randn(BATCH, DIM, side, side)).requires_grad_()

    def turn(pool: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Turn:
        def step() -> None:
            features.grad = layer.prototypes.grad = None
            pooled, attributes = pool(features)
            (pooled.square().sum() + attributes.square().sum()).backward()

        return step

    return {
        "layer": turn(layer),
        "closed form": turn(peer(closed_form, layer.prototypes)),
        "autograd, hoisted": turn(peer(iterate, layer.prototypes)),
        "autograd, literal": turn(peer(iterate_literally, layer.prototypes)),
    }


class KernelCount(TorchDispatchMode):
    """Counts the operations that reach the dispatcher, except views and allocations. A GPU would launch a
    kernel for each."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = operation.overloadpacket.__name__
        # On a CPU the solver stops when all thresholded errors are zero. On a GPU it takes all its steps.
        if name == "any":
            self.count -= 1
            return torch.tensor(True)
        self.count += name not in VIEWS
        return operation(*args, **(kwargs or {}))


def kernels(turn: Turn) -> int:
    turn()
    with KernelCount() as counter:
        turn()
    return counter.count


def main() -> int:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    results: dict[str, object] = {"gemm_gflops": round(gemm_gflops(), 1)}
    # After this allocation the allocator keeps freed memory of this size, as it does during a training.
    torch.zeros(30 * 2**18)
    too_slow, ratios = [], {}
    print(f"{'positions':>9}  {'':18} {'CPU ms':>7} {'layer is faster':>16} {'kernels':>8}")
    for positions in (49, 196):
        turns = candidates(positions)
        seconds = interleave(
            {name: lambda turn=turn: [turn() for _ in range(4)] for name, turn in turns.items()}, 15
        )
        for name, turn in turns.items():
            times, launches = ratio(seconds, name, "layer"), kernels(turn)
            required = REQUIRED.get((positions, name))
            if name != "layer":
                ratios[f"{positions} positions: {name}"] = Ratio(times, at_least=required)
            milliseconds = 1e3 * statistics.median(seconds[name]) / 4
            results[f"{positions} positions: {name}"] = {
                "ms": round(milliseconds, 3),
                "times_layer": round(times, 2),
                "kernels": launches,
            }
            note = f"  (required {required}x)" if required else ""
            print(f"{positions:9d}  {name:18} {milliseconds:7.2f} {times:15.2f}x {launches:8d}{note}")
            if required and times < required:
                too_slow.append(name)
    save("gsp", results, ratios)
    if too_slow:
        print(f"below the required ratio: {', '.join(too_slow)}")
    return 1 if too_slow else 0


if __name__ == "__main__":
    sys.exit(main())
