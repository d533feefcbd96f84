"""FastAP (Cakir et al. 2019): average precision over histograms of the squared distances.

    loss = 1 - mean over anchors i with a positive of 1/P_i sum_l h+_il H+_il / H_il
    h_il = sum_j [ 1 - | d_ij^2 - 4 l / L | L / 4 ]_+        l = 0, ..., L        d^2 = 2 - 2 cos

h+ sums over the P_i positives of anchor i, h over all references without itself; H+ and H are their sums up
to l. Definition and gradient are those of the authors' code; a batch without positives costs 0.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from unseen.losses.pairs import PairLoss, Pairs


class FastAp(PairLoss):
    """bins: L, intervals of the histogram over [0, 4]. Memory: the similarities times L + 1."""

    def __init__(self, bins: int) -> None:
        super().__init__()
        self.bins = bins

    def cost(self, pairs: Pairs) -> Float[Tensor, ""]:
        squared = 2 - 2 * pairs.anchors @ pairs.references.T
        positive = (pairs.labels[:, None] == pairs.reference_labels).to(squared.dtype)
        counted = torch.ones_like(squared)
        if pairs.self_index is not None:
            itself = pairs.self_index[:, None]
            positive, counted = (mask.scatter(1, itself, 0.0) for mask in (positive, counted))
        width = 4 / self.bins
        pulses = [(1 - (squared - width * edge).abs() / width).clamp(min=0) for edge in range(self.bins + 1)]
        of_positives = torch.stack([(pulse * positive).sum(1) for pulse in pulses], 1)
        of_all = torch.stack([(pulse * counted).sum(1) for pulse in pulses], 1).cumsum(1)
        precision = of_positives.cumsum(1) / torch.where(of_all > 0, of_all, 1.0)
        positives = positive.sum(1)
        average = (of_positives * precision).sum(1) / positives.clamp(min=1)
        has_positive = positives > 0
        return torch.where(has_positive, 1 - average, 0.0).sum() / has_positive.sum().clamp(min=1)
