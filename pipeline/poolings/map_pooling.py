"""The frame of a pooling of a feature map."""

from torch import nn


class MapPooling(nn.Module):
    """(B, L, H, W) -> (B, E), E = `out_channels`: without a transform to the embedding, E = L."""

    projects = False

    def __init__(self, channels: int) -> None:
        """channels: L. A pooling without parameters accepts maps of any number."""
        super().__init__()
        self.out_channels = channels
