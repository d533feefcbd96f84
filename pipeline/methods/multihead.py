"""Multi-Head deep metric learning using global and local representations (Ebrahimpour et al.)."""

from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor, cat, nn

from unseen.methods import modules
from unseen.methods.head import Linear
from unseen.methods.method import Method, Observed, Outputs, unit
from unseen.methods.metric_loss import MetricLoss
from unseen.methods.settings import MultiheadRecipe, Projection
from unseen.networks.attention import SecondOrderAttention
from unseen.networks.focus import Focus
from unseen.poolings.average_max import AverageMax


class Multihead(Method):
    """Two feature maps of the backbone, the earlier one for local and the last one for global structure. Each
    has its own head:

        f_soa = f + v(softmax(zeta q^T k) h(f))        eq. 1-2
        e = W (average(f_soa) + maximum(f_soa)) + b    eq. 3-4, e in R^(D/2)

    z = [e_local, e_global] / ||.||     loss = L_MS + lambda L_ProxyAnchor on z

    The attention is part of the heads: the next stage of the backbone reads the local map without attention,
    unlike in SOLAR. The concatenation is normalised as a whole; the text does not define this. The ablations
    of sec. 4.5 are the local or the global head alone, with all D dimensions, and a single head over both
    maps; a focus layer (space to depth) then gives the local map the size of the global one.
    """

    def __init__(self, recipe: MultiheadRecipe, classes: int, samples: int) -> None:
        super().__init__()
        map_names = ("local", "global") if recipe.heads in ("both", "single") else (recipe.heads,)
        stage_of = dict(zip(("local", "global"), recipe.backbone.stages, strict=True))
        stages = tuple(stage_of[name] for name in map_names)
        self.backbone = modules.backbone(recipe.backbone.model_copy(update={"stages": stages}))
        self.dim = recipe.dim
        channels = dict(zip(map_names, self.backbone.channels, strict=True))
        self.focus = Focus(*self.backbone.channels) if recipe.heads == "single" else None
        if self.focus is not None:
            channels = {"single": self.focus.out_channels}
        self.heads = Heads(channels, recipe)
        self.loss = MetricLoss(recipe.loss, None, self.dim, recipe.batch.size, classes, samples)

    def forward(self, images: Float[Tensor, "B ..."]) -> Outputs:
        maps = self.backbone(images).maps
        if self.focus is not None:
            maps = (self.focus(*maps),)
        return Outputs(unit(self.heads(maps)))

    def terms(
        self, outputs: Outputs, labels: Int[Tensor, "B"], samples: Int[Tensor, "B"], observed: Observed
    ) -> dict[str, Float[Tensor, ""]]:
        terms: dict[str, Tensor] = self.loss(outputs.embedding, labels, samples)
        return terms

    def proxies(self) -> Sequence[nn.Parameter]:
        return self.loss.proxies()


class Heads(nn.ModuleDict):
    """A head of each map: maps (B, L_m, H_m, W_m) -> (B, D), the vectors of the maps side by side.

    channels: L_m by the name of a map, `local`, `global` or `single`.
    """

    def __init__(self, channels: dict[str, int], recipe: MultiheadRecipe) -> None:
        super().__init__()
        local, last = recipe.attention_reduction
        reductions: dict[str, int | None] = {"local": local, "global": last, "single": last}
        for name, width in channels.items():
            reduction = reductions[name] if recipe.attention else None
            self[name] = _head(width, recipe.dim // len(channels), reduction, recipe.attention_scale)

    def forward(self, maps: Sequence[Float[Tensor, "B _ _ _"]]) -> Float[Tensor, "B D"]:
        return cat([head(features) for head, features in zip(self.values(), maps, strict=True)], dim=1)


def _head(channels: int, dim: int, reduction: int | None, scale: float | None) -> nn.Sequential:
    attention = nn.Identity() if reduction is None else SecondOrderAttention(channels, reduction, scale)
    return nn.Sequential(attention, AverageMax(channels), Linear(channels, dim, Projection()))
