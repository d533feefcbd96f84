"""What a method is: images to outputs, outputs of a whole batch to named loss terms, images to unit
vectors."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from pipeline.config.blocks import Input
from pipeline.losses.precision import full_precision, without_autocast
from pipeline.models.backbone import Backbone


@dataclass(frozen=True)
class Outputs:
    """One row per image in every tensor, so that the rows of several workers can be put together. `embedding`
    has unit rows."""

    embedding: Float[Tensor, "B D"]
    attributes: Float[Tensor, "B M"] | None = field(
        default=None, kw_only=True
    )  # how much of each prototype an image was found to hold; sums to 1


class Method(nn.Module, ABC):
    """The network and the loss of one paper.

    A training step on W workers is: `forward` on the worker's own images, gathering of the outputs in rank
    order, `objective` on all of them on every worker. `objective` therefore reads nothing but its arguments
    and parameters, and what it keeps (memories) is equal on all workers.
    """

    dim: int  # D of the embedding
    backbone: Backbone

    @abstractmethod
    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Outputs:
        """What the loss needs of each normalised image."""

    @abstractmethod
    def objective(
        self, outputs: Outputs, labels: Int[Tensor, "B"], samples: Int[Tensor, "B"]
    ) -> dict[str, Float[Tensor, ""]]:
        """The terms of the loss on a whole batch, each with its weight already in it; the loss is their sum.

        Labels count the training classes from 0, `samples` the training images. In training mode it also
        moves what the loss remembers (cross-batch memory, the memory from which prototypes are chosen); in
        eval mode it changes nothing. The terms are the same ones at every step.
        """

    def after_step(self) -> None:
        """What follows each step of the optimizer. Most methods have nothing to do then."""

    def embed(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B D"]:
        """Unit vectors of images, as `describe` finds them."""
        return self.describe(images).embedding

    def describe(self, images: Float[Tensor, "B 3 H W"]) -> Outputs:
        """Unit vectors of images, and attributes where a method pools by prototypes, each image independent
        of the others in the batch.

        Raises RuntimeError in training mode, where that would not hold.
        """
        if self.training:
            raise RuntimeError(
                "embed in training mode would use the statistics of the batch: call eval() first"
            )
        return self.forward(images)

    def proxies(self) -> Sequence[nn.Parameter]:
        """Learned vectors that stand for training classes in the loss and are left behind after it."""
        return ()

    def statistics(self, input: Input) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation that images are normalised with: the recipe's, else those that the
        network was trained with."""
        return input.mean or self.backbone.mean, input.std or self.backbone.std

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Every parameter that an optimizer may move, once, under `backbone`, `head` or `proxies`; a group
        without parameters is left out."""
        backbone, proxies = list(self.backbone.parameters()), list(self.proxies())
        known = {id(parameter) for parameter in (*backbone, *proxies)}
        head = [
            parameter
            for parameter in self.parameters()
            if parameter.requires_grad and id(parameter) not in known
        ]
        groups = {"backbone": backbone, "head": head, "proxies": proxies}
        return {name: parameters for name, parameters in groups.items() if parameters}


def unit(vectors: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
    """v / ||v||, in float32 at least; a vector of zeros stays zero."""
    with without_autocast(vectors):
        return functional.normalize(full_precision(vectors), dim=-1)
