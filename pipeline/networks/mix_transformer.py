"""Mix Transformer, the encoder of SegFormer (Xie et al., 2021): MiT-B1 and MiT-B2.

CRT trains both. Each of the four stages embeds overlapping patches and runs blocks

    z' = z + Attention(LN(z))        z'' = z' + W_2 GELU(DW(W_1 LN(z'))),

whose keys and values are from a map that a strided convolution reduces. DW is a depthwise convolution of
3 x 3, which makes position embeddings needless (sec. 3.1). A layer norm ends each stage.

Checkpoints are read with three naming schemes: NVIDIA's (mit_b2.pth: `block1.0.attn.q`, keys and values in
one matrix `kv`), that of the Hugging Face files nvidia/mit-b1 and -b2
(`segformer.encoder.block.0.0.attention.self.query`), and that of transformers 5, which is that of the
network.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from unseen.networks.checkpoint import read_state
from unseen.networks.staged import Published, Staged
from unseen.networks.torchvision_guard import ensure_torchvision

ensure_torchvision()
from timm.layers import DropPath  # noqa: E402

DEPTHS = {"b1": (2, 2, 2, 2), "b2": (3, 4, 6, 3)}
HEADS = (1, 2, 5, 8)
REDUCTIONS = (8, 4, 2, 1)  # of height and width of the map of keys and values
# (pattern, replacement) in this order. NVIDIA's stages start at 1, which `checkpoint_filter_fn` corrects.
_NVIDIA = (
    (r"patch_embed(\d)\.proj", r"stages.\1.patch_embeddings.proj"),
    (r"patch_embed(\d)\.norm", r"stages.\1.patch_embeddings.layer_norm"),
    (r"block(\d)\.(\d+)", r"stages.\1.blocks.\2"),
    (r"^norm(\d)", r"stages.\1.layer_norm"),
    (r"norm1", "layernorm_before"),
    (r"norm2", "layernorm_after"),
    (r"attn\.q\.", "attention.q_proj."),
    (r"attn\.proj", "attention.o_proj"),
    (r"attn\.sr", "attention.sequence_reduction.sequence_reduction"),
    (r"attn\.norm", "attention.sequence_reduction.layer_norm"),
    (r"attn\.kv", "attention.kv"),
)
_HUGGING_FACE = (
    (r"^(segformer\.)?(encoder\.)?", ""),
    (r"^patch_embeddings\.(\d)", r"stages.\1.patch_embeddings"),
    (r"^block\.(\d)\.(\d+)", r"stages.\1.blocks.\2"),
    (r"^layer_norm\.(\d)", r"stages.\1.layer_norm"),
    (r"layer_norm_1", "layernorm_before"),
    (r"layer_norm_2", "layernorm_after"),
    (r"attention\.self\.query", "attention.q_proj"),
    (r"attention\.self\.key", "attention.k_proj"),
    (r"attention\.self\.value", "attention.v_proj"),
    (r"attention\.self\.sr", "attention.sequence_reduction.sequence_reduction"),
    (r"attention\.self\.layer_norm", "attention.sequence_reduction.layer_norm"),
    (r"attention\.output\.dense", "attention.o_proj"),
    (r"mlp\.dense", "mlp.fc"),
)


class MixTransformer(Staged):
    """Layer-normalised maps of 64, 128, 320 and 512 channels at strides 4, 8, 16 and 32.

    The last is 8 x 8 at 227 px and 7 x 7 at 224 px. The epsilon of the layer norms in and after blocks is
    1e-6, as in NVIDIA's code, that of the others torch's 1e-5. Stochastic depth 0.1 (of the last block,
    linear in depth) is the default of NVIDIA and of transformers. The initial weights are those of
    transformers: normal with deviation 0.02, biases zero.
    """

    plan = (("stages.0",), ("stages.1",), ("stages.2",), ("stages.3",))
    channels = (64, 128, 320, 512)
    default_cfg = {"classifier": ("head", "classifier")}  # noqa: RUF012

    def __init__(self, size: str, drop_path_rate: float = 0.1) -> None:
        super().__init__()
        self.depths = depths = DEPTHS[size]
        rates = (drop_path_rate * block / (sum(depths) - 1) for block in range(sum(depths)))
        inputs = (3, *self.channels)
        self.stages = nn.ModuleList(
            _Stage(stage, inputs[stage], width, [next(rates) for _ in range(depth)])
            for stage, (width, depth) in enumerate(zip(self.channels, depths, strict=True))
        )
        self.apply(_initialize)
        self.published = Published(
            "pytorch_model.bin", f"https://huggingface.co/nvidia/mit-{size}", lambda: _fetch(size)
        )

    def group_matcher(self, coarse: bool = False) -> Callable[[str], Any]:
        """The layers of a stage: its patch embedding, then each block; the final norm is in the last."""

        def layer(parameter: str) -> tuple[int, int]:
            _, stage, part, *rest = parameter.split(".")
            last = self.depths[int(stage)] - 1
            block = int(rest[0]) if part == "blocks" else 0
            return int(stage), {"patch_embeddings": -1, "blocks": block, "layer_norm": last}[part]

        return layer


class _Stage(nn.Module):
    """Images or the map of the stage below (B, L, H, W) to the map of this stage (B, M, h, w)."""

    def __init__(self, stage: int, inputs: int, width: int, drop_path: list[float]) -> None:
        super().__init__()
        self.patch_embeddings = _PatchEmbedding(inputs, width, *((7, 4) if stage == 0 else (3, 2)))
        self.blocks = nn.ModuleList(
            _Block(width, HEADS[stage], REDUCTIONS[stage], rate) for rate in drop_path
        )
        self.layer_norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x: Float[Tensor, "B L H W"]) -> Float[Tensor, "B M h w"]:
        x = self.patch_embeddings.proj(x)
        height = x.shape[2]
        tokens = self.patch_embeddings.layer_norm(_tokens(x))
        for block in self.blocks:
            tokens = block(tokens, height)
        return _map(self.layer_norm(tokens), height).contiguous()


class _PatchEmbedding(nn.Module):
    def __init__(self, inputs: int, width: int, size: int, stride: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(inputs, width, size, stride, size // 2)
        self.layer_norm = nn.LayerNorm(width)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, reduction: int, drop_path: float) -> None:
        super().__init__()
        self.layernorm_before = nn.LayerNorm(width, eps=1e-6)
        self.attention = _Attention(width, heads, reduction)
        self.drop_path = DropPath(drop_path)
        self.layernorm_after = nn.LayerNorm(width, eps=1e-6)
        self.mlp = _MixNetwork(width)

    def forward(self, tokens: Float[Tensor, "B N M"], height: int) -> Float[Tensor, "B N M"]:
        tokens = tokens + self.drop_path(self.attention(self.layernorm_before(tokens), height))
        return tokens + self.drop_path(self.mlp(self.layernorm_after(tokens), height))


class _Attention(nn.Module):
    """softmax(q k^T / sqrt(M / heads)) v; k and v are of the map at 1 / reduction of its height and width."""

    def __init__(self, width: int, heads: int, reduction: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.o_proj = nn.Linear(width, width)
        self.sequence_reduction = _Reduction(width, reduction) if reduction > 1 else None

    def forward(self, tokens: Float[Tensor, "B N M"], height: int) -> Float[Tensor, "B N M"]:
        reduced = tokens if self.sequence_reduction is None else self.sequence_reduction(tokens, height)
        query, key, value = (
            projected.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for projected in (self.q_proj(tokens), self.k_proj(reduced), self.v_proj(reduced))
        )
        attended = functional.scaled_dot_product_attention(query, key, value)
        return self.o_proj(attended.transpose(1, 2).flatten(2))


class _Reduction(nn.Module):
    def __init__(self, width: int, reduction: int) -> None:
        super().__init__()
        self.sequence_reduction = nn.Conv2d(width, width, reduction, reduction)
        self.layer_norm = nn.LayerNorm(width)

    def forward(self, tokens: Float[Tensor, "B N M"], height: int) -> Float[Tensor, "B n M"]:
        return self.layer_norm(_tokens(self.sequence_reduction(_map(tokens, height))))


class _MixNetwork(nn.Module):
    """W_2 GELU(DW(W_1 z)), with four times the channels inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.dwconv = nn.ModuleDict({"dwconv": nn.Conv2d(4 * width, 4 * width, 3, 1, 1, groups=4 * width)})
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, tokens: Float[Tensor, "B N M"], height: int) -> Float[Tensor, "B N M"]:
        hidden = self.dwconv["dwconv"](_map(self.fc1(tokens), height))
        return self.fc2(functional.gelu(_tokens(hidden)))


