"""Coded Residual Transform for generalizable deep metric learning (Kan et al., NeurIPS 2022)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unseen.losses.consistency import similarity_consistency
from unseen.losses.diversity import prototype_diversity
from unseen.methods import modules
from unseen.methods.head import Linear
from unseen.methods.method import Method, Observed, Outputs, unit
from unseen.methods.settings import CrtRecipe, Projection
from unseen.networks.coded_residual import CodedResidualBranches
from unseen.poolings.average import Average


@dataclass(frozen=True)
class CrtOutputs(Outputs):
    auxiliary: Float[Tensor, "B E"] | None  # unit rows of the second branch; None in eval mode


class Crt(Method):
    """Two coded residual transforms of one feature map, with different prototypes and dimensions; each gives
    f / ||f||.

    loss = sum over both branches b of [ L_DIV(prototypes of b) + lambda_b L_MS(f_b) ] + lambda_2
    L_CON(f_1, f_2)      sec. 3.2-3.4

    The test embedding is that of branch `embedding`; branch `auxiliary` runs only in training mode. Both
    branches use the same backbone. By default they share nothing else: the text contains both "K_1 = 49,
    K_2 = 64" and "weights shared", but heads of different K cannot share weights. With `branches: shared`
    they share prototypes and first layers, and each has its own last layer; L_DIV then counts the prototypes
    once.

    The branches read the output of the backbone unchanged. MiT (the paper's backbone) and vision transformers
    end with a layer norm, other networks do not. A layer norm in front of the branches gave no gain on a
    small residual network trained from scratch; training was stable with and without it.
    """

    def __init__(self, recipe: CrtRecipe, classes: int, samples: int) -> None:
        super().__init__()
        self.backbone = modules.backbone(recipe.backbone)
        channels = self.backbone.channels[-1]
        self.dim = recipe.embedding.dim
        self.branches = branches_of(recipe, channels)
        self.loss = modules.loss(recipe.loss)
        self.recipe = recipe

    def forward(self, images: Float[Tensor, "B ..."]) -> CrtOutputs:
        features = self.backbone(images).maps[-1]
        embedding, *auxiliary = self.branches(features, None if self.training else 1)
        return CrtOutputs(unit(embedding), unit(auxiliary[0]) if auxiliary else None)

    def terms(
        self, outputs: Outputs, labels: Int[Tensor, "B"], samples: Int[Tensor, "B"], observed: Observed
    ) -> dict[str, Float[Tensor, ""]]:
        assert isinstance(outputs, CrtOutputs)
        if outputs.auxiliary is None:
            raise ValueError(
                "the loss of CRT compares its two branches, and the second one runs only in training mode"
            )
        recipe = self.recipe
        first, second = recipe.embedding.loss_weight, recipe.auxiliary.loss_weight
        terms = {
            recipe.loss.term: first * self.loss(outputs.embedding, labels),
            f"{recipe.loss.term}_auxiliary": second * self.loss(outputs.auxiliary, labels),
            "consistency": recipe.consistency_weight
            * similarity_consistency(outputs.embedding, outputs.auxiliary),
        }
        prototypes = self.branches.prototypes[:1] if recipe.branches == "shared" else self.branches.prototypes
        if prototypes:
            diversity = torch.stack([prototype_diversity(each) for each in prototypes]).sum()
            terms["diversity"] = recipe.diversity_weight * diversity
        return terms


def branches_of(recipe: CrtRecipe, channels: int) -> "CodedResidualBranches | _AverageBranches":
    """The branches over a map with L = `channels`: (B, L, H, W) -> (B, D), (B, E) of the auxiliary one."""
    branches = (recipe.embedding, recipe.auxiliary)
    dims = (recipe.embedding.dim, recipe.auxiliary.dim)
    if recipe.transform == "average":
        return _AverageBranches(channels, dims)
    return CodedResidualBranches(
        channels,
        tuple(branch.prototypes for branch in branches),
        dims,
        tuple(branch.hidden for branch in branches),
        shared=recipe.branches == "shared",
        shared_network=recipe.networks == "shared",
    )


class _AverageBranches(nn.Module):
    """Two branches without CRT: average pooling, then one linear layer per branch (table 6)."""

    prototypes: tuple[Tensor, ...] = ()

    def __init__(self, channels: int, dims: tuple[int, ...]) -> None:
        super().__init__()
        self.pooling = Average(channels)
        self.layers = nn.ModuleList(Linear(channels, dim, Projection()) for dim in dims)

    def forward(self, features: Float[Tensor, "B L H W"], branches: int | None = None) -> tuple[Tensor, ...]:
        pooled = self.pooling(features)
        return tuple(layer(pooled) for layer in self.layers[:branches])
