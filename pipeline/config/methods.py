"""One recipe per method. The defaults are the published setting; names follow the paper."""

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
    """The linear layer from the pooled features to the embedding. It exists if `dim` is set."""

    bias: bool = True
    layer_norm: bool = False  # in front of it, without scale and shift (ProxyNCA++, normalised softmax)
    # MS and Proxy-Anchor code; orthogonal: Hyp; default: torch's
    initialization: Literal["kaiming", "xavier", "orthogonal", "default"] = "kaiming"


class _Recipe(Strict):
    """The fields of every recipe."""

    backbone: Backbone = Backbone()
    input: Input = Input()
    batch: Batch = Batch()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    training: Training = Training()

    @model_validator(mode="after")
    def _pairs(self) -> "_Recipe":
        """A pair loss without a memory needs two images of a class in a batch. A memory needs a pair loss.
        The tuple loss needs batches of tuples of its size."""
        loss, memory = getattr(self, "loss", None), getattr(self, "memory", None)
        is_pair_loss = isinstance(loss, AnyPairLoss | HybridLoss)
        single_images = self.batch.images_per_class == 1 and self.batch.sampling == "classes"
        if is_pair_loss and single_images and memory is None:
            raise ValueError(
                "batch.images_per_class must be at least 2: a pair loss needs two images of a class, got 1"
            )
        loss_name = getattr(loss, "name", None)
        is_tuple_loss = isinstance(loss, TupleContrastiveLoss)
        if is_tuple_loss != (self.batch.sampling == "tuples"):
            raise ValueError(
                "loss.name tuple_contrastive and batch.sampling tuples require each other, "
                f"got {loss_name} and {self.batch.sampling}"
            )
        if is_tuple_loss and self.training.fold is not None:
            raise ValueError(
                "with batch.sampling tuples the data set defines the validation classes: "
                "training.fold must be null"
            )
        if isinstance(loss, TupleContrastiveLoss) and self.batch.images_per_class != 2 + loss.negatives:
            raise ValueError(
                "a tuple is a query, a positive and loss.negatives: batch.images_per_class must be "
                f"{2 + loss.negatives}, got {self.batch.images_per_class}"
            )
        if is_tuple_loss and self.training.protocol == "refit":
            raise ValueError(
                "with batch.sampling tuples the data set defines the validation classes, which are never "
                "trained on: set training.protocol to selected or published, got refit"
            )
        if self.training.protocol == "published" and self.schedule.name == "plateau":
            raise ValueError(
                "protocol published has no validation, which schedule plateau needs: set schedule.name to "
                "step, or training.protocol to refit"
            )
        if memory is not None and not isinstance(loss, AnyPairLoss):
            raise ValueError(
                f"a memory needs a pair loss, got loss {loss_name}: set memory to null or choose a pair loss"
            )
        return self


class BaselineRecipe(_Recipe):
    """A pooled feature map, one linear layer, one loss: every baseline of the papers."""

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
    """Coded Residual Transform. Branch `embedding` gives the test embedding. Branch `auxiliary` exists only
    in training."""

    module: ClassVar[str] = "pipeline.methods.crt:Crt"
    positions: ClassVar[str] = "pipeline.methods.positions.crt:position_weights"
    method: Literal["crt"] = "crt"
    backbone: Backbone = Backbone(name="mit_b2")
    embedding: CrtBranch = CrtBranch(prototypes=49, dim=128, loss_weight=1.0)  # sec. 3.3
    auxiliary: CrtBranch = CrtBranch(
        prototypes=64, dim=1024, loss_weight=0.1
    )  # sec. 3.3; 0.9 for SOP and In-Shop
    # average: pooled branches, the row of table 6 without CRT
    transform: Literal["coded_residual", "average"] = "coded_residual"
    networks: Literal["separate", "shared"] = "separate"  # the embedding network of each prototype (table 7)
    # shared: both branches share prototypes and first layers; each has its own last layer (tables 9 and 10)
    branches: Literal["separate", "shared"] = "separate"
    diversity_weight: NonNegative = 1.0
    consistency_weight: NonNegative = 0.9  # lambda_2
    loss: PairLoss = MultiSimilarityLoss()

    @model_validator(mode="after")
    def _shareable(self) -> "CrtRecipe":
        first, second = self.embedding, self.auxiliary
        equal = (first.prototypes, first.hidden) == (second.prototypes, second.hidden)
        if self.branches == "shared" and not equal:
            raise ValueError(
                "branches: shared needs the same prototypes and hidden in embedding and auxiliary, "
                f"got {first.prototypes} and {second.prototypes}, {first.hidden} and {second.hidden}"
            )
        return self


class MultiheadRecipe(_Recipe):
    """Multi-Head global and local DML: two feature maps of the backbone, second-order attention, hybrid
    loss."""

    module: ClassVar[str] = "pipeline.methods.multihead:Multihead"
    positions: ClassVar[str] = "pipeline.methods.positions.multihead:position_weights"
    method: Literal["multihead"] = "multihead"
    backbone: Backbone = Backbone(stages=(-2, -1))  # local, global
    # single: one head over both maps, by a focus layer (sec. 4.5)
    heads: Literal["both", "local", "global", "single"] = "both"
    dim: Annotated[int, Field(ge=2)] = 512  # D; two heads give D/2 each
    attention: bool = True
    attention_scale: Positive | None = 1.0  # zeta; None is 1/sqrt(channels) as in SOLAR
    attention_reduction: tuple[Count, Count] = (4, 2)  # local, global (SOLAR); a single head uses the second
    loss: Loss = HybridLoss(
        # sec. 4.2; the threshold is that of the released MS code
        pair=MultiSimilarityLoss(alpha=2.0, beta=50.0, threshold=0.5),
        proxy=ProxyAnchorLoss(),
        proxy_weight=0.03,  # lambda
    )

    @model_validator(mode="after")
    def _fits(self) -> "MultiheadRecipe":
        if len(self.backbone.stages) != 2:
            raise ValueError(
                "multihead reads two feature maps (local, global): backbone.stages must contain two indices, "
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
    dim: Count | None = 128  # None: no projection; only pooling `gsp` allows it
    pooling: AttributePooling = GspPooling()
    loss: Loss = MultiSimilarityLoss(mining_margin=None)  # released code: no miner
    zero_shot: ZeroShotLoss | None = ZeroShotLoss()
    memory: CrossBatchMemory | None = None


class IrtRecipe(_Recipe):
    """Image Retrieval Transformer: CLS token, contrastive loss with a cross-batch memory, KoLeo."""

    module: ClassVar[str] = "pipeline.methods.irt:Irt"
    method: Literal["irt"] = "irt"
    backbone: Backbone = Backbone(name="deit_small_patch16_224.fb_in1k")
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
            "Correct `method`.",
        )
    return _METHODS[method]()


def parse_recipe(value: dict[str, Any]) -> Recipe:
    """The recipe from plain values, as in recipe.json. Raises pydantic.ValidationError."""
    return _ADAPTER.validate_json(as_json(value))