def _tokens(x: Float[Tensor, "B M H W"]) -> Float[Tensor, "B N M"]:
    return x.flatten(2).transpose(1, 2)


def _map(tokens: Float[Tensor, "B N M"], height: int) -> Float[Tensor, "B M H W"]:
    return tokens.transpose(1, 2).unflatten(2, (height, -1))


def _initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Conv2d):
        for name, parameter in module.named_parameters():
            nn.init.normal_(parameter, std=0.02) if name == "weight" else nn.init.zeros_(parameter)


def mit_b1(**options: Any) -> MixTransformer:
    """Size B1."""
    return MixTransformer("b1", **options)


def mit_b2(**options: Any) -> MixTransformer:
    """Size B2."""
    return MixTransformer("b2", **options)


def checkpoint_filter_fn(state: dict[str, Tensor], network: MixTransformer) -> dict[str, Tensor]:
    """A published state dict with the names of the network."""
    nvidia = any(key.startswith("patch_embed1.") for key in state)
    renamed = {}
    for key, value in state.items():
        for pattern, name in _NVIDIA if nvidia else _HUGGING_FACE:
            key = re.sub(pattern, name, key)
        if nvidia:
            key = re.sub(r"^stages\.(\d)", lambda match: f"stages.{int(match[1]) - 1}", key)
        if ".attention.kv." in key:
            for part, rows in zip(("k_proj", "v_proj"), value.chunk(2), strict=True):
                renamed[key.replace("attention.kv", f"attention.{part}")] = rows
        else:
            renamed[key] = value
    return renamed


def _fetch(size: str) -> dict[str, Any]:
    from huggingface_hub import hf_hub_download

    return read_state(Path(hf_hub_download(f"nvidia/mit-{size}", "pytorch_model.bin")))
