"""The embedding of the synthetic study (GSP sec. 5.1; released code models/token_embedding.py): a table of tokens, and nothing else.

    x_j = W[token_j],   every element of W within [-0.3, 0.3]

so what a loss makes of a bag is the pooling's doing alone: no transform follows, and prototypes keep to the same interval (`dim: null` and
`pooling.bound` in the recipe of GSP). A bag comes as an image whose pixels are numbers of tokens
(pipeline/ingest/sources/tokens.py), made square by `input.fit: square`: all of its rows are equal, and the first is read. Its map has one position
per token of the bag.

As the released code: Glorot uniform weights (fan in: the tokens), and a constraint that puts weights back into the interval after a step. A clamp in
the forward pass would let no weight at the bound learn.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pipeline.models.staged import Staged

BOUND = 0.3
LARGEST = 255  # value of a pixel; images arrive divided by it


class TokenTable(nn.Module):
    """Raises ValueError for a pixel that is no token of the table: for a picture."""

    def __init__(self, tokens: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(dim, tokens)).T.contiguous())

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B D 1 W"]:
        with torch.no_grad():
            self.weight.clamp_(-BOUND, BOUND)
        tokens = (images[:, 0, :1] * LARGEST).round().long()
        if (largest := int(tokens.max())) >= len(self.weight) or int(tokens.min()) < 0:
            raise ValueError(f"a pixel of {largest} is none of the table's {len(self.weight)} tokens: token_embedding reads the token corpus alone.")
        return nn.functional.embedding(tokens, self.weight).permute(0, 3, 1, 2)


class TokenEmbedding(Staged):
    """`tokens` of the corpus, each a vector of `dim` (the study's figure shows two). One map, of one row. Nobody has published weights."""

    plan = (("table",),)
    default_cfg = {"classifier": (), "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}  # noqa: RUF012  read only; pixels are no colours

    def __init__(self, tokens: int = 68, dim: int = 2) -> None:
        super().__init__()
        self.channels = (dim,)
        self.table = TokenTable(tokens, dim)
