"""One recipe per method: the published setting as defaults, in the words of its paper."""

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, TypeAdapter, model_validator

from pipeline.config.blocks import (
    Backbone,
    Batch,
    Count,
    Input,
    NonNegative,
    Optimizer,
    Positive,
    Schedule,
    Training,
)
from pipeline.config.losses import (
    AnyPairLoss,
    ContrastiveLoss,
    CrossBatchMemory,
    HybridLoss,
    Loss,
    MultiSimilarityLoss,
    PairLoss,
    ProxyAnchorLoss,
    TupleContrastiveLoss,
    ZeroShotLoss,
)
from pipeline.config.poolings import AttributePooling, AveragePooling, ClsPooling, GspPooling, Pooling
from pipeline.config.strict import Strict, as_json
from pipeline.runtime.errors import UserError


class Projection(Strict):
    """The linear layer from the pooled features to the embedding, where `dim` asks for one."""

    bias: bool = True
    layer_norm: bool = False  # in front of it, without scale and shift (ProxyNCA++, normalised softmax)
    initialization: Literal["kaiming", "xavier", "orthogonal", "default"] = (
        "kaiming"  # MS and Proxy-Anchor code; orthogonal: Hyp; default: torch's
    )


class _Recipe(Strict):
    """What every method needs."""

    backbone: Backbone = Backbone()
    input: Input = Input()
    batch: Batch = Batch()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    training: Training = Training()

    @model_validator(mode="after")
    def _pairs(self) -> "_Recipe":
        """A batch of single images has no positive pair; a memory holds the second set of a pair loss; a loss
        of tuples takes batches of tuples."""
        loss, memory = getattr(self, "loss", None), getattr(self, "memory", None)
        pairs = isinstance(loss, AnyPairLoss | HybridLoss)
        alone = self.batch.images_per_class == 1 and self.batch.sampling == "classes"
        if pairs and alone and memory is None:
            raise ValueError(
                "batch.images_per_class must be at least 2: a pair loss needs two images of a class, got 1"
            )
        tuples = isinstance(loss, TupleContrastiveLoss)
        if tuples != (self.batch.sampling == "tuples"):
            raise ValueError(
                f"loss tuple_contrastive and sampling tuples go together, got {getattr(loss, 'name', None)} "
                f"and {self.batch.sampling}"
            )
        if tuples and self.training.fold is not None:
            raise ValueError(
                "batches of tuples take the data set's own validation classes: training.fold must be null"
            )
        if isinstance(loss, TupleContrastiveLoss) and self.batch.images_per_class != 2 + loss.negatives:
            raise ValueError(
                "a tuple is a query, a positive and loss.negatives: batch.images_per_class must be "
                f"{2 + loss.negatives}, "
                f"got {self.batch.images_per_class}"
            )
        if memory is not None and not isinstance(loss, AnyPairLoss):
            raise ValueError(
                f"a memory stands behind a pair loss, and loss is {getattr(loss, 'name', None)}: set memory "
                "to null or choose a pair loss"
            )
        return self


class BaselineRecipe(_Recipe):
    """A pooled feature map, one linear layer, one loss: every baseline of the papers, and the yardstick under
    the same protocol."""

    module: ClassVar[str] = "pipeline.methods.baseline:Baseline"
    method: Literal["baseline"] = "baseline"
    pooling: Pooling = AveragePooling()
    dim: Count | None = 128  # None: no projection
    projection: Projection = Projection()
    loss: Loss = MultiSimilarityLoss()
    memory: CrossBatchMemory | None = None


class CrtBranch(Strict):
    """One coded residual transform (CRT sec. 3.1): prototypes M, embedding D, hidden width of each
    prototype's network."""

    prototypes: Count
    dim: Count
    hidden: Count = 128  # not stated in the paper
    loss_weight: NonNegative  # lambda_1 of this branch


class CrtRecipe(_Recipe):
    """Coded Residual Transform. Test embedding: branch `embedding`; branch `auxiliary` exists in training
    only."""

    module: ClassVar[str] = "pipeline.methods.crt:Crt"
    method: Literal["crt"] = "crt"
    backbone: Backbone = Backbone(name="mit_b2")
    embedding: CrtBranch = CrtBranch(prototypes=49, dim=128, loss_weight=1.0)  # sec. 3.3
    auxiliary: CrtBranch = CrtBranch(
        prototypes=64, dim=1024, loss_weight=0.1
    )  # sec. 3.3; 0.9 for SOP and In-Shop
    transform: Literal["coded_residual", "average"] = (
        "coded_residual"  # average: pooled branches, the row of table 6 without CRT
    )
    networks: Literal["separate", "shared"] = "separate"  # the embedding network of each prototype (table 7)
    branches: Literal["separate", "shared"] = (
        "separate"  # shared: same prototypes and first layers, a last layer each (tables 9 and 10)
    )
    diversity_weight: NonNegative = 1.0
    consistency_weight: NonNegative = 0.9  # lambda_2
    loss: PairLoss = MultiSimilarityLoss()

    @model_validator(mode="after")
    def _shareable(self) -> "CrtRecipe":
        first, second = self.embedding, self.auxiliary
        if self.branches == "shared" and (first.prototypes, first.hidden) != (
            second.prototypes,
            second.hidden,
        ):
            raise ValueError(
                "branches: shared takes the same prototypes and hidden in embedding and auxiliary, "
                f"got {first.prototypes} and {second.prototypes}, {first.hidden} and {second.hidden}"
            )
        return self


