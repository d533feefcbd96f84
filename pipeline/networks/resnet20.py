"""ResNet20 of the Cifar Collage study (GSP sec. 5.1, released code), for small images.

It is a pre-activation bottleneck network (He et al., 2016):

    x <- shortcut(x) + conv1x1(relu(bn(conv3x3(relu(bn(conv1x1(relu(bn(x)))))))))
    three stages of two blocks with widths 64, 128, 256

Stage 1 keeps the size of the input, stages 2 and 3 halve it: 64 x 64 pixels give 16 x 16 x
256. The last map is after a final norm and ReLU. As in the released code
(tensorflow/framework/layers/residual.py): the first convolution of a block and its shortcut subsample; the
inner width is half of the outer, 16 in the very first block; no biases; Glorot-uniform weights; batch norm as
in Keras, with eps 1e-3 and momentum 0.01 in torch's convention.
"""

from functools import partial

from jaxtyping import Float
from torch import Tensor, nn

from unseen.networks.staged import Staged

_norm = partial(nn.BatchNorm2d, eps=1e-3, momentum=0.01)


class PreactivationBottleneck(nn.Module):
    """A block.

    The first of each stage has a projected shortcut; the very first has no activation before it.
    """

    def __init__(
        self,
        width: int,
        inner: int,
        out: int,
        stride: int = 1,
        project: bool = False,
        preactivate: bool = True,
    ) -> None:
        super().__init__()
        self.shortcut = nn.Conv2d(width, out, 1, stride, bias=False) if project else nn.Identity()
        self.residual = nn.Sequential(
            *([_norm(width), nn.ReLU()] if preactivate else []),
            nn.Conv2d(width, inner, 1, stride, bias=False),
            _norm(inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, inner, 3, padding=1, bias=False),
            _norm(inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, out, 1, bias=False),
        )

    def forward(self, x: Float[Tensor, "B L H W"]) -> Float[Tensor, "B M h w"]:
        return self.shortcut(x) + self.residual(x)


class PreactivationResNet20(Staged):
    """Maps of 64, 128 and 256 channels at strides 1, 2 and 4. There are no published weights."""

    plan = (("stem", "stage1.0", "stage1.1"), ("stage2.0", "stage2.1"), ("stage3.0", "stage3.1", "final"))
    channels = (64, 128, 256)
    default_cfg = {"classifier": (), "mean": (0.5, 0.5, 0.5), "std": (1.0, 1.0, 1.0)}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), _norm(16), nn.ReLU())
        width = 16
        for stage, out in enumerate(self.channels, start=1):
            inner, stride = (16, 1) if stage == 1 else (out // 2, 2)
            first = PreactivationBottleneck(width, inner, out, stride, True, stage > 1)
            self.add_module(
                f"stage{stage}", nn.Sequential(first, PreactivationBottleneck(out, out // 2, out))
            )
            width = out
        self.final = nn.Sequential(_norm(width), nn.ReLU())
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.xavier_uniform_(module.weight)
