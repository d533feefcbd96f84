"""GSoP: attention over channels and over positions from second moments.

(Gao et al. 2019; a pooling in the released GSP code.)

    v = 1/P sum_p max( c * x_p, s_p relu(x_p) ),        x = W f, L -> D
    channels    y = relu(BN(conv1x1(relu(x)))), D -> A
                C = 1/P^2 sum_p y_p y_p^T (A, A),       c = sigmoid(U rows(BN(C))) (D,)
    positions   y = relu(BN(conv1x1(relu(x)))), D -> A
                S_pq = 1/D^2 y_p . y_q (P, P),          s = sigmoid(U' relu(rows'(BN(S)))) (P,)

rows, rows': four linear forms with bias for every row of the matrix; U, U': linear with bias; BN of a matrix:
each row over the batch and its columns. A = 128.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unseen.poolings.map_pooling import Transform
from unseen.runtime.device.precision import full_precision

_FORMS = 4


class Gsop(nn.Module):
    """Second-order pooling attention. positions: P, height times width of the map.

    The spatial branch has weights for each position; `forward` raises ValueError for a map of another size.
    The batch norms are torch's with the constants of Keras (momentum 0.99, eps 1e-3); several workers must
    synchronise them like those of a backbone.
    """

    projects = True

    def __init__(self, channels: int, dim: int, positions: int, attention_dim: int = 128) -> None:
        super().__init__()
        self.out_channels, self.positions = dim, positions
        self.transform = Transform(channels, dim)
        self.channel_features = _features(dim, attention_dim)
        self.channel_attention = nn.Sequential(
            _Rows(attention_dim), Transform(_FORMS * attention_dim, dim, bias=True), nn.Sigmoid()
        )
        self.spatial_features = _features(dim, attention_dim)
        self.spatial_attention = nn.Sequential(
            _Rows(positions), nn.ReLU(), Transform(_FORMS * positions, positions, bias=True), nn.Sigmoid()
        )

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B D"]:
        """The pooled vectors, in float32 at least."""
        count = features.shape[2] * features.shape[3]
        if count != self.positions:
            height, width = features.shape[2:]
            raise ValueError(f"GSoP: expected a map of {self.positions} positions, got {height} x {width}")
        transformed = full_precision(self.transform(features))
        with torch.autocast(features.device.type, enabled=False):
            by_channel = self.channel_features(transformed).flatten(2)
            channel = self.channel_attention(by_channel @ by_channel.transpose(1, 2) / count**2)
            by_position = self.spatial_features(transformed).flatten(2)
            moments = by_position.transpose(1, 2) @ by_position / transformed.shape[1] ** 2
            spatial = self.spatial_attention(moments)
            spatial = spatial.view(-1, 1, *features.shape[2:])
            return torch.maximum(channel * transformed, spatial * transformed.relu()).mean((2, 3))


def _features(dim: int, attention_dim: int) -> nn.Sequential:
    return nn.Sequential(nn.ReLU(), Transform(dim, attention_dim, bias=True), _norm(attention_dim), nn.ReLU())


def _norm(size: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(size, eps=1e-3, momentum=0.01)


class _Rows(nn.Module):
    """Symmetric matrices (B, N, N) -> (B, 4 N, 1, 1): four linear forms of each normalised row.

    A row is normalised over the batch and its columns.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = _norm(size)
        self.forms = nn.Conv2d(size, _FORMS * size, (1, size), groups=size)
        nn.init.xavier_uniform_(self.forms.weight)
        if self.forms.bias is not None:
            nn.init.zeros_(self.forms.bias)

    def forward(self, moments: Float[Tensor, "B N N"]) -> Float[Tensor, "B F 1 1"]:
        return self.forms(self.norm(moments.unsqueeze(2)))
