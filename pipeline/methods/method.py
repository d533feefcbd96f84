"""The interface of a method: images to outputs, outputs of a global batch to named loss terms, images to unit
vectors."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.settings import Input
from unseen.losses.pairs import References
from unseen.networks.backbone import Backbone
from unseen.runtime.device.precision import full_precision, without_autocast


@dataclass(frozen=True)
class Outputs:
    """Every tensor has one row per image, so that the rows of several workers can be concatenated.
    `embedding` has unit rows."""

    embedding: Float[Tensor, "B D"]
    # share of each prototype in an image; the shares of an image sum to 1
    attributes: Float[Tensor, "B M"] | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Observed:
    """What the terms of a loss read from its state."""

    references: References | None = None  # of the pair loss, in the cross-batch memory
    has_prototypes: Bool[Tensor, ""] | None = None  # whether the attributes of the batch have a meaning


class Method(nn.Module, ABC):
    """The network and the loss of one paper.

    A training step on W workers: each worker calls `forward` on its slice of the batch, the outputs are
    gathered in rank order, and each worker calls `objective` on all outputs. Therefore `objective` depends
    only on its arguments, the parameters and its state (memories), which is equal on all workers.

    `objective` is `observe`, then `terms`. The host decides in `observe` by values that it reads, and `terms`
    contains tensor operations alone, which torch.compile captures as one graph (training/compiled.py).
    """

    dim: int  # D of the embedding
    backbone: Backbone

    @abstractmethod
    def forward(self, images: Float[Tensor, "B ..."]) -> Outputs:
        """The outputs of normalised images (B, 3, H, W), from which `objective` computes the loss.

        Images are what `backbone` reads: with a CachedBackbone (pipeline/frozen) their maps (B, V)."""

    def objective(
        self, outputs: Outputs, labels: Int[Tensor, "B"], samples: Int[Tensor, "B"]
    ) -> dict[str, Float[Tensor, ""]]:
        """The weighted terms of the loss on a global batch. The loss is their sum.

        `labels` are indices of training classes and `samples` indices of training images, both from 0. In
        training mode the call also updates the state of the loss (the cross-batch memory, the memory from
        which prototypes are selected). In eval mode it changes nothing. Every step has the same terms.
        """
        return self.terms(outputs, labels, samples, self.observe(outputs, labels))

    def observe(self, outputs: Outputs, labels: Int[Tensor, "B"]) -> Observed:
        """Enters a global batch into the state that the host counts, in training mode, and returns what
        `terms` reads from that state. By default there is none."""
        return Observed()

    def selects_prototypes(self) -> bool:
        """Whether `observe` may replace prototypes, which `forward` has read and its gradient needs."""
        return False

    @abstractmethod
    def terms(
        self, outputs: Outputs, labels: Int[Tensor, "B"], samples: Int[Tensor, "B"], observed: Observed
    ) -> dict[str, Float[Tensor, ""]]:
        """The weighted terms of the loss on a global batch, see `objective`."""

    def after_step(self) -> None:
        """Called after each step of the optimizer. Does nothing by default."""

    def embed(self, images: Float[Tensor, "B ..."]) -> Float[Tensor, "B D"]:
        """The unit vectors of images that `describe` returns."""
        return self.describe(images).embedding

    def describe(self, images: Float[Tensor, "B ..."]) -> Outputs:
        """The unit vectors of images, and attributes if the pooling has prototypes. The result for an image
        does not depend on the others in the batch.

        Raises RuntimeError in training mode, in which it would depend on them.
        """
        if self.training:
            raise RuntimeError(
                "embed in training mode would use the statistics of the batch: call eval() first"
            )
        return self.forward(images)

    def proxies(self) -> Sequence[nn.Parameter]:
        """The learned vectors that represent training classes in the loss. Embedding does not use them."""
        return ()

    def statistics(self, input: Input) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation for the normalisation of images: those of the recipe, else those of the
        network's pretraining."""
        return input.mean or self.backbone.mean, input.std or self.backbone.std

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Every trainable parameter once, in group `backbone`, `head` or `proxies`. A group without
        parameters is omitted."""
        backbone, proxies = list(self.backbone.parameters()), list(self.proxies())
        grouped = {id(parameter) for parameter in (*backbone, *proxies)}
        trainable = [parameter for parameter in self.parameters() if parameter.requires_grad]
        head = [parameter for parameter in trainable if id(parameter) not in grouped]
        groups = {"backbone": backbone, "head": head, "proxies": proxies}
        return {name: parameters for name, parameters in groups.items() if parameters}


def unit(vectors: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
    """v / ||v||, in float32 or float64; a zero vector stays zero."""
    with without_autocast(vectors):
        return functional.normalize(full_precision(vectors), dim=-1)