class MultiheadRecipe(_Recipe):
    """Multi-Head global and local DML: two maps of the backbone, second-order attention, hybrid loss."""

    module: ClassVar[str] = "pipeline.methods.multihead:Multihead"
    method: Literal["multihead"] = "multihead"
    backbone: Backbone = Backbone(stages=(-2, -1))  # local, global
    heads: Literal["both", "local", "global", "single"] = (
        "both"  # single: one head over both maps, by a focus layer (sec. 4.5)
    )
    dim: Annotated[int, Field(ge=2)] = 512  # D; two heads give D/2 each
    attention: bool = True
    attention_scale: Positive | None = 1.0  # zeta; None is 1/sqrt(channels) as in SOLAR
    attention_reduction: tuple[Count, Count] = (4, 2)  # local, global (SOLAR); a single head takes the second
    loss: Loss = HybridLoss(
        pair=MultiSimilarityLoss(
            alpha=2.0, beta=50.0, threshold=0.5
        ),  # sec. 4.2; threshold: that of the released MS code
        proxy=ProxyAnchorLoss(),
        proxy_weight=0.03,  # lambda
    )

    @model_validator(mode="after")
    def _fits(self) -> "MultiheadRecipe":
        if len(self.backbone.stages) != 2:
            raise ValueError(
                "multihead reads two feature maps (local, global): backbone.stages must hold two indices, "
                f"got {self.backbone.stages}"
            )
        if self.heads == "both" and self.dim % 2:
            raise ValueError(f"dim must be even: two heads give half of it each, got {self.dim}")
        return self


class GspRecipe(_Recipe):
    """Generalized Sum Pooling over a 1 x 1 projection, any loss, zero-shot prediction loss."""

    module: ClassVar[str] = "pipeline.methods.gsp:Gsp"
    method: Literal["gsp"] = "gsp"
    backbone: Backbone = Backbone(
        name="bn_inception", batch_norm="fixed"
    )  # released code: batch norms are not trainable
    dim: Count | None = 128  # None: no projection, pooling `gsp` alone
    pooling: AttributePooling = GspPooling()
    loss: Loss = MultiSimilarityLoss(mining_margin=None)  # released code: no miner
    zero_shot: ZeroShotLoss | None = ZeroShotLoss()
    memory: CrossBatchMemory | None = None


class IrtRecipe(_Recipe):
    """Image Retrieval Transformer: CLS token, contrastive loss with a cross-batch memory, KoLeo."""

    module: ClassVar[str] = "pipeline.methods.irt:Irt"
    method: Literal["irt"] = "irt"
    backbone: Backbone = Backbone(name="deit_small_patch16_224")
    pooling: Pooling = ClsPooling()
    dim: Count | None = None  # no projection
    projection: Projection = Projection()
    loss: Loss = ContrastiveLoss(margin=0.5)  # beta
    memory: CrossBatchMemory | None = CrossBatchMemory(share=1.0, with_batch=False)
    koleo_weight: NonNegative = 0.7  # lambda


Recipe = BaselineRecipe | CrtRecipe | MultiheadRecipe | GspRecipe | IrtRecipe
_ADAPTER: TypeAdapter[Recipe] = TypeAdapter(Annotated[Recipe, Field(discriminator="method")])


_METHODS = {cls.model_fields["method"].default: cls for cls in get_args(Recipe)}


def default_recipe(method: str, where: str) -> Recipe:
    """The published recipe of a method. Raises UserError for a method that does not exist."""
    if method not in _METHODS:
        raise UserError(
            f"{where}: `method` must be one of {', '.join(_METHODS)}, got {method!r}.",
            "Say there which method it is.",
        )
    return _METHODS[method]()


def parse_recipe(value: dict[str, Any]) -> Recipe:
    """The recipe of a dict such as recipe.json holds. Raises pydantic.ValidationError."""
    return _ADAPTER.validate_json(as_json(value))
