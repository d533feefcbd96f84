"""Gradient noise: the nuclear norm of the covariance of the images' gradients in a batch.

    gamma = || Cov(g) ||_* = tr Cov(g) = 1/(B - 1) sum_i |g_i - mean g|^2

    g_i = dL/dz_i of one loss term L by the embedding of image i

El-Nouby et al. (IRT) sec. 3.5 and fig. 4: L is the contrastive term alone, z the unit embedding, and gamma is
averaged over all iterations. A covariance has no negative eigenvalue, so its nuclear norm is its trace: O(B
D), without a D x D matrix. g is the gradient in the space around the sphere, its radial part included.

The paper's text has "gradients directions" where its formula has gradients, so both are measured.
`gradient_covariance` is the formula. It scales with the square of the loss, so it compares runs of one loss
and one batch size. `direction_covariance` is the same of g_i / |g_i| over the images that have a gradient. It
is in [0, B / (B - 1)] for any scale: 0 if all gradients have the same direction.

The measurement does not change a training: the extra backward pass runs from the term to the embeddings only,
draws no random number and leaves no .grad.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from unseen.runtime.errors import UserError

NAMES = ("gradient_covariance", "direction_covariance")
LOSS = "loss"  # in place of a term's name: the sum of all


def covariance_norm(rows: Float[Tensor, "B D"]) -> Float[Tensor, ""]:
    """|| Cov(rows) ||_* in float64, with 1/(B - 1); 0 for fewer than two rows.

    Stays on the device of `rows`.
    """
    rows = rows.double()
    return (rows - rows.mean(0)).square().sum() / max(len(rows) - 1, 1) if len(rows) else rows.new_zeros(())


def direction_covariance_norm(rows: Float[Tensor, "B D"]) -> Float[Tensor, ""]:
    """|| Cov(rows / |rows|) ||_* in float64 over the rows that are not zero; 0 for fewer than two of these.

    Computed without a wait of the host for the device.
    """
    rows = rows.double()
    norm = rows.norm(dim=1, keepdim=True)
    directed = norm > 0
    count = directed.sum()
    direction = torch.where(directed, rows / norm, 0)
    centred = torch.where(directed, direction - direction.sum(0) / count.clamp(min=1), 0)
    return centred.square().sum() / (count - 1).clamp(min=1)


def gradient_noise(
    terms: Mapping[str, Float[Tensor, ""]], embedding: Float[Tensor, "B D"], name: str
) -> dict[str, Float[Tensor, ""]]:
    """Both norms of one batch under NAMES, as scalars on the device. Call it between the objective and
    backward.

    terms: the result of a method's objective. name: one of them, or `loss` for their sum. embedding: the B
    gathered embeddings of the objective, so that every worker computes the same numbers. A term that does not
    depend on the embedding has gradient 0. The graph is kept for backward. Raises UserError for a name that
    is not a term, and ValueError for an embedding without a graph.
    """
    if name not in (LOSS, *terms):
        raise UserError(
            f"training.gradient_noise: this recipe has no loss term {name!r}.",
            f"Name one of {', '.join(terms)}, {LOSS} for their sum, or null to measure nothing.",
        )
    if not embedding.requires_grad:
        raise ValueError(
            "the embedding has no graph: measure the gradient between the objective and backward"
        )
    value = (
        torch.stack([term.reshape(()) for term in terms.values()]).sum()
        if name == LOSS
        else terms[name].reshape(())
    )
    gradient = None
    if value.requires_grad:
        gradient = torch.autograd.grad(value, embedding, retain_graph=True, allow_unused=True)[0]
    if gradient is None:
        gradient = torch.zeros_like(embedding)
    return dict(zip(NAMES, (covariance_norm(gradient), direction_covariance_norm(gradient)), strict=True))
