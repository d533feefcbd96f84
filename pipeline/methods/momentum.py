"""A second network that follows the trained one slowly: theta' <- m theta' + (1 - m) theta after each step
(He et al. 2020; IRT on In-Shop)."""

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pipeline.methods.head import PoolingHead
from pipeline.methods.method import unit
from pipeline.models.backbone import Backbone


class MomentumEncoder(nn.Module):
    """Embeds images without gradient, for a memory whose entries age slowly.

    It runs in eval mode: its embeddings depend on nothing but the image, on any number of workers. Buffers
    (running statistics, the state of a pooling) are those of the trained network. Only a running training
    needs it; a saved model leaves it out.
    """

    of_training = True  # no embedding depends on it: not part of a saved model

    def __init__(self, backbone: Backbone, head: PoolingHead, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.backbone, self.head = copy.deepcopy(backbone), copy.deepcopy(head)
        self.requires_grad_(False).train()

    def train(self, mode: bool = True) -> "MomentumEncoder":
        super().train(False)
        return self

    @torch.no_grad()
    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B D"]:
        return unit(self.head(self.backbone(images)).vector)

    @torch.no_grad()
    def follow(self, backbone: Backbone, head: PoolingHead) -> None:
        """One step towards the trained network."""
        for own, trained in ((self.backbone, backbone), (self.head, head)):
            for slow, fast in zip(own.parameters(), trained.parameters(), strict=True):
                slow.lerp_(fast, 1 - self.momentum)
            for kept, current in zip(own.buffers(), trained.buffers(), strict=True):
                kept.copy_(current)
