"""The settings of images, batches and folds. Defaults are published constants."""

import operator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny, model_validator

from unseen.runtime.parts import Calls, PartSettings, arguments_of, opened
from unseen.runtime.settings import Count, Positive, Share, Strict


class Input(PartSettings):
    """How an image becomes a tensor. Test: resize the shorter side to `resize`, then crop the centre to
    `size`. Train: crop a random share `crop_scale` of the area, then resize it to `size`.

    fit `square`: the whole image is first resized to a square of side `resize`, whatever its shape. Crops,
    and so crop_ratio, refer to that square. With resize null, and in training crop_scale and crop_ratio [1,
    1], nothing is cut off (IRT section 4.2).
    """

    given: ClassVar[tuple[str, ...]] = ("input",)
    calls: ClassVar[Calls] = {"__call__": ("image", "key")}
    # the class of a transform of a user (docs/extending.md), which changes each training image after its crop
    module: str | None = Field(default=None, exclude_if=operator.not_)
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


class Batch(PartSettings):
    """The global batch, for any number of workers: `classes` classes with `images_per_class` images each
    (P x K).

    `shuffled` draws the same number of images regardless of class, each image once per epoch (Proxy-Anchor
    code; the last, smaller batch is omitted). `tuples` draws `classes` tuples of `images_per_class` images: a
    query, a positive from the data set's pairs, and the hardest negatives, at most one per class. Negatives
    are mined in a random pool with the network as it is at the start of the epoch (IRT section 4.2,
    cnnimageretrieval-pytorch). The data set defines which of its train classes are for validation.
    """

    given: ClassVar[tuple[str, ...]] = ("labels", "batch", "seed")
    calls: ClassVar[Calls] = {"draw": ("step",)}
    # the class of a sampler of a user (docs/extending.md) in place of `sampling`
    module: str | None = Field(default=None, exclude_if=operator.not_)
    classes: Count = 16
    images_per_class: Count = 5
    sampling: Literal["classes", "shuffled", "tuples"] = "classes"
    pairs: Count = 2_000  # tuples: pairs per epoch (cnnimageretrieval-pytorch)
    pool: Count = 22_000  # tuples: images per epoch among which negatives are mined

    @property
    def size(self) -> int:
        return self.classes * self.images_per_class

    @classmethod
    def fields_of(cls, part: type, path: str) -> dict[str, Any]:
        return arguments_of(part, cls.given) | {"sampling": (Literal["classes"], "classes")}


class Fold(Strict):
    """Model 1 .. `folds` of the MLRC protocol: validation holds out block `model` of the train classes
    (pipeline/data/splits.py)."""

    model: Count
    folds: Annotated[int, Field(ge=2)] = 4

    @model_validator(mode="after")
    def _numbered(self) -> "Fold":
        if self.model > self.folds:
            raise ValueError(f"models are numbered 1 to {self.folds}, got {self.model}")
        return self


AnyInput = SerializeAsAny[Annotated[Input, opened(Input, Input.parse)]]
AnyBatch = SerializeAsAny[Annotated[Batch, opened(Batch, Batch.parse)]]
