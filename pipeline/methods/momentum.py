"""A second network whose weights are a moving average of the trained ones: theta' <- m theta' + (1 - m) theta
after each step (He et al. 2020; IRT on In-Shop)."""

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unseen.methods.head import PoolingHead
from unseen.methods.method import unit
from unseen.networks.backbone import Backbone


class MomentumEncoder(nn.Module):
    """Embeds images without gradient. The memory stores these embeddings, which change slowly from step to
    step.

    It runs in eval mode, so that an embedding depends only on the image, for any number of workers. Its
    buffers (running statistics, the state of a pooling) are copies of those of the trained network.
    """

    training_only = True  # embeddings do not depend on it, so a saved model does not contain it

    def __init__(self, backbone: Backbone, head: PoolingHead, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.backbone, self.head = copy.deepcopy(backbone), copy.deepcopy(head)
        self.requires_grad_(False).train()

    def train(self, mode: bool = True) -> "MomentumEncoder":
        super().train(False)
        return self

    @torch.no_grad()
    def forward(self, images: Float[Tensor, "B ..."]) -> Float[Tensor, "B D"]:
        return unit(self.head(self.backbone(images)).vector)

    @torch.no_grad()
    def update(self, backbone: Backbone, head: PoolingHead) -> None:
        """Updates the average with the weights of the trained network, and copies its buffers."""
        for averaged, trained in ((self.backbone, backbone), (self.head, head)):
            for average, weight in zip(averaged.parameters(), trained.parameters(), strict=True):
                average.lerp_(weight, 1 - self.momentum)
            for buffer, current in zip(averaged.buffers(), trained.buffers(), strict=True):
                buffer.copy_(current)
