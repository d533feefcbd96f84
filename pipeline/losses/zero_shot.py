"""Zero-shot prediction loss: attributes of some classes must predict the embeddings of others (GSP sec. 4.2, eq. 4.4).

The classes of a batch fall into two halves. From each half h a linear map from attributes to class embeddings is fitted by ridge regression,

    A_h = Y_h (Z_h^T Z_h + ridge I)^{-1} Z_h^T        Z_h (M, b) attributes, Y_h (D, b) embeddings of the classes of the b samples of h

and judged on the other half, whose classes it has not seen: logits = scale V A_h z_i over all training classes V (C, D),

    loss = 1/B sum_i cross_entropy(logits_i, y_i)

The released code splits by batch position, which separates classes only in its own batch layout; here labels decide. Its factor of 9.5 on the
logits is not in the paper. Its loss, like this one, is the mean over samples, half of the sum of two means that eq. 4.4 writes.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from pipeline.losses.he_normal import he_normal_
from pipeline.losses.precision import full_precision, without_autocast


class ZeroShot(nn.Module):
    """The loss and its class embeddings. classes: C, labels 0 to C - 1. attributes: M. dim: of a class embedding."""

    def __init__(self, classes: int, attributes: int, ridge: float, scale: float, dim: int) -> None:
        super().__init__()
        self.attributes, self.ridge, self.scale = attributes, ridge, scale
        self.class_embeddings = nn.Parameter(torch.empty(classes, dim))
        he_normal_(self.class_embeddings)

    def forward(self, attributes: Float[Tensor, "B M"], labels: Int[Tensor, "B"]) -> Float[Tensor, ""]:
        """The loss of attribute vectors. 0, with zero gradients, for a batch of one class.

        Raises ValueError when the attributes are not as many as announced.
        """
        if attributes.shape[1] != self.attributes:
            raise ValueError(f"the loss was made for {self.attributes} attributes, got {attributes.shape[1]}")
        with without_autocast(attributes):
            z = full_precision(attributes)
            embeddings = self.class_embeddings.to(z.dtype)
            first, two_halves = halves(labels)
            together = (first[:, None] == first).to(z.dtype)
            gram = z @ z.T
            # Both fits in one system: samples of different halves do not see each other on the left and only each other on the right.
            ridge = self.ridge * torch.eye(len(z), dtype=z.dtype, device=z.device)
            root = torch.linalg.cholesky_ex(gram * together + ridge).L  # positive definite; NaN stays NaN for the training loop to report
            weights = torch.cholesky_solve(gram * (1 - together), root)  # column i: how samples of the other half make up sample i
            predicted = weights.T @ embeddings[labels]
            loss = functional.cross_entropy(self.scale * predicted @ embeddings.T, labels)
            return torch.where(two_halves, loss, loss * 0)


def halves(labels: Int[Tensor, "B"]) -> tuple[Bool[Tensor, "B"], Bool[Tensor, ""]]:
    """Which samples belong to the first half of the batch's classes in order of appearance (half rounded down), and whether there are two classes."""
    earliest = (labels[:, None] == labels).int().argmax(1)  # argmax returns the first of equal values
    opens = earliest == torch.arange(len(labels), device=labels.device)
    rank = opens.cumsum(0)[earliest] - 1
    count = opens.sum()
    return rank < count // 2, count > 1
