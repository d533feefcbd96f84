"""The settings of a network."""

import operator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny, create_model, field_validator

from unseen.networks.hub_names import name_of_timm
from unseen.runtime.parts import PartSettings, arguments_of, opened
from unseen.runtime.settings import Scalar, Strict


class Backbone(PartSettings):
    """A network and the feature maps a method reads from it."""

    required: ClassVar[tuple[str, ...]] = ("plan", "channels", "default_cfg")  # as networks/staged.py
    base_class: ClassVar[str] = "torch.nn:Module"

    # the class of a network of a user (docs/extending.md) in place of `name`
    module: str | None = Field(default=None, exclude_if=operator.not_)
    # A name of timm, with the tag of its weights (without it timm chooses), or googlenet, bn_inception,
    # mit_b1, mit_b2, resnet20_preact; docs/weights.md. A repository of the hub becomes the name of timm
    # (hub_names.py). tv_in1k: torchvision's first weights, from which the compared ResNets start (IRT table
    # 1: 76.2% top-1; MS, Proxy-Anchor and ProxyNCA++ code). timm's default tag, a1_in1k, names weights of a
    # different training on ImageNet.
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

    @field_validator("name")
    @classmethod
    def _of_timm(cls, name: str) -> str:
        return name_of_timm(name)

    @classmethod
    def fields_of(cls, part: type, path: str) -> dict[str, Any]:
        """`arguments` are those of the class."""
        arguments: Any = create_model("Arguments", __base__=Strict, **arguments_of(part))
        return {"name": (Literal[path], path), "arguments": (arguments, {})}


AnyBackbone = SerializeAsAny[Annotated[Backbone, opened(Backbone, Backbone.parse)]]
