"""The network of the synthetic study: a table of token vectors.

(GSP sec. 5.1; released code networks/token_embedding.py.)

    x_j = W[token_j],   every element of W within [-0.3, 0.3]

So the pooling alone determines the embedding of a bag: there is no transform, and prototypes are bounded by
the same interval (`dim: null` and `pooling.bound` in the recipe of GSP). A bag is an image whose pixels are
numbers of tokens (pipeline/data/ingest/sources/tokens.py), made square by `input.fit: square`. All rows of
the image are equal, and the first is read. The map has one position per token of the bag.

As in the released code, weights are Glorot-uniform (fan in: the tokens) and are clamped to the interval after
each step. Clamping in the forward pass would zero the gradient at the bound.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unseen.networks.staged import Staged
from unseen.runtime.device.host import reads_wait

BOUND = 0.3
LARGEST = 255  # value of a pixel; the images are divided by it


class TokenTable(nn.Module):
    """The table W. Raises ValueError for a pixel that is not a token, as in photographs. On a GPU, whose
    pixels the host does not read, the vector of such a pixel is NaN, which a training refuses."""

    def __init__(self, tokens: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(dim, tokens)).T.contiguous())

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B D 1 W"]:
        with torch.no_grad():
            self.weight.clamp_(-BOUND, BOUND)
        tokens = (images[:, 0, :1] * LARGEST).round().long()
        if reads_wait(tokens):
            unknown = (tokens < 0) | (tokens >= len(self.weight))
            vectors = nn.functional.embedding(tokens.masked_fill(unknown, 0), self.weight)
            return vectors.masked_fill(unknown[..., None], torch.nan).permute(0, 3, 1, 2)
        if (largest := int(tokens.max())) >= len(self.weight) or int(tokens.min()) < 0:
            raise ValueError(
                f"a pixel has value {largest}, but the table has {len(self.weight)} tokens: "
                "token_embedding is only for the token corpus."
            )
        return nn.functional.embedding(tokens, self.weight).permute(0, 3, 1, 2)


class TokenEmbedding(Staged):
    """`tokens` vectors of `dim` dimensions (two in the figure of the study); one map of one row.

    There are no published weights.
    """

    plan = (("table",),)
    default_cfg = {"classifier": (), "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}  # noqa: RUF012

    def __init__(self, tokens: int = 68, dim: int = 2) -> None:
        super().__init__()
        self.channels = (dim,)
        self.table = TokenTable(tokens, dim)
