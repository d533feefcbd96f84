"""What the checks of all kinds of parts share: the sizes of inputs, and how a difference is reported."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from unseen.runtime.errors import UserError

DIM, CLASSES, SAMPLES, CHANNELS, SIDE = 8, 4, 60, 16, 4
PRECISION = "Use full_precision and without_autocast of unseen.runtime.device.precision."
FINITE = "Divide by 1 at least, and add a small number below a root and to a norm."
ALONE = "Combine positions or channels, never images."


class Failed(UserError):
    """A part does not have a property. `what` states the difference, `remedy` what to do."""


def require(holds: bool | Tensor, what: str, remedy: str) -> None:
    if not holds:
        raise Failed(what, remedy)


def require_equal(first: Tensor, second: Tensor, what: str, remedy: str, tolerance: float = 1e-7) -> None:
    equal = torch.allclose(first, second, rtol=tolerance, atol=tolerance)
    require(equal, f"{what} differ by {(first - second).abs().max().item():.3g}.", remedy)


def require_trained(module: nn.Module, start_may_be_zero: bool = False) -> None:
    """start_may_be_zero: of a network, whose residual branches may start with the factor 0."""
    parameters = [(name, each.grad) for name, each in module.named_parameters() if each.requires_grad]
    idle = [name for name, each in parameters if each is None or not (start_may_be_zero or each.any())]
    require(not idle, f"No gradient reaches {', '.join(idle)}.", "Use it in forward, or make it a buffer.")


def built(build: Callable[[], nn.Module]) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build().train()


def drawn_images(count: int, side: int) -> Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(1))
