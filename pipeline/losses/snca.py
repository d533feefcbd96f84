"""Scalable neighbourhood component analysis (Wu et al. 2018): a sample should find its class among all training images, held in a memory.

    loss = -1/B sum_i log( sum_{j: y_j = y_i, j != i} exp(z_i . m_j / T) / sum_{j != i} exp(z_i . m_j / T) )

m_j is the memory's vector of training image j; after each batch those of its images move, m_i <- normalise(momentum m_i + (1 - momentum) z_i).
No gradient passes the memory. Released T = 0.05 and momentum 0.5 (0.8 from epoch 80, 0.9 from epoch 120: set the attribute).

As released, a sample without another image of its class counts zero and the sum is divided by all B. Unlike there, where the memory starts as
random vectors that all take part, an image takes part once it has been seen, and its first vector is its first embedding.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from pipeline.losses.pairs import Pairs, relatives_of
from pipeline.losses.precision import full_precision, without_autocast

_CPU_ELEMENTS = 1 << 18  # similarities held at a time: what stays in a core's cache
_GPU_ELEMENTS = 1 << 26  # or what fills a GPU
_LOG_2 = math.log(2)


class Snca(nn.Module):
    """The loss and its memory of `samples` training images, all of it in the state dict. momentum: how much of its old vector an image keeps."""

    of_training = True  # no embedding depends on it: not part of a saved model
    memory: Tensor
    labels: Tensor

    def __init__(self, samples: int, dim: int, temperature: float, momentum: float) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(f"a softmax temperature is positive, got {temperature}")
        if not 0 <= momentum < 1:
            raise ValueError(f"the momentum of a memory is at least 0 and below 1, got {momentum}")
        self.temperature, self.momentum = temperature, momentum
        self.register_buffer("memory", torch.zeros(samples, dim))
        self.register_buffer("labels", torch.full((samples,), -1, dtype=torch.int64))  # -1: not seen yet

    def forward(self, embeddings: Float[Tensor, "B D"], labels: Int[Tensor, "B"], samples: Int[Tensor, "B"]) -> Float[Tensor, ""]:
        """The loss of unit vectors; 0 where no sample has another image of its class in the memory. In training mode the batch enters it afterwards.

        samples: the place of each image among the training images, an IndexError (on a CPU, in training) outside them. Similarities to a few
        thousand images at a time are held, never (B, samples).
        """
        with without_autocast(embeddings):
            anchors = full_precision(embeddings)
            pairs = Pairs(anchors, labels, self.memory.to(anchors.dtype), self.labels, samples)
            loss = _Blocked.apply(anchors, pairs, samples, self.temperature)
        if self.training:
            self.update(embeddings.detach(), labels, samples)
        return loss

    @torch.no_grad()
    def update(self, embeddings: Float[Tensor, "B D"], labels: Int[Tensor, "B"], samples: Int[Tensor, "B"]) -> None:
        """Moves the vectors of a batch's images. An image that is in the batch twice moves once, by the mean of its embeddings."""
        places, inverse, counts = samples.unique(return_inverse=True, return_counts=True)
        fresh = torch.zeros_like(self.memory[places]).index_add_(0, inverse, embeddings.to(self.memory.dtype)) / counts[:, None]
        self.memory[places] = functional.normalize(self.momentum * self.memory[places] + (1 - self.momentum) * fresh, dim=1)
        self.labels[samples] = labels.to(self.labels.dtype)


class _Blocked(torch.autograd.Function):
    """Value and gradient in one sweep over blocks of the memory: dloss/dz is the difference of two softmax means of memory vectors."""

    @staticmethod
    def forward(ctx: Any, anchors: Tensor, pairs: Pairs, samples: Tensor, temperature: float) -> Tensor:
        batch, size = len(anchors), len(pairs.references)
        factor = 1 / (temperature * _LOG_2)  # powers of two: torch's exp2 keeps its speed at tiny results, its exp does not
        queries = anchors * factor
        of_all, of_class = _Softmax(anchors), _Softmax(anchors)
        step = max(1, (_CPU_ELEMENTS if anchors.device.type == "cpu" else _GPU_ELEMENTS) // max(batch, 1))
        relatives, bounds = relatives_of(pairs, step)
        starts = torch.arange(0, size + step, step, device=anchors.device)
        selves, owners = samples.sort()
        ends = torch.searchsorted(selves, starts).tolist()
        unseen = torch.where(pairs.reference_labels < 0, -torch.inf, 0.0).to(anchors.dtype)
        for block, start in enumerate(range(0, size, step)):
            columns = slice(start, start + step)
            beside = pairs.references[columns]
            exponent = torch.addmm(unseen[columns], queries, beside.T)
            inside = slice(ends[block], ends[block + 1])
            exponent[owners[inside], selves[inside] - start] = -torch.inf
            family = relatives[bounds[block] : bounds[block + 1]]
            if len(family):
                others = pairs.labels[:, None] != pairs.reference_labels[family]
                of_class.add(exponent.index_select(1, family - start).masked_fill_(others, -torch.inf), pairs.references[family])
            of_all.add(exponent, beside)
        found = of_class.mass > 0
        ctx.save_for_backward(torch.where(found, of_all.mean() - of_class.mean(), 0).div_(temperature * max(batch, 1)))
        return torch.where(found, of_all.log2() - of_class.log2(), 0).sum() * (_LOG_2 / max(batch, 1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (saved,) = ctx.saved_tensors
        return saved * gradient, None, None, None


class _Softmax:
    """The sum of powers of two of each row's exponents, and the mean of vectors under it, met block by block: relative to the largest so far."""

    def __init__(self, like: Tensor) -> None:
        self.top = like.new_full((len(like), 1), torch.finfo(like.dtype).min)  # finite, so that a row of -inf leaves 0 and no NaN
        self.mass = like.new_zeros(len(like), 1)
        self.vectors = torch.zeros_like(like)

    def add(self, exponent: Tensor, vectors: Tensor) -> None:
        """exponent (rows, block), overwritten: -inf where a pair does not take part."""
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
