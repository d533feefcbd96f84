"""Mix Transformer, the encoder of SegFormer (Xie et al., 2021): MiT-B1 and MiT-B2.

The blocks are those of transformers.

CRT trains both. Each of the four stages embeds overlapping patches and runs blocks of attention, with keys
and values from a map that a strided convolution reduces, and of a two-layer network with a depthwise
convolution. A layer norm ends each stage.

Checkpoints are read with three naming schemes: NVIDIA's (mit_b2.pth: `block1.0.attn.q`, keys and values in
one matrix `kv`), that of the Hugging Face files nvidia/mit-b1 and -b2
(`segformer.encoder.block.0.0.attention.self.query`), and that of transformers 5, which is that of the
network.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from unseen.networks.checkpoint import read_state
from unseen.networks.staged import Published, Staged
from unseen.networks.torchvision_guard import ensure_torchvision

DEPTHS = {"b1": (2, 2, 2, 2), "b2": (3, 4, 6, 3)}
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
    1e-6, as in NVIDIA's code; transformers uses torch's 1e-5. Stochastic depth 0.1 (of the last block, linear
    in depth) is the default of both. The initial weights are those of transformers.
    """

    plan = (("stages.0",), ("stages.1",), ("stages.2",), ("stages.3",))
    channels = (64, 128, 320, 512)
    default_cfg = {"classifier": ("head", "classifier")}  # noqa: RUF012

    def __init__(self, size: str, drop_path_rate: float = 0.1) -> None:
        super().__init__()
        ensure_torchvision()  # transformers imports torchvision
        # Imported here, because it takes seconds and only this network needs it.
        from transformers.models.segformer.modeling_segformer import SegformerConfig, SegformerModel

        settings = SegformerConfig(
            depths=DEPTHS[size], hidden_sizes=self.channels, drop_path_rate=drop_path_rate
        )
        self.stages = SegformerModel(settings).stages
        for name, module in self.named_modules():
            if (
                isinstance(module, nn.LayerNorm)
                and "patch_embeddings" not in name
                and "sequence_reduction" not in name
            ):
                module.eps = 1e-6
        self.published = Published(
            "pytorch_model.bin", f"https://huggingface.co/nvidia/mit-{size}", lambda: _fetch(size)
        )

    def group_matcher(self, coarse: bool = False) -> Callable[[str], Any]:
        """The layers of a stage: its patch embedding, then each block; the final norm is in the last."""

        def layer(parameter: str) -> tuple[int, int]:
            _, stage, part, *rest = parameter.split(".")
            last = len(self.stages[int(stage)].blocks) - 1
            block = int(rest[0]) if part == "blocks" else 0
            return int(stage), {"patch_embeddings": -1, "blocks": block, "layer_norm": last}[part]

        return layer


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
