"""The precision of a training: float32, or bfloat16 where the processor computes with it.

Parameters, gradients, losses and exported embeddings are float32 in both cases.
"""

import os

import torch
import torch.distributed as dist

from unseen.methods.settings import Recipe
from unseen.runtime.device.world import world_size

# Networks of timm with which a training step in bfloat16 takes longer than in float32 on a CPU that has
# instructions for it: 1.35 times the CPU time for the transformer of 64 channels (docs/recipes.md).
SLOWER_ON_CPU = frozenset({"test_vit"})
_ONEDNN_LIMIT = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
# https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html
_WITHOUT_BFLOAT16 = {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI"}


def with_effective_precision(recipe: Recipe, device: torch.device) -> Recipe:
    """The recipe with `float32` or `bfloat16` in place of `auto`; the same on all workers.

    `auto` becomes bfloat16 if the processor of every worker computes with it: a GPU from compute capability
    8.0 on, or a CPU with AVX512_BF16 or AMX that torch and oneDNN may use, unless the network is one of
    `SLOWER_ON_CPU`.
    """
    if recipe.training.precision != "auto":
        return recipe
    network = recipe.backbone.name.partition(".")[0]  # without the tag of its weights
    is_slower = device.type == "cpu" and network in SLOWER_ON_CPU
    benefits = computes_with_bfloat16(device) and not is_slower
    if world_size() > 1:
        of_all = torch.tensor(float(benefits), device=device)
        dist.all_reduce(of_all, op=dist.ReduceOp.MIN)
        benefits = bool(of_all.item())
    precision = "bfloat16" if benefits else "float32"
    training = recipe.training.model_copy(update={"precision": precision})
    return recipe.model_copy(update={"training": training})


def autocast(recipe: Recipe, device: torch.device) -> torch.autocast:
    """The context in which the network of a recipe with effective precision computes."""
    precision = recipe.training.precision
    assert precision != "auto", "the precision depends on the processors of all workers"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16")


def computes_with_bfloat16(device: torch.device) -> bool:
    """Whether the processor has instructions for bfloat16, and torch and oneDNN may use them: the environment
    can limit either to fewer instructions, with which it emulates bfloat16 in 7 times the CPU time."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu" or not torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        return False
    if {os.environ.get(name, "").upper() for name in _ONEDNN_LIMIT} & _WITHOUT_BFLOAT16:
        return False
    features = torch.cpu.get_capabilities()
    return bool(features.get("avx512_bf16") or features.get("amx_bf16"))
