"""One recipe per method. The defaults are the published setting; names follow the paper."""

import operator
from typing import Annotated, Any, ClassVar, Literal, cast, get_args

from pydantic import Field, SerializeAsAny, TypeAdapter, model_validator

from unseen.data.settings import AnyBatch, AnyInput, Batch, Fold, Input
from unseen.losses.settings import (
    ContrastiveLoss,
    CrossBatchMemory,
    HybridLoss,
    Loss,
    MultiSimilarityLoss,
    PairLoss,
    ProxyAnchorLoss,
    ZeroShotLoss,
)
from unseen.networks.settings import AnyBackbone, Backbone
from unseen.poolings.settings import AttributePooling, AveragePooling, ClsPooling, GspPooling, Pooling
from unseen.runtime.parts import PartSettings, opened, outside
from unseen.runtime.settings import Count, NonNegative, Positive, Share, Strict, as_json


class Cost(Strict):
    """The cost of the embedding of one image (pipeline/methods/cost.py)."""

    parameters: int
    flops: int


class StepCost(Strict):
    """The cost of a training step on one device (pipeline/training/cost.py)."""

    flops: int
    moved: int  # bytes
    fixed: int  # bytes of memory, whatever the number of images
    per_image: float  # bytes of memory

    def memory(self, images: int) -> int:
        """Bytes with this many images in a pass."""
        return round(self.fixed + self.per_image * images)

    def images(self, memory: float) -> int:
        """The most images of a pass that fit into this many bytes."""
        return max(0, int((memory - self.fixed) / self.per_image)) if self.per_image else 0


class Optimizer(Strict):
    name: Literal["adam", "adamw", "sgd", "rmsprop"] = "adam"
    learning_rate: Positive = 3e-5
    weight_decay: NonNegative = 5e-4
    # whether weight decay applies to biases, norms and other one-dimensional weights; None: yes, except adamw
    decay_vectors: bool | None = None
    betas: tuple[Share, Share] = (0.9, 0.999)  # adam, adamw
    epsilon: Positive = 1e-8  # all but sgd; 1 for ProxyNCA++
    momentum: Share = 0.9  # sgd, rmsprop
    nesterov: bool = False  # sgd
    # learning-rate factor of a parameter group: backbone, head, proxies
    multipliers: dict[str, Positive] = {}
    # weight-decay factor of a parameter group
    decay: dict[str, NonNegative] = Field(default={}, exclude_if=operator.not_)
    # pull of the backbone to its initial weights, times the learning rate (L2-SP: Li et al. 2018, eq. 2)
    anchor: NonNegative = Field(default=0.0, exclude_if=operator.not_)
    # ratio of the learning rate of a backbone layer to that of the next layer
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    new_layers_only: Annotated[int, Field(ge=0)] = 0  # first iterations, in which the backbone is not trained
    clip_norm: Positive | None = None  # global gradient norm (GSP code: 10)
    # of each element, after the norm (Proxy-Anchor, ProxyNCA++ and GSP code: 10)
    clip_value: Positive | None = None


class Schedule(Strict):
    """Learning-rate factor over the iterations: linear warm-up, then constant, steps, a half cosine to zero,
    or steps where validation stalls."""

    name: Literal["constant", "step", "cosine", "plateau"] = "constant"
    warmup: Annotated[int, Field(ge=0)] = 0  # iterations
    milestones: tuple[Count, ...] = ()  # step, iterations
    every: Count | None = None  # step, iterations between further steps
    factor: Annotated[float, Field(gt=0, le=1)] = 0.1  # step, plateau
    patience: Annotated[int, Field(ge=0)] = 4  # plateau: validations without a gain before a step
    # plateau: a gain exceeds the best value by more than this share of it (torch's default; ProxyNCA++ code)
    threshold: NonNegative = 1e-4
    cooldown: Annotated[int, Field(ge=0)] = 0  # plateau: validations after a step that do not count
    minimum: Share = 0.0  # plateau: of the factor


