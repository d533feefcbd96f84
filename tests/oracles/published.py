"""Published checkpoints: names and shapes of their tensors, from the code of their authors."""

Shapes = dict[str, tuple[int, ...]]


def deit(width: int, distilled: bool, size: int = 224, depth: int = 12, classes: int = 1000) -> Shapes:
    """deit_{small,base}[_distilled]_patch16_224-*.pth, under the key `model` (facebookresearch/deit,
    models.py)."""
    shapes: Shapes = {"cls_token": (1, 1, width), "pos_embed": (1, (size // 16) ** 2 + 1 + distilled, width)}
    shapes |= _linear("patch_embed.proj", width, 3, 16, 16)
    for block in (f"blocks.{index}" for index in range(depth)):
        shapes |= _norm(f"{block}.norm1", width) | _norm(f"{block}.norm2", width)
        shapes |= _linear(f"{block}.attn.qkv", 3 * width, width) | _linear(f"{block}.attn.proj", width, width)
        shapes |= _linear(f"{block}.mlp.fc1", 4 * width, width) | _linear(
            f"{block}.mlp.fc2", width, 4 * width
        )
    shapes |= _norm("norm", width) | _linear("head", classes, width)
    if distilled:
        shapes |= {"dist_token": (1, 1, width)} | _linear("head_dist", classes, width)
    return shapes


def bn_inception() -> Shapes:
    """bn_inception-52deb4733.pth (Cadene/pretrained-models.pytorch, bninception.py). Its batch norms are rows
    (1, L) without a counter."""
    table = """
        conv 3 conv1_7x7_s2:64:7 conv2_3x3_reduce:64 conv2_3x3:192:3
        inception_3a 192 1x1:64 3x3_reduce:64 3x3:64:3 \
            double_3x3_reduce:64 double_3x3_1:96:3 double_3x3_2:96:3 pool_proj:32
        inception_3b 256 1x1:64 3x3_reduce:64 3x3:96:3 \
            double_3x3_reduce:64 double_3x3_1:96:3 double_3x3_2:96:3 pool_proj:64
        inception_3c 320 3x3_reduce:128 3x3:160:3 double_3x3_reduce:64 double_3x3_1:96:3 double_3x3_2:96:3
        inception_4a 576 1x1:224 3x3_reduce:64 3x3:96:3 \
            double_3x3_reduce:96 double_3x3_1:128:3 double_3x3_2:128:3 pool_proj:128
        inception_4b 576 1x1:192 3x3_reduce:96 3x3:128:3 \
            double_3x3_reduce:96 double_3x3_1:128:3 double_3x3_2:128:3 pool_proj:128
        inception_4c 576 1x1:160 3x3_reduce:128 3x3:160:3 \
            double_3x3_reduce:128 double_3x3_1:160:3 double_3x3_2:160:3 pool_proj:128
        inception_4d 608 1x1:96 3x3_reduce:128 3x3:192:3 \
            double_3x3_reduce:160 double_3x3_1:192:3 double_3x3_2:192:3 pool_proj:128
        inception_4e 608 3x3_reduce:128 3x3:192:3 double_3x3_reduce:192 double_3x3_1:256:3 double_3x3_2:256:3
        inception_5a 1056 1x1:352 3x3_reduce:192 3x3:320:3 \
            double_3x3_reduce:160 double_3x3_1:224:3 double_3x3_2:224:3 pool_proj:128
        inception_5b 1024 1x1:352 3x3_reduce:192 3x3:320:3 \
            double_3x3_reduce:192 double_3x3_1:224:3 double_3x3_2:224:3 pool_proj:128
    """
    shapes: Shapes = {}
    for line in table.strip().splitlines():
        block, width, *convolutions = line.split()
        previous_width = int(width)
        for convolution in convolutions:
            name, out, size = (*convolution.split(":"), "1")[:3]
            enters = name.endswith(("1x1", "reduce", "pool_proj")) and block != "conv"
            path = name if block == "conv" else f"{block}_{name}"
            shapes |= _linear(path, int(out), int(width) if enters else previous_width, int(size), int(size))
            shapes |= {
                f"{path}_bn.{part}": (1, int(out))
                for part in ("weight", "bias", "running_mean", "running_var")
            }
            previous_width = int(out)
    return shapes | _linear("last_linear", 1000, 1024)


def mit_nvidia(depths: tuple[int, ...], classes: int = 1000) -> Shapes:
    """mit_b1.pth, mit_b2.pth (NVlabs/SegFormer, mix_transformer.py), including the classifier of the ImageNet
    training."""
    shapes: Shapes = {}
    previous_width = 3
    for stage, (width, depth, reduction) in enumerate(
        zip((64, 128, 320, 512), depths, (8, 4, 2, 1), strict=True), start=1
    ):
        size = 7 if stage == 1 else 3
        shapes |= _linear(f"patch_embed{stage}.proj", width, previous_width, size, size) | _norm(
            f"patch_embed{stage}.norm", width
        )
        for block in (f"block{stage}.{index}" for index in range(depth)):
            shapes |= _norm(f"{block}.norm1", width) | _norm(f"{block}.norm2", width)
            shapes |= _linear(f"{block}.attn.q", width, width) | _linear(f"{block}.attn.kv", 2 * width, width)
            shapes |= _linear(f"{block}.attn.proj", width, width)
            if reduction > 1:
                shapes |= _linear(f"{block}.attn.sr", width, width, reduction, reduction) | _norm(
                    f"{block}.attn.norm", width
                )
            shapes |= _linear(f"{block}.mlp.fc1", 4 * width, width) | _linear(
                f"{block}.mlp.fc2", width, 4 * width
            )
            shapes |= _linear(f"{block}.mlp.dwconv.dwconv", 4 * width, 1, 3, 3)
        shapes |= _norm(f"norm{stage}", width)
        previous_width = width
    return shapes | _linear("head", classes, 512)


def mit_hugging_face(depths: tuple[int, ...], classes: int = 1000) -> dict[str, tuple[str, slice]]:
    """pytorch_model.bin of nvidia/mit-b1 and -b2: each name with its NVIDIA tensor and the rows of that
    tensor."""
    names: dict[str, tuple[str, slice]] = {}
    for source, shape in mit_nvidia(depths, classes).items():
        path, part = source.rsplit(".", 1)
        all_rows = slice(None)
        if path == "head":
            names[f"classifier.{part}"] = source, all_rows
            continue
        stem, *inner_path = path.split(".")
        stage = int(stem[-1]) - 1
        if stem.startswith("patch_embed"):
            layer = "proj" if inner_path == ["proj"] else "layer_norm"
            names[f"segformer.encoder.patch_embeddings.{stage}.{layer}.{part}"] = source, all_rows
        elif stem.startswith("norm"):
            names[f"segformer.encoder.layer_norm.{stage}.{part}"] = source, all_rows
        else:
            block, inner = f"segformer.encoder.block.{stage}.{inner_path[0]}", ".".join(inner_path[1:])
            if inner == "attn.kv":
                key_rows = shape[0] // 2
                names[f"{block}.attention.self.key.{part}"] = source, slice(0, key_rows)
                names[f"{block}.attention.self.value.{part}"] = source, slice(key_rows, None)
            else:
                renamed = {
                    "norm1": "layer_norm_1",
                    "norm2": "layer_norm_2",
                    "attn.q": "attention.self.query",
                    "attn.sr": "attention.self.sr",
                    "attn.norm": "attention.self.layer_norm",
                    "attn.proj": "attention.output.dense",
                    "mlp.fc1": "mlp.dense1",
                    "mlp.fc2": "mlp.dense2",
                    "mlp.dwconv.dwconv": "mlp.dwconv.dwconv",
                }[inner]
                names[f"{block}.{renamed}.{part}"] = source, all_rows
    return names


def _linear(name: str, out: int, *into: int) -> Shapes:
    return {f"{name}.weight": (out, *into), f"{name}.bias": (out,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}
