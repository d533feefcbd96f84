"""Zero-shot prediction loss: attributes of some classes predict the embeddings of others.

(GSP sec. 4.2, eq. 4.4.)

The classes of a batch are split into two halves. On each half h a linear map from attributes to class
embeddings is fitted by ridge regression,

    A_h = Y_h (Z_h^T Z_h + ridge I)^{-1} Z_h^T
    Z_h (M, b) attributes, Y_h (D, b) embeddings of the classes of the b samples of h

and evaluated on the other half, which has other classes: logits = scale V A_h z_i over all training classes V
(C, D),

    loss = 1/B sum_i cross_entropy(logits_i, y_i)

Deviation: the released code splits by batch position, which separates classes only for its batch layout; here
the labels decide. The factor of 9.5 on the logits is from the released code, not from the paper. As there,
the loss is the mean over samples, which is half of the sum of two means in eq. 4.4.

Initialisation of V. At the start the attributes of all images are nearly equal, so that A_h z_i is about the
mean class embedding of the other half, which contains no embedding of class y_i. `he_normal`, the released
one, has |v|^2 = 2 D / C: with 128 dimensions the loss starts at 90 for C = 8, at 19 for C = 40 and at 8.4 for
C = 75, far above the ln C of equal logits, and first of all shrinks V. `chance` has scale |v|^2 = 1/2 for any
C, so that logits are small beside 1 and the loss starts at about ln C.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from unseen.losses.he_normal import he_normal_, truncated_normal_
from unseen.runtime.device.precision import full_precision, without_autocast

_CHANCE = 0.5  # scale |v|^2


class ZeroShot(nn.Module):
    """The loss and its class embeddings. classes: C, labels 0 to C - 1. attributes: M. dim: D.

    initialization: of V, described above."""

    def __init__(
        self,
        classes: int,
        attributes: int,
        ridge: float,
        scale: float,
        dim: int,
        initialization: Literal["chance", "he_normal"] = "chance",
    ) -> None:
        super().__init__()
        self.attributes, self.ridge, self.scale = attributes, ridge, scale
        self.class_embeddings = nn.Parameter(torch.empty(classes, dim))
        if initialization == "he_normal":
            he_normal_(self.class_embeddings)
        else:
            truncated_normal_(self.class_embeddings, (_CHANCE / (scale * dim)) ** 0.5)

    def forward(self, attributes: Float[Tensor, "B M"], labels: Int[Tensor, "B"]) -> Float[Tensor, ""]:
        """The loss of attribute vectors; 0 with zero gradients for a batch of one class.

        Raises ValueError for another number of attributes than that of the loss.
        """
        if attributes.shape[1] != self.attributes:
            raise ValueError(f"expected {self.attributes} attributes, got {attributes.shape[1]}")
        with without_autocast(attributes):
            z = full_precision(attributes)
            embeddings = self.class_embeddings.to(z.dtype)
            first, two_halves = halves(labels)
            same_half = (first[:, None] == first).to(z.dtype)
            gram = z @ z.T
            # Both fits in one system: the left side contains products within a half, the right side products
            # between the halves.
            ridge = self.ridge * torch.eye(len(z), dtype=z.dtype, device=z.device)
            # Positive definite. NaN remains NaN, which the training loop reports.
            root = torch.linalg.cholesky_ex(gram * same_half + ridge).L
            # Column i: the weights of the samples of the other half for sample i.
            weights = torch.cholesky_solve(gram * (1 - same_half), root)
            predicted = weights.T @ embeddings[labels]
            loss = functional.cross_entropy(self.scale * predicted @ embeddings.T, labels)
            return torch.where(two_halves, loss, loss * 0)


def halves(labels: Int[Tensor, "B"]) -> tuple[Bool[Tensor, "B"], Bool[Tensor, ""]]:
    """Which samples belong to the first half of the classes, and whether there are two classes.

    The order of the classes is that of their first samples; an odd number is rounded down.
    """
    earliest = (labels[:, None] == labels).int().argmax(1)  # argmax returns the first of equal values
    opens = earliest == torch.arange(len(labels), device=labels.device)
    rank = opens.cumsum(0)[earliest] - 1
    count = opens.sum()
    return rank < count // 2, count > 1
