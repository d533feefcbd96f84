"""Contrastive loss of a query, its positive and its mined negatives.

(Radenovic et al. 2018; training for landmark retrieval on SfM-120k.)

    loss = sum over tuples of [ 1/2 d(q, p)^2 + 1/2 sum_n [ margin - d(q, n) ]_+^2 ]
    d(a, b) = || a - b + epsilon ||

The tuples of a batch are summed, not averaged, as by the gradient accumulation of the released code. epsilon
is added to every component of the difference, so that two equal vectors have the distance epsilon sqrt(D)
with a defined gradient.
"""

from jaxtyping import Float
from torch import Tensor, nn

from unseen.runtime.device.precision import full_precision, without_autocast


class TupleContrastive(nn.Module):
    """margin: the distance from which a negative costs nothing, 0.85 as released."""

    inputs = "tuples"

    def __init__(self, margin: float, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.margin, self.epsilon = margin, epsilon

    def forward(
        self,
        query: Float[Tensor, "*#T D"],
        positive: Float[Tensor, "*T D"],
        negatives: Float[Tensor, "*T N D"],
    ) -> Float[Tensor, ""]:
        """The loss of unit vectors, for one tuple (no T) or for T tuples, which may share one query (D).

        Without negatives (N = 0) only the positives count.
        """
        with without_autocast(query):
            q, p, n = full_precision(query), full_precision(positive), full_precision(negatives)
            attraction = (q - p + self.epsilon).square().sum()
            distance = (q.unsqueeze(-2) - n + self.epsilon).square().sum(-1).sqrt()
            repulsion = (self.margin - distance).clamp(min=0).square().sum()
            return (attraction + repulsion) / 2
