"""Vision transformers: the attention of the class token in the last block.

    A = softmax(Q K^T / sqrt(d)) of each head        weights = mean over the heads of A_(class token, patch)

The attention of the class token to itself and to other prefix tokens is omitted and the rest divided by its
sum, so that the weights of an image sum to 1.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unseen.methods.explain.weights import PositionWeights
from unseen.methods.method import Method


def class_token_attention(
    attention: Any, tokens: Float[Tensor, "B N L"], prefix: int
) -> Float[Tensor, "B P"]:
    """The weights of the P = N - prefix patches, for a block of attention of timm and its input.

    Token 0 is the class token. prefix: the number of tokens that are not patches.
    """
    batch, count, _ = tokens.shape
    qkv = attention.qkv(tokens).reshape(batch, count, 3, attention.num_heads, -1)
    queries, keys, _ = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    queries, keys = attention.q_norm(queries[:, :, :1]), attention.k_norm(keys)
    weights = (attention.scale * queries @ keys.transpose(2, 3)).softmax(3)[:, :, 0, prefix:].mean(1)
    return weights / weights.sum(1, keepdim=True)


@torch.no_grad()
def position_weights(method: Method, images: Float[Tensor, "B 3 H W"]) -> list[PositionWeights]:
    """The attention of the class token in the last block of the network. Empty for a network whose last block
    has no attention with the parameters `qkv` of timm's vision transformers."""
    network: Any = method.backbone.network
    attention = getattr(network.blocks[-1], "attn", None) if hasattr(network, "blocks") else None
    if not all(hasattr(attention, name) for name in ("qkv", "q_norm", "k_norm", "num_heads", "scale")):
        return []
    assert attention is not None
    inputs: list[Tensor] = []
    hook = attention.register_forward_pre_hook(lambda module, arguments: inputs.append(arguments[0]))
    try:
        size = method.backbone(images).maps[-1].shape[2:]
    finally:
        hook.remove()
    weights = class_token_attention(attention, inputs[-1], network.num_prefix_tokens)
    return [PositionWeights("class token", weights, *size)]
