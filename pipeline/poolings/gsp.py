"""Generalized sum pooling: an average over the positions that are similar to a prototype (GSP sec. 4.1).

    v = sum_j p_j f_j,          p_j = a_j / (P mu)
    z_i = 1/mu sum_j pi_ij      attributes: share of the transported mass at each prototype, summing to 1
    a_j in (0, 1): share of position j that is transported, mean_j a_j = mu

The plan pi is that of `transport.py` between features and prototypes, both clipped to the unit ball. The
features in the average are not clipped. mu = 1 transports everything, which is average pooling.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unseen.poolings.greedy_k_center import greedy_k_center
from unseen.poolings.map_pooling import positions
from unseen.poolings.transport import TransportPooling
from unseen.poolings.transport_iteration import iteration_pooling
from unseen.poolings.unit_ball import clip
from unseen.runtime.device.host import HostValue


class Gsp(nn.Module):
    """The pooling, its prototypes and their initialization.

    Until the prototypes are initialised the layer is average pooling, and the attributes are defined but have
    no gradient (in the released code they are zero). `observe` initialises them: after `warmup` training
    steps it collects `initialization_memory` pooled features, and the prototypes become the features that
    cover these best. Both depend only on the training steps, and the state dict contains the whole state.
    Deviation: the released PyTorch code replaces the Parameter, so that an existing optimiser never updates
    the prototypes. Here it remains the same object.
    """

    memory: Tensor
    filled: Tensor
    observed: Tensor
    initialized: Tensor

    def __init__(
        self,
        channels: int,
        prototypes: int = 64,
        transport_ratio: float = 0.3,
        epsilon: float = 5.0,
        warmup: int = 0,
        initialization_memory: int = 1024,
        solver: str = "newton",
        iterations: int = 100,
        gradient: str = "closed_form",
        bound: float | None = None,
    ) -> None:
        """transport_ratio: mu in (0, 1]. epsilon: sharpness of the transport.

        warmup: training steps before the initialization.

        initialization_memory: pooled features, at least two per prototype. solver: "newton" (exact) or
        "iteration" (the paper's) with `iterations` steps, and `gradient` "closed_form" or "autograd" through
        the steps. bound: the elements of the prototypes are clamped to [-bound, bound] after each step, as in
        the token study. Defaults are those of the released configurations for pair losses on CUB and Cars
        (SOP and In-Shop: 128 prototypes; proxy losses: epsilon 0.5). Raises ValueError for other values.
        """
        super().__init__()
        if not 0 < transport_ratio <= 1:
            raise ValueError(f"transport_ratio must be in (0, 1], got {transport_ratio}")
        if epsilon <= 0:
            raise ValueError(f"epsilon must be positive, got {epsilon}")
        if initialization_memory < 2 * prototypes:
            least = 2 * prototypes
            raise ValueError(f"initialization_memory must be at least {least}, got {initialization_memory}")
        if solver not in ("newton", "iteration"):
            raise ValueError(f"solver must be newton or iteration, got {solver}")
        if gradient not in ("closed_form", "autograd"):
            raise ValueError(f"gradient must be closed_form or autograd, got {gradient}")
        if iterations < 1:
            raise ValueError(f"iterations must be positive, got {iterations}")
        if bound is not None and bound <= 0:
            raise ValueError(f"bound must be positive, got {bound}")
        self.transport_ratio, self.epsilon, self.warmup = transport_ratio, epsilon, warmup
        self.solver, self.iterations, self.gradient, self.bound = solver, iterations, gradient, bound
        self.prototypes = nn.Parameter(torch.randn(prototypes, channels) * channels**-0.5)
        self.register_buffer("memory", torch.zeros(initialization_memory, channels))
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))
        self.register_buffer("observed", torch.zeros((), dtype=torch.int64))  # training steps
        self.register_buffer("initialized", torch.zeros((), dtype=torch.bool))
        self._filled, self._observed, self._initialized = HostValue(), HostValue(), HostValue()

    def forward(
        self, features: Float[Tensor, "B L H W"]
    ) -> tuple[Float[Tensor, "B L"], Float[Tensor, "B M"]]:
        """Pooled vectors and attributes, in float32 at least."""
        pooled, attributes, _ = self.transport(features)
        return pooled, attributes

    def transport(
        self, features: Float[Tensor, "B L H W"]
    ) -> tuple[Float[Tensor, "B L"], Float[Tensor, "B M"], Float[Tensor, "B P"]]:
        """Pooled vectors, attributes, and the weights p_j of the positions."""
        if self.bound is not None:
            # Clamp the parameter itself; clamping in the forward pass would zero its gradient at the bound.
            with torch.no_grad():
                self.prototypes.clamp_(-self.bound, self.bound)
        with torch.autocast(features.device.type, enabled=False):
            flat = positions(features)
            # A copy, because the backward pass of this batch may come after the next clamp or, with the
            # iteration, after `observe` selected the prototypes.
            is_kept = self.bound is not None or self.solver == "iteration"
            prototypes = self.prototypes.to(flat.dtype, copy=is_kept)
            active = self.initialized.clone()  # `observe` sets the flag between forward and backward pass
            if self.solver == "newton":
                return TransportPooling.apply(flat, prototypes, active, self.transport_ratio, self.epsilon)
            closed_form = self.gradient == "closed_form"
            return iteration_pooling(
                flat,
                prototypes,
                active,
                self.transport_ratio,
                self.epsilon,
                self.iterations,
                closed_form,
            )

    def has_selected(self) -> bool:
        """Whether the prototypes are initialised."""
        return bool(self._initialized.read(self.initialized))

    @torch.no_grad()
    def observe(self, pooled_average: Float[Tensor, "B L"]) -> None:
        """Counts a training step with the average-pooled features of the global batch.

        Does nothing after the prototypes are initialised.
        """
        if self.has_selected():
            return
        observed = self._observed.read(self.observed) + 1
        self._observed.write(self.observed, observed)
        if observed <= self.warmup:
            return
        start, size, count = self._filled.read(self.filled), len(self.memory), len(self.prototypes)
        new = clip(pooled_average[: size - start].to(self.memory.dtype))[0]
        self.memory[start : start + len(new)] = new
        self._filled.write(self.filled, start + len(new))
        if start + len(new) == size:
            # The first M entries are the initial set of the greedy choice (released code).
            rest = self.memory[count:]
            self.prototypes.copy_(rest[greedy_k_center(rest, self.memory[:count], count)])
            self._initialized.write(self.initialized, True)
