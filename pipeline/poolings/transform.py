"""The transform from L channels to D dimensions: a 1 x 1 convolution, Glorot-uniform (released GSP code)."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class Transform(nn.Conv2d):
    """W f_j at every position j of a map; `vectors` applies the same W to pooled vectors."""

    def __init__(self, channels: int, dim: int, bias: bool = False) -> None:
        super().__init__(channels, dim, 1, bias=bias)
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def vectors(self, pooled: Float[Tensor, "B L"]) -> Float[Tensor, "B D"]:
        return functional.linear(pooled, self.weight.flatten(1), self.bias)
