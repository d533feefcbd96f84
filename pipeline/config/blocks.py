"""The blocks of every recipe: network, images, batch, optimizer, schedule, training. Defaults are published
constants; the comment beside each names its source.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline.config.strict import Strict

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Scalar = bool | int | float | str


class Backbone(Strict):
    """A network and the feature maps a method reads from it."""

    # A name of timm, with or without the tag of its weights, or googlenet, bn_inception, mit_b1, mit_b2,
    # resnet20_preact. tv_in1k: torchvision's first weights, from which the compared ResNets start (IRT table
    # 1: 76.2% top-1; MS, Proxy-Anchor and ProxyNCA++ code). The default tag of timm, a1_in1k, is another
    # training on ImageNet.
    name: str = "resnet50.tv_in1k"
    pretrained: bool = True  # the published weights; false trains from scratch
    checkpoint: str | None = (
        None  # a .safetensors or weights-only .pth file under the published key names; wins over `pretrained`
    )
    arguments: dict[str, Scalar] = {}  # passed to timm.create_model, e.g. img_size, pad_type, drop_path_rate
    stages: tuple[int, ...] = (-1,)  # which of its feature maps, coarsest last
    batch_norm: Literal["frozen", "fixed", "batch"] = (
        "frozen"  # frozen: running statistics, as most of the field trains; fixed: scale and shift too
    )


class Input(Strict):
    """How a picture becomes a tensor. Test: shorter side to `resize`, centre crop `size`. Train: `crop_scale`
    of the area, resized to `size`.

    fit `square`: the whole picture becomes a square of `resize`, whatever its shape, and what follows happens
    to that: crop_ratio, too, is one of the square. With resize null, and in training crop_scale and
    crop_ratio [1, 1], nothing is cut off (IRT section 4.2).
    """

    size: Count = 227  # MS and CBML code
    resize: Count | None = 256  # None: resize to `size`
    fit: Literal["shorter", "square"] = "shorter"  # what becomes `resize`: the shorter side, or both
    interpolation: Literal["bilinear", "bicubic"] = (
        "bilinear"  # MS, Proxy-Anchor, XBM, GSP code; bicubic: DeiT and Hyp code, hence IRT
    )
    crop_scale: tuple[Positive, Positive] = (0.16, 1.0)  # MS and CBML code
    crop_ratio: tuple[Positive, Positive] = (0.75, 1.3333333333333333)
    flip: Share = 0.5
    mean: tuple[float, float, float] | None = (
        None  # of RGB in [0, 1]; None: what the network was trained with, ImageNet's for most
    )
    std: tuple[Positive, Positive, Positive] | None = None

    @model_validator(mode="after")
    def _ordered(self) -> "Input":
        if not self.crop_scale[0] <= self.crop_scale[1] <= 1:
            raise ValueError(
                f"crop_scale must be two ascending shares of the image's area, got {self.crop_scale}"
            )
        if self.resize is not None and self.resize < self.size:
            raise ValueError(f"resize ({self.resize}) must not be smaller than the crop size ({self.size})")
        return self


class Batch(Strict):
    """The global batch, whatever the number of workers: `classes` classes of `images_per_class` images each
    (P x K).

    `shuffled` draws as many images without looking at their classes, each once an epoch (Proxy-Anchor code;
    the last, smaller batch is left out). `tuples` draws `classes` tuples of `images_per_class` images: a
    query and a positive from the data set's pairs, and the hardest negatives, one of a class, that the
    network of the epoch's beginning finds in a random pool (IRT section 4.2, cnnimageretrieval-pytorch). The
    data set says which of its train classes are for validation.
    """

    classes: Count = 16
    images_per_class: Count = 5
    sampling: Literal["classes", "shuffled", "tuples"] = "classes"
    pairs: Count = 2_000  # tuples: pairs of an epoch (cnnimageretrieval-pytorch)
    pool: Count = 22_000  # tuples: images of an epoch among which negatives are sought

    @property
    def size(self) -> int:
        return self.classes * self.images_per_class


class Optimizer(Strict):
    name: Literal["adam", "adamw", "sgd", "rmsprop"] = "adam"
    learning_rate: Positive = 3e-5
    weight_decay: NonNegative = 5e-4
    decay_vectors: bool | None = (
        None  # whether biases, norms and other one-dimensional weights decay; None: all but adamw
    )
    betas: tuple[Share, Share] = (0.9, 0.999)  # adam, adamw
    epsilon: Positive = 1e-8  # all but sgd; ProxyNCA++ takes 1
    momentum: Share = 0.9  # sgd, rmsprop
    nesterov: bool = False  # sgd
    multipliers: dict[
        str, Positive
    ] = {}  # learning-rate factor of a parameter group: backbone, head, proxies
    layer_decay: Annotated[float, Field(gt=0, le=1)] = (
        1.0  # learning-rate factor from each layer of the backbone to the one before it
    )
    new_layers_only: Annotated[int, Field(ge=0)] = 0  # first iterations, in which the backbone stays as it is
    clip_norm: Positive | None = None  # global gradient norm (GSP code: 10)
    clip_value: Positive | None = (
        None  # of each element, after the norm (Proxy-Anchor, ProxyNCA++ and GSP code: 10)
    )


class Schedule(Strict):
    """Learning-rate factor over the iterations: linear warm-up, then constant, steps, a half cosine to zero,
    or steps where validation stalls."""

    name: Literal["constant", "step", "cosine", "plateau"] = "constant"
    warmup: Annotated[int, Field(ge=0)] = 0  # iterations
    milestones: tuple[Count, ...] = ()  # step, iterations
    every: Count | None = None  # step, iterations between further steps
    factor: Annotated[float, Field(gt=0, le=1)] = 0.1  # step, plateau
    patience: Annotated[int, Field(ge=0)] = 4  # plateau: validations without a gain that are borne
    # plateau: a gain exceeds the best value by more than this share of it (torch's; ProxyNCA++ code)
    threshold: NonNegative = 1e-4
    cooldown: Annotated[int, Field(ge=0)] = 0  # plateau: validations after a step that do not count
    minimum: Share = 0.0  # plateau: of the factor


class Fold(Strict):
    """Model 1 .. folds of the MLRC protocol: its block of the train classes is what validation holds out
    (pipeline/data/folds.py)."""

    model: Count
    folds: Annotated[int, Field(ge=2)] = 4

    @model_validator(mode="after")
    def _numbered(self) -> "Fold":
        if self.model > self.folds:
            raise ValueError(f"models are numbered 1 to {self.folds}, got {self.model}")
        return self


class Training(Strict):
    iterations: Annotated[int, Field(ge=0)] = 3000  # 0: the network off the shelf
    validate_every: Count = 200  # iterations
    patience: Count | None = None  # validations without a gain before the run stops; None trains to the end
    minimum_gain: NonNegative = (
        0.0  # of the selection metric, below which a validation is no gain (GSP code: 1e-5)
    )
    # the backbone through torch.compile: faster on a GPU after a minute or so; rounds in another order
    compile: bool = False
    precision: Literal["float32", "bfloat16", "auto"] = (
        "auto"  # auto: bfloat16 on a GPU that has it, float32 elsewhere
    )
    validation_share: Annotated[float, Field(gt=0, lt=1)] = (
        0.2  # of the *train* classes are held out, where the data set has no part for it
    )
    fold: Fold | None = (
        None  # a block of the *train* classes is held out instead of that share; stage `ensemble` says which
    )
    gradient_noise: str | None = (
        # loss term whose gradient covariance is recorded (IRT fig. 4: contrastive); loss: the sum of all
        None
    )
    # also judge the test classes at each validation and keep their best iterate, as many papers report;
    # chooses nothing
    watch_test: bool = False
    selection_metric: Literal["map_at_r", "recall_at_1", "r_precision"] = "map_at_r"