class Training(Strict):
    """Length of training, and the protocol: which train classes are trained on, and which iterate is the
    result.

    `selected`: the iterate is selected on held-out train classes (`validation_share`, `fold`, or the images
    that the data set holds out itself). `published`: all train classes, `iterations` steps, the last iterate;
    no validation. `refit`: first as `selected`; then a new training on all train classes, which ends after as
    many steps as the selected iterate had, with the same learning rate at each step; its last iterate. Images
    that a data set itself holds out are never trained on.
    """

    protocol: Literal["selected", "published", "refit"] = "selected"
    iterations: Annotated[int, Field(ge=0)] = 3000  # 0: the pretrained network without training
    validate_every: Count = 200  # iterations
    patience: Count | None = None  # validations without a gain before the run stops; None: never stop early
    # smallest increase of the selection metric that counts as a gain (GSP code: 1e-5)
    minimum_gain: NonNegative = 0.0
    # of torch on a CPU, per worker: with another number, sums round differently. With more than there are
    # cores, the result is the same and takes longer.
    threads: Annotated[int, Field(ge=1, le=1024)] = 2
    # torch.compile for the backbone, head and loss of a training step (pipeline/training/compiled.py): fewer
    # kernels, after some minutes; float sums are rounded differently. auto: on a GPU from 1,000 steps on
    compile: bool | Literal["auto"] = False
    # auto: bfloat16 if the GPU, or the CPU (AVX512_BF16, AMX), of every worker computes with it
    precision: Literal["float32", "bfloat16", "auto"] = "auto"
    # share of the *train* classes to hold out, if the data set defines no validation classes
    validation_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    # hold out a block of the *train* classes instead of that share; stage `train_fold` has one
    fold: Fold | None = None
    # loss term whose gradient covariance is recorded (IRT fig. 4: contrastive); loss: the sum of all terms
    gradient_noise: str | None = None
    # also evaluate the test classes at each validation and record their best value, as many papers report;
    # this selects nothing
    watch_test: bool = False
    selection_metric: Literal["map_at_r", "recall_at_1", "r_precision"] = "map_at_r"
    # the last linear layer of each head: as the method draws it, or the principal directions of what it reads
    # (pipeline/training/principal_start.py)
    start: Literal["random", "principal"] = Field(
        default="random", exclude_if=lambda start: start == "random"
    )

    @property
    def module(self) -> str | None:
        """The function of the start, None for a random one."""
        principal = "unseen.training.principal_start:start_at_principal_directions"
        return principal if self.start == "principal" else None

    @model_validator(mode="after")
    def _validates(self) -> "Training":
        if self.protocol == "published" and self.patience is not None:
            raise ValueError(
                "protocol published has no validation: set training.patience to null, or training.protocol "
                "to refit, which chooses the length by validation"
            )
        if self.protocol != "selected" and self.fold is not None:
            raise ValueError(
                f"training.fold holds out classes, but protocol {self.protocol} trains on all of them: set "
                "training.protocol to selected"
            )
        return self


class Projection(Strict):
    """The linear layer from the pooled features to the embedding. It exists if `dim` is set."""

    bias: bool = True
    layer_norm: bool = False  # in front of it, without scale and shift (ProxyNCA++, normalised softmax)
    # MS and Proxy-Anchor code; orthogonal: Hyp; default: torch's
    initialization: Literal["kaiming", "xavier", "orthogonal", "default"] = "kaiming"


class _Recipe(Strict):
    """The fields of every recipe."""

    backbone: AnyBackbone = Backbone()
    input: AnyInput = Input()
    batch: AnyBatch = Batch()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    training: Training = Training()

    @model_validator(mode="after")
    def _pairs(self) -> "_Recipe":
        """A pair loss without a memory needs two images of a class in a batch. A memory needs a pair loss.
        The tuple loss needs batches of tuples of its size."""
        loss, memory = getattr(self, "loss", None), getattr(self, "memory", None)
        inputs = () if loss is None else tuple(part.inputs for part, _ in loss.parts)
        single_images = self.batch.images_per_class == 1 and self.batch.sampling == "classes"
        if "pairs" in inputs and single_images and memory is None:
            raise ValueError(
                "batch.images_per_class must be at least 2: a pair loss needs two images of a class, got 1"
            )
        loss_name = getattr(loss, "name", None)
        is_tuple_loss = inputs == ("tuples",)
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
        if loss is not None and is_tuple_loss and self.batch.images_per_class != 2 + loss.negatives:
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
        if memory is not None and inputs != ("pairs",):
            raise ValueError(
                f"a memory needs a pair loss, got loss {loss_name}: set memory to null or choose a pair loss"
            )
        return self


