"""Networks over the tensors of their published checkpoints, in float64."""

import torch
from torch import Tensor
from torch.nn import functional

State = dict[str, Tensor]


def bn_inception(state: State, rgb: Tensor) -> list[Tensor]:
    """Maps after conv1, conv2 and the blocks 3b, 4d and 5b of (B, 3, H, W) images: RGB minus (128, 117, 104),
    as in the recipe."""

    def convolution(name: str, x: Tensor, stride: int = 1) -> Tensor:
        weight = state[f"{name}.weight"]
        x = functional.conv2d(x, weight, state[f"{name}.bias"], stride, weight.shape[-1] // 2)
        mean, variance, scale, shift = (
            state[f"{name}_bn.{part}"].reshape(1, -1, 1, 1)
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        return ((x - mean) / (variance + 1e-5).sqrt() * scale + shift).clamp(min=0)

    def halved(x: Tensor) -> Tensor:
        return functional.max_pool2d(x, 3, 2, ceil_mode=True)

    def block(block_name: str, x: Tensor) -> Tensor:
        name = f"inception_{block_name}"
        stride = 2 if block_name in ("3c", "4e") else 1
        parts = [
            convolution(f"{name}_3x3", convolution(f"{name}_3x3_reduce", x), stride),
            convolution(
                f"{name}_double_3x3_2",
                convolution(f"{name}_double_3x3_1", convolution(f"{name}_double_3x3_reduce", x)),
                stride,
            ),
        ]
        if stride == 2:
            return torch.cat([*parts, halved(x)], 1)
        pooled = (
            functional.max_pool2d(x, 3, 1, 1) if block_name == "5b" else functional.avg_pool2d(x, 3, 1, 1)
        )
        return torch.cat([convolution(f"{name}_1x1", x), *parts, convolution(f"{name}_pool_proj", pooled)], 1)

    bgr = torch.stack([rgb[:, 2], rgb[:, 1], rgb[:, 0]], 1)
    maps = [convolution("conv1_7x7_s2", bgr, 2)]
    maps.append(convolution("conv2_3x3", convolution("conv2_3x3_reduce", halved(maps[-1]))))
    for stage in (("3a", "3b"), ("3c", "4a", "4b", "4c", "4d"), ("4e", "5a", "5b")):
        x = halved(maps[-1]) if stage[0] == "3a" else maps[-1]
        for block_name in stage:
            x = block(block_name, x)
        maps.append(x)
    return maps


def mix_transformer(state: State, images: Tensor, depths: tuple[int, ...]) -> list[Tensor]:
    """The four maps, with NVIDIA's names: heads 1, 2, 5, 8; keys and values at 1/8, 1/4, 1/2 and 1 of the
    size; epsilon 1e-6, in embeddings 1e-5."""

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    def norm(name: str, x: Tensor, eps: float) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return (
            centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt() * state[f"{name}.weight"]
            + state[f"{name}.bias"]
        )

    def tokens(x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2)

    def attention(name: str, x: Tensor, height: int, heads: int, reduction: int) -> Tensor:
        source = x
        if reduction > 1:
            grid = x.transpose(1, 2).unflatten(2, (height, -1))
            grid = functional.conv2d(grid, state[f"{name}.sr.weight"], state[f"{name}.sr.bias"], reduction)
            source = norm(f"{name}.norm", tokens(grid), 1e-5)
        query = linear(f"{name}.q", x)
        key, value = linear(f"{name}.kv", source).chunk(2, -1)
        width = query.shape[-1] // heads
        head_outputs = []
        for head in range(heads):
            columns = slice(head * width, (head + 1) * width)
            share = torch.softmax(query[..., columns] @ key[..., columns].transpose(1, 2) / width**0.5, -1)
            head_outputs.append(share @ value[..., columns])
        return linear(f"{name}.proj", torch.cat(head_outputs, -1))

    def mixed(name: str, x: Tensor, height: int) -> Tensor:
        grid = linear(f"{name}.fc1", x).transpose(1, 2).unflatten(2, (height, -1))
        path = f"{name}.dwconv.dwconv"
        grid = functional.conv2d(
            grid, state[f"{path}.weight"], state[f"{path}.bias"], padding=1, groups=grid.shape[1]
        )
        x = tokens(grid)
        return linear(f"{name}.fc2", x * (1 + torch.erf(x / 2**0.5)) / 2)

    maps, x = [], images
    for stage, (depth, heads, reduction) in enumerate(
        zip(depths, (1, 2, 5, 8), (8, 4, 2, 1), strict=True), start=1
    ):
        path, size, stride = f"patch_embed{stage}.proj", 7 if stage == 1 else 3, 4 if stage == 1 else 2
        grid = functional.conv2d(x, state[f"{path}.weight"], state[f"{path}.bias"], stride, size // 2)
        height = grid.shape[2]
        y = norm(f"patch_embed{stage}.norm", tokens(grid), 1e-5)
        for block in (f"block{stage}.{index}" for index in range(depth)):
            y = y + attention(f"{block}.attn", norm(f"{block}.norm1", y, 1e-6), height, heads, reduction)
            y = y + mixed(f"{block}.mlp", norm(f"{block}.norm2", y, 1e-6), height)
        x = norm(f"norm{stage}", y, 1e-6).transpose(1, 2).unflatten(2, (height, -1))
        maps.append(x)
    return maps


def preactivation_bottleneck(state: State, x: Tensor, stride: int) -> Tensor:
    """shortcut(x) + three convolutions. Batch norm (over the batch, epsilon 1e-3) and ReLU precede each."""

    def activated(index: int, y: Tensor) -> Tensor:
        mean = y.mean((0, 2, 3), keepdim=True)
        variance = (y - mean).square().mean((0, 2, 3), keepdim=True)
        scale, shift = (state[f"residual.{index}.{part}"].view(1, -1, 1, 1) for part in ("weight", "bias"))
        return ((y - mean) / (variance + 1e-3).sqrt() * scale + shift).clamp(min=0)

    y = functional.conv2d(activated(0, x), state["residual.2.weight"], stride=stride)
    y = functional.conv2d(activated(3, y), state["residual.5.weight"], padding=1)
    y = functional.conv2d(activated(6, y), state["residual.8.weight"])
    return y + (
        functional.conv2d(x, state["shortcut.weight"], stride=stride) if "shortcut.weight" in state else x
    )
