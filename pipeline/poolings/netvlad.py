"""NetVLAD: residuals of softly assigned features, summed per centre and normalised.

(Arandjelovic et al. 2016; released GSP code.)

    v = [V_1 / ||V_1||, ..., V_C / ||V_C||]       V_k = sum_p a_pk (x_p - c_k)
    x = W f, L -> D / C                           a_pk = softmax_k(w_k . x_p + b_k)

C = 16 centres of D / C dimensions each, so that the concatenation has D. The last normalisation of NetVLAD is
that of the embedding.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from unseen.poolings.map_pooling import Transform, positions


class Netvlad(nn.Module):
    """Vector of locally aggregated descriptors. Raises ValueError if `dim` is not a multiple of `centers`.

    A centre whose residuals cancel pools to 0 (norms below 1e-12 are replaced by 1e-12). As in the released
    code, all weights are Glorot-uniform and biases 0; its centres have the shape (1, 1, 1, C, D / C) and the
    same limits.
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
            # sum_p a_pk x_p - (sum_p a_pk) c_k needs 1 / P of the memory of single residuals.
            sums = torch.bmm(assigned, positions(transformed).transpose(1, 2))
            residual = sums - assigned.sum(2, keepdim=True) * self.centers
            return normalize(residual, dim=2).flatten(1)
