"""Partial FC: a softmax over the proxies of the batch and a random sample of the others.

    loss = 1/B sum_i -log( exp(s f(t_i)) / (exp(s f(t_i)) + sum_{c in S, c != y_i} exp(s cos(z_i, p_c))) )

S contains the classes of the batch and random other classes, max(min(B, C), floor(r C)) in all; f is that of
CosFace or ArcFace (margin_softmax.py). With r = 1 it is their loss. (An et al. 2022, Killing Two Birds with
One Stone: Efficient and Robust Training of Face Recognition CNNs by Partial FC, sec. 3; the sample as in the
released code, insightface partial_fc_v2, which takes max(number of classes in the batch, floor(r C)).) A
step costs O(B r C D) for the products instead of O(B C D).

Deviation: the released code also updates only the sampled proxies. Here the gradient of the others is zero,
and the optimizer's momentum and weight decay apply to all.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unseen.losses.margin_softmax import ArcFace, CosFace, MarginSoftmax


class PartialFc(nn.Module):
    """function: f. scale: s. margin: m. share: r. Raises ValueError for a share outside of (0, 1] and as
    `MarginSoftmax` does.
    """

    inputs = "proxies"

    def __init__(
        self,
        classes: int,
        dim: int,
        function: Literal["cosface", "arcface"],
        scale: float,
        margin: float,
        share: float,
    ) -> None:
        super().__init__()
        if not 0 < share <= 1:
            raise ValueError(f"expected a share of the classes above 0 and at most 1, got {share}")
        self.share = share
        self.full: MarginSoftmax = {"cosface": CosFace, "arcface": ArcFace}[function](
            classes, dim, scale, margin
        )

    def forward(self, embeddings: Float[Tensor, "B D"], labels: Int[Tensor, "B"]) -> Float[Tensor, ""]:
        """The loss of unit vectors. Draws the sample from torch's generator, which a training seeds for each
        step. Labels are 0 to C - 1; the loss checks them only if it was made by name (door.py).
        """
        proxies = self.full.proxies
        if self.share == 1:
            return self.full.loss(embeddings, labels, proxies)
        chosen = self.sample(labels)
        return self.full.loss(embeddings, torch.searchsorted(chosen, labels.long()), proxies[chosen])

    def sample(self, labels: Int[Tensor, "B"]) -> Int[Tensor, "S"]:
        """S, ascending. Its size does not depend on the labels, so that the host waits for no GPU."""
        classes = len(self.full.proxies)
        order = torch.rand(classes, device=labels.device).index_fill_(0, labels.long(), 2.0)
        size = max(min(len(labels), classes), int(self.share * classes))
        return order.topk(size).indices.sort().values
