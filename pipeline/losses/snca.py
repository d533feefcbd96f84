"""Scalable neighbourhood component analysis (Wu et al. 2018) over a memory of all training images.

    loss = -1/B sum_i log( sum_{j: y_j = y_i, j != i} exp(z_i . m_j / T) / sum_{j != i} exp(z_i . m_j / T) )

m_j is the vector of training image j in the memory. After each batch the vectors of its images are updated,
m_i <- normalise(momentum m_i + (1 - momentum) z_i). The memory has no gradient. Released: T = 0.05 and
momentum 0.5 (0.8 from epoch 80, 0.9 from epoch 120, by the attribute).

As released, a sample without another image of its class counts as zero, and the sum is divided by all B.
Deviation: in the released code the memory starts as random vectors, which are all references. Here an image
becomes a reference after its first batch, and its first vector is its first embedding.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from unseen.losses.blocked import Blocked, block_size
from unseen.losses.pairs import Pairs, relatives_of
from unseen.runtime.device.host import reads_wait
from unseen.runtime.device.precision import full_precision, without_autocast

_CPU_ELEMENTS = 1 << 18  # similarities in memory at a time, so that they stay in the cache of a core
_LOG_2 = math.log(2)


class Snca(nn.Module):
    """The loss and its memory of `samples` training images, which the state dict contains.

    momentum: weight of the old vector of an image.
    """

    inputs = "samples"
    training_only = True  # embeddings do not depend on it, so a saved model does not contain it
    memory: Tensor
    labels: Tensor

    def __init__(self, samples: int, dim: int, temperature: float, momentum: float) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(f"the temperature of a softmax must be positive, got {temperature}")
        if not 0 <= momentum < 1:
            raise ValueError(f"the momentum of a memory must be in [0, 1), got {momentum}")
        self.temperature, self.momentum = temperature, momentum
        self.register_buffer("memory", torch.zeros(samples, dim))
        self.register_buffer("labels", torch.full((samples,), -1, dtype=torch.int64))  # -1: without a vector

    def forward(
        self, embeddings: Float[Tensor, "B D"], labels: Int[Tensor, "B"], samples: Int[Tensor, "B"]
    ) -> Float[Tensor, ""]:
        """The loss of unit vectors; 0 if no sample has another image of its class in the memory.

        In training mode the batch then updates the memory. samples: the number of each image among the
        training images; others raise IndexError (on a CPU, in training mode). Memory: the similarities with a
        few thousand images at a time instead of (B, samples).
        """
        with without_autocast(embeddings):
            anchors = full_precision(embeddings)
            pairs = Pairs(anchors, labels, self.memory.to(anchors.dtype), self.labels, samples)
            loss = _Blocked.apply(anchors, pairs, samples, self.temperature)
        if self.training:
            self.update(embeddings.detach(), labels, samples)
        return loss

    @torch.no_grad()
    def update(
        self, embeddings: Float[Tensor, "B D"], labels: Int[Tensor, "B"], samples: Int[Tensor, "B"]
    ) -> None:
        """Updates the vectors of the images of a batch.

        An image that occurs twice is updated once, by the mean of its embeddings.
        """
        same = (samples[:, None] == samples).to(self.memory.dtype)
        means = same @ embeddings.to(self.memory.dtype) / same.sum(1, keepdim=True)
        old = self.memory[samples]
        # Equal rows for an image that occurs twice: the order in which they are written does not matter.
        self.memory[samples] = functional.normalize(self.momentum * old + (1 - self.momentum) * means, dim=1)
        self.labels[samples] = labels.to(self.labels.dtype)


class _Blocked(Blocked):
    """Value and gradient in one pass over blocks of the memory.

    dloss/dz is the difference of two means of memory vectors, weighted by softmax.
    """

    @staticmethod
    def forward(ctx: Any, anchors: Tensor, pairs: Pairs, samples: Tensor, temperature: float) -> Tensor:
        batch, size = len(anchors), len(pairs.references)
        factor = 1 / (temperature * _LOG_2)  # powers of two, because torch's exp is slow for tiny results
        queries = anchors * factor
        of_all, of_class = _Softmax(anchors), _Softmax(anchors)
        step = block_size(anchors, batch, _CPU_ELEMENTS)
        relatives, bounds = relatives_of(pairs, step)
        exclude_selves = _selves_by_mask(samples) if reads_wait(samples) else _selves(samples, size, step)
        empty = torch.where(pairs.reference_labels < 0, -torch.inf, 0.0).to(anchors.dtype)
        for block, start in enumerate(range(0, size, step)):
            columns = slice(start, start + step)
            vectors = pairs.references[columns]
            exponent = torch.addmm(empty[columns], queries, vectors.T)
            exclude_selves(exponent, start)
            members = relatives[bounds[block] : bounds[block + 1]]
            if len(members):
                others = pairs.labels[:, None] != pairs.reference_labels[members]
                of_members = exponent.index_select(1, members - start).masked_fill_(others, -torch.inf)
                of_class.add(of_members, pairs.references[members])
            of_all.add(exponent, vectors)
        has_positive = of_class.mass > 0
        gradient = torch.where(has_positive, of_all.mean() - of_class.mean(), 0)
        ctx.save_for_backward(gradient.div_(temperature * max(batch, 1)))
        losses = torch.where(has_positive, of_all.log2() - of_class.log2(), 0)
        return losses.sum() * (_LOG_2 / max(batch, 1))


def _selves(samples: Tensor, size: int, step: int) -> Callable[[Tensor, int], None]:
    """Sets the pair of each row of a block (B, `step`) with itself to -inf. The block begins at a column."""
    starts = torch.arange(0, size + step, step, device=samples.device)
    selves, owners = samples.sort()
    ends = torch.searchsorted(selves, starts).tolist()

    def exclude(exponent: Tensor, start: int) -> None:
        inside = slice(ends[start // step], ends[start // step + 1])
        exponent[owners[inside], selves[inside] - start] = -torch.inf

    return exclude


def _selves_by_mask(samples: Tensor) -> Callable[[Tensor, int], None]:
    """As `_selves`, by a mask of the block, whose size does not depend on the samples."""

    def exclude(exponent: Tensor, start: int) -> None:
        columns = torch.arange(start, start + exponent.shape[1], device=samples.device)
        exponent.masked_fill_(samples[:, None] == columns, -torch.inf)

    return exclude


class _Softmax:
    """The sum of the powers of two of each row's exponents, and the mean of vectors with these weights.

    Blocks are added one by one, relative to the largest exponent so far.
    """

    def __init__(self, like: Tensor) -> None:
        # Finite, so that a row of -inf gives 0 instead of NaN.
        self.top = like.new_full((len(like), 1), torch.finfo(like.dtype).min)
        self.mass = like.new_zeros(len(like), 1)
        self.vectors = torch.zeros_like(like)

    def add(self, exponent: Tensor, vectors: Tensor) -> None:
        """Adds a block. exponent (rows, block): -inf for excluded pairs; overwritten."""
        top = torch.maximum(self.top, exponent.amax(1, keepdim=True))
        fade = (self.top - top).exp2_()
        powers = exponent.sub_(top).exp2_()
        self.mass = self.mass * fade + powers.sum(1, keepdim=True)
        self.vectors.mul_(fade).addmm_(powers, vectors)
        self.top = top

    def log2(self) -> Tensor:
        return self.mass.log2() + self.top

    def mean(self) -> Tensor:
        return self.vectors / self.mass
