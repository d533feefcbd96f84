"""The blocks of every recipe: network, images, batch, optimizer, schedule, training. Defaults are published
constants. The comment on each names its source.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline.config.strict import Strict

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]  # FAISS stores a seed in 32 bits
Scalar = bool | int | float | str


class Backbone(Strict):
    """A network and the feature maps a method reads from it."""

    # A name of timm, with the tag of its weights (without it timm chooses), or googlenet, bn_inception,
    # mit_b1, mit_b2, resnet20_preact; docs/weights.md. tv_in1k: torchvision's first weights, from which the
    # compared ResNets start (IRT table 1: 76.2% top-1; MS, Proxy-Anchor and ProxyNCA++ code). timm's default
    # tag, a1_in1k, names weights of a different training on ImageNet.
    name: str = "resnet50.tv_in1k"
    pretrained: bool = True  # start from the published weights; false: from random weights
    # a .safetensors or weights-only .pth file with the published key names; overrides `pretrained`
    checkpoint: str | None = None
    arguments: dict[str, Scalar] = {}  # passed to timm.create_model, e.g. img_size, pad_type, drop_path_rate
    stages: tuple[int, ...] = (-1,)  # indices of the feature maps to read, coarsest last
    # frozen: running statistics, as in most published code; fixed: frozen, and scale and shift are not
    # trained
    batch_norm: Literal["frozen", "fixed", "batch"] = "frozen"
    # share of a new batch in the running statistics, in torch's convention; None: that of the network, mostly
    # 0.1
    batch_norm_momentum: Annotated[float, Field(gt=0, le=1)] | None = None


class Input(Strict):
    """How an image becomes a tensor. Test: resize the shorter side to `resize`, then crop the centre to
    `size`. Train: crop a random share `crop_scale` of the area, then resize it to `size`.

    fit `square`: the whole image is first resized to a square of side `resize`, whatever its shape. Crops,
    and so crop_ratio, refer to that square. With resize null, and in training crop_scale and crop_ratio [1,
    1], nothing is cut off (IRT section 4.2).
    """

    size: Count = 227  # MS and CBML code
    resize: Count | None = 256  # None: resize to `size`
    fit: Literal["shorter", "square"] = "shorter"  # which sides become `resize`: the shorter one, or both
    # MS, Proxy-Anchor, XBM, GSP code; bicubic: DeiT and Hyp code, hence IRT
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    crop_scale: tuple[Positive, Positive] = (0.16, 1.0)  # MS and CBML code
    crop_ratio: tuple[Positive, Positive] = (0.75, 1.3333333333333333)
    flip: Share = 0.5
    # of RGB in [0, 1]; None: the values of the network's pretraining, ImageNet's for most networks
    mean: tuple[float, float, float] | None = None
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
    """The global batch, for any number of workers: `classes` classes with `images_per_class` images each
    (P x K).

    `shuffled` draws the same number of images regardless of class, each image once per epoch (Proxy-Anchor
    code; the last, smaller batch is omitted). `tuples` draws `classes` tuples of `images_per_class` images: a
    query, a positive from the data set's pairs, and the hardest negatives, at most one per class. Negatives
    are mined in a random pool with the network as it is at the start of the epoch (IRT section 4.2,
    cnnimageretrieval-pytorch). The data set defines which of its train classes are for validation.
    """

    classes: Count = 16
    images_per_class: Count = 5
    sampling: Literal["classes", "shuffled", "tuples"] = "classes"
    pairs: Count = 2_000  # tuples: pairs per epoch (cnnimageretrieval-pytorch)
    pool: Count = 22_000  # tuples: images per epoch among which negatives are mined

    @property
    def size(self) -> int:
        return self.classes * self.images_per_class


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
    multipliers: dict[
        str, Positive
    ] = {}  # learning-rate factor of a parameter group: backbone, head, proxies
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


class Fold(Strict):
    """Model 1 .. `folds` of the MLRC protocol: validation holds out block `model` of the train classes
    (pipeline/data/folds.py)."""

    model: Count
    folds: Annotated[int, Field(ge=2)] = 4

    @model_validator(mode="after")
    def _numbered(self) -> "Fold":
        if self.model > self.folds:
            raise ValueError(f"models are numbered 1 to {self.folds}, got {self.model}")
        return self


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
    # kernels, after some minutes; float sums are rounded differently
    compile: bool = False
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