class BaselineRecipe(_Recipe):
    """A pooled feature map, one linear layer, one loss: every baseline of the papers."""

    module: ClassVar[str] = "unseen.methods.baseline:Baseline"
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

    module: ClassVar[str] = "unseen.methods.crt:Crt"
    positions: ClassVar[str] = "unseen.methods.explain.crt:position_weights"
    method: Literal["crt"] = "crt"
    backbone: AnyBackbone = Backbone(name="mit_b2")
    embedding: CrtBranch = CrtBranch(prototypes=49, dim=128, loss_weight=1.0)  # sec. 3.3
    # sec. 3.3; 0.9 for SOP and In-Shop
    auxiliary: CrtBranch = CrtBranch(prototypes=64, dim=1024, loss_weight=0.1)
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

    module: ClassVar[str] = "unseen.methods.multihead:Multihead"
    positions: ClassVar[str] = "unseen.methods.explain.multihead:position_weights"
    method: Literal["multihead"] = "multihead"
    backbone: AnyBackbone = Backbone(stages=(-2, -1))  # local, global
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

    module: ClassVar[str] = "unseen.methods.gsp:Gsp"
    method: Literal["gsp"] = "gsp"
    # released code: batch norms are not trainable
    backbone: AnyBackbone = Backbone(name="bn_inception", batch_norm="fixed")
    dim: Count | None = 128  # None: no projection; only pooling `gsp` allows it
    pooling: AttributePooling = GspPooling()
    loss: Loss = MultiSimilarityLoss(mining_margin=None)  # released code: no miner
    zero_shot: ZeroShotLoss | None = ZeroShotLoss()
    memory: CrossBatchMemory | None = None


class IrtRecipe(_Recipe):
    """Image Retrieval Transformer: CLS token, contrastive loss with a cross-batch memory, KoLeo."""

    module: ClassVar[str] = "unseen.methods.irt:Irt"
    method: Literal["irt"] = "irt"
    backbone: AnyBackbone = Backbone(name="deit_small_patch16_224.fb_in1k")
    pooling: Pooling = ClsPooling()
    dim: Count | None = None  # no projection
    projection: Projection = Projection()
    loss: Loss = ContrastiveLoss(margin=0.5)  # beta
    memory: CrossBatchMemory | None = CrossBatchMemory(share=1.0, with_batch=False)
    koleo_weight: NonNegative = 0.7  # lambda


class OutsideRecipe(_Recipe, PartSettings):
    """The recipe of a method of a user, `method: package.module:Class`: the fields of `baseline` and those of
    its class `Settings`, a subclass of this one.

    positions: the function `package.module:function` that computes its weights of positions
    (pipeline/methods/explain).
    """

    key: ClassVar[str] = "method"
    required: ClassVar[tuple[str, ...]] = ("Settings",)
    base_class: ClassVar[str] = "unseen.methods.method:Method"
    module: ClassVar[str]
    positions: ClassVar[str | None] = None
    method: str
    pooling: Pooling = AveragePooling()
    dim: Count | None = 128
    projection: Projection = Projection()
    loss: Loss = MultiSimilarityLoss()
    memory: CrossBatchMemory | None = None


_Own = BaselineRecipe | CrtRecipe | MultiheadRecipe | GspRecipe | IrtRecipe
_OWN: TypeAdapter[_Own] = TypeAdapter(Annotated[_Own, Field(discriminator="method")])
Recipe = _Own | OutsideRecipe
AnyRecipe = SerializeAsAny[
    Annotated[Recipe, opened(OutsideRecipe, lambda value: _OWN.validate_json(as_json(value)))]
]
_ADAPTER: TypeAdapter[Recipe] = TypeAdapter(AnyRecipe)
# the classes of recipe, by their `method`
CLASSES = {cls.model_fields["method"].default: cls for cls in get_args(_Own)}


def recipe_class(method: str) -> type[Recipe]:
    """The class of recipe of a `method`. Raises as `parts.outside` does."""
    return cast("type[Recipe]", CLASSES.get(method) or outside(OutsideRecipe, {"method": method}))


def parse_recipe(value: dict[str, Any]) -> Recipe:
    """The recipe from plain values, as in recipe.json. Raises pydantic.ValidationError."""
    return _ADAPTER.validate_json(as_json(value))
