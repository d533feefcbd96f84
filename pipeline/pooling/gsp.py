"""Generalized sum pooling: an average over the positions that look like one of the prototypes (GSP sec. 4.1).

    v = sum_j p_j f_j          p_j = a_j / (P mu)        a_j in (0, 1), mean_j a_j = mu: how much of position j is transported
    z_i = 1/mu sum_j pi_ij     attributes: which prototypes the transported positions went to, summing to 1

The plan pi is that of `transport.py`, between unit-ball-clipped features and prototypes; what is averaged are the features themselves.
mu = 1 transports everything: exactly average pooling.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pipeline.pooling.greedy_k_center import greedy_k_center
from pipeline.pooling.positions import positions
from pipeline.pooling.transport import TransportPooling
from pipeline.pooling.transport_iteration import iteration_pooling
from pipeline.pooling.unit_ball import clip


class Gsp(nn.Module):
    """The pooling, its prototypes and what chooses their first values.

    Until the prototypes are initialised the layer is average pooling, and the attributes, though defined, pass no gradient (in the released code
    they are zero). `observe` initialises: after `warmup` training steps it collects `initialization_memory` pooled features and makes prototypes
    of those that cover them best. Both depend on training steps alone, all state is in the state dict, and the Parameter stays the same object:
    the released PyTorch code replaces it, so that an optimiser made earlier never moves it.
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
        """transport_ratio: mu in (0, 1]. epsilon: sharpness of the transport, larger is sharper. warmup: training steps.

        initialization_memory: pooled features, at least two per prototype. solver: "newton", exact, or "iteration", the paper's own: then
        `iterations` steps, and `gradient` "closed_form" or "autograd" through the steps. bound: every element of a prototype is put back into
        [-bound, bound] after a step, as the token study has it. Defaults: released configurations for pair losses on CUB and
        Cars; 128 prototypes for SOP and In-Shop, epsilon 0.5 for proxy losses. Raises ValueError for values outside of these.
        """
        super().__init__()
        if not 0 < transport_ratio <= 1:
            raise ValueError(f"transport_ratio must lie in (0, 1], got {transport_ratio}")
        if epsilon <= 0:
            raise ValueError(f"epsilon must be positive, got {epsilon}")
        if initialization_memory < 2 * prototypes:
            raise ValueError(f"initialization_memory must hold two features for each of {prototypes} prototypes, got {initialization_memory}")
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
        self.register_buffer("observed", torch.zeros((), dtype=torch.int64))  # training steps seen
        self.register_buffer("initialized", torch.zeros((), dtype=torch.bool))

    def forward(self, features: Float[Tensor, "B L H W"]) -> tuple[Float[Tensor, "B L"], Float[Tensor, "B M"]]:
        """Pooled vectors and attributes, in float32 at least."""
        pooled, attributes, _ = self.transport(features)
        return pooled, attributes

    def transport(self, features: Float[Tensor, "B L H W"]) -> tuple[Float[Tensor, "B L"], Float[Tensor, "B M"], Float[Tensor, "B P"]]:
        """Pooled vectors, attributes, and the weights p_j of the positions."""
        if self.bound is not None:
            with torch.no_grad():  # of the weights, not of their values here: at the bound they go on learning
                self.prototypes.clamp_(-self.bound, self.bound)
        with torch.autocast(features.device.type, enabled=False):
            flat = positions(features)
            prototypes = self.prototypes.to(flat.dtype, copy=self.bound is not None)  # the backward of this batch may come after the next clamp
            active = self.initialized.clone()  # backward keeps it, and `observe` flips the flag between forward and backward
            if self.solver == "newton":
                return TransportPooling.apply(flat, prototypes, active, self.transport_ratio, self.epsilon)
            closed_form = self.gradient == "closed_form"
            return iteration_pooling(flat, prototypes, active, self.transport_ratio, self.epsilon, self.iterations, closed_form)

    @torch.no_grad()
    def observe(self, pooled_average: Float[Tensor, "B L"]) -> None:
        """One training step: the average-pooled features of the global batch. Does nothing once the prototypes are initialised."""
        if self.initialized:
            return
        self.observed += 1
        if self.observed <= self.warmup:
            return
        start, size, count = int(self.filled), len(self.memory), len(self.prototypes)
        taken = clip(pooled_average[: size - start].to(self.memory.dtype))[0]
        self.memory[start : start + len(taken)] = taken
        self.filled += len(taken)
        if start + len(taken) == size:
            # the first M entries stand as chosen already, so that the prototypes spread around them (released code)
            rest = self.memory[count:]
            self.prototypes.copy_(rest[greedy_k_center(rest, self.memory[:count], count)])
            self.initialized.fill_(True)
