"""NetVLAD: residuals of features to centres, softly assigned, summed and of unit length per centre (Arandjelovic et al. 2016; released GSP code).

    x = W f, L -> D / C       a_pk = softmax_k(w_k . x_p + b_k)       V_k = sum_p a_pk (x_p - c_k)       v = [V_1 / ||V_1||, ..., V_C / ||V_C||]

C = 16 centres of dimension D / C each, so that the concatenation has D. NetVLAD's last normalisation is the embedding's own.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from pipeline.pooling.positions import positions
from pipeline.pooling.transform import Transform


class Netvlad(nn.Module):
    """Vector of locally aggregated descriptors. Raises ValueError where `dim` is no multiple of `centers`.

    A centre whose residuals cancel pools to 0 (norms below 1e-12 divide by that). All weights Glorot-uniform, biases 0, as in the released code;
    its centres, of shape (1, 1, 1, C, D / C) there, have the same limits.
    """

    projects = True

    def __init__(self, channels: int, dim: int, centers: int = 16) -> None:
        super().__init__()
        if dim % centers:
            raise ValueError(f"NetVLAD: dim must be a multiple of its {centers} centers, got {dim}")
        self.out_channels = dim
        self.transform = Transform(channels, dim // centers)
        self.assignment = Transform(dim // centers, centers, bias=True)
        self.centers = nn.Parameter(nn.init.xavier_uniform_(torch.empty(centers, dim // centers)))

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B D"]:
        """The pooled vectors, in float32 at least."""
        transformed = self.transform(features)
        assigned = positions(self.assignment(transformed)).softmax(1)
        with torch.autocast(features.device.type, enabled=False):
            # sum_p a_pk x_p - (sum_p a_pk) c_k: the residuals one by one would take P times the memory
            residual = torch.bmm(assigned, positions(transformed).transpose(1, 2)) - assigned.sum(2, keepdim=True) * self.centers
            return normalize(residual, dim=2).flatten(1)
