"""Kernel launches of the loss of each method, eager and compiled (`training.compile`), counted on a CPU.

    python benchmarks/compiled_loss.py [methods ...]

Counted are forward and backward pass of `Method.terms` for 48 outputs, as the code for GPUs runs. Eager: the
launches on the pretended GPU, as benchmarks/launches.py counts them. Compiled: the kernels that torch's
default backend generates, and its calls of products and other library functions, for a CPU; those for a GPU
can differ. It compiles each loss, which takes up to a minute.
"""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

import torch
from launches import BEFORE, CLASSES, IMAGES, SAMPLES
from timing import Ratio, save
from torch._dynamo.utils import counters
from torch._inductor import config, metrics

from tests.device import pretended
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.layers import dotted
from unseen.config.place import Place
from unseen.methods.build import initial_method
from unseen.methods.method import Method, Outputs


def leaves(outputs: Outputs) -> Any:
    """The outputs without the graph of the network; floating-point ones receive gradients."""
    fields = {field.name: getattr(outputs, field.name) for field in dataclasses.fields(outputs)}
    tensors = {name: value.detach() for name, value in fields.items() if value is not None}
    return dataclasses.replace(
        outputs,
        **{
            name: value.requires_grad_(name not in ("average", "key")) if value.is_floating_point() else value
            for name, value in tensors.items()
        },
    )


def built(params: Params, name: str) -> tuple[Method, Any]:
    """The method and its outputs for drawn images."""
    sizes = {"batch.classes": CLASSES, "batch.images_per_class": IMAGES, "batch.sampling": "classes"}
    method = initial_method(
        Definitions(params).layers("parts", name).plus(dotted(Place("benchmark"), sizes)).recipe(),
        100,
        SAMPLES,
        seed=0,
    ).train()
    size = Definitions(params).layers("parts", name).recipe().input.size
    return method, leaves(method(torch.randn(CLASSES * IMAGES, 3, size, size)))


def eager(names: list[str]) -> dict[str, int]:
    """Launches of the loss of each method."""
    params, launches = Params(Path("params.yaml")), {}
    for name in names:
        torch.manual_seed(0)
        method, outputs = built(params, name)
        of_gpu = {
            field.name: None if value is None else value.to(pretended.GPU).requires_grad_(value.requires_grad)
            for field in dataclasses.fields(outputs)
            for value in [getattr(outputs, field.name)]
        }
        method, outputs = method.to(pretended.GPU), dataclasses.replace(outputs, **of_gpu)
        labels, samples = (each.to(pretended.GPU) for each in targets())
        observed = method.observe(outputs, labels)
        with pretended.recorded() as record:
            sum(method.terms(outputs, labels, samples, observed).values()).backward()
        launches[name] = record.launches.total()
    return launches


def targets() -> tuple[torch.Tensor, torch.Tensor]:
    """Labels and samples of a batch."""
    return torch.arange(CLASSES * IMAGES) // IMAGES, torch.arange(CLASSES * IMAGES)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("methods", nargs="*", default=[name for name in BEFORE if name != "xbm"])
    names = parser.parse_args().methods
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config.force_disable_caches = True  # kernels of the cache are not counted
    params = Params(Path("params.yaml"))
    labels, samples = targets()
    launches: dict[str, int] = pretended.run(eager, names)
    print(f"{'method':14s}{'eager':>7s}{'compiled':>10s}")
    ratios: dict[str, Ratio] = {}
    rows: dict[str, dict[str, int]] = {}
    for name in names:
        method, outputs = built(params, name)
        observed = method.observe(outputs, labels)
        torch.compiler.reset()
        counters.clear()
        metrics.reset()
        compiled = torch.compile(method.terms, dynamic=False, fullgraph=True)
        sum(compiled(outputs, labels, samples, observed).values()).backward()
        kernels = metrics.generated_kernel_count + counters["inductor"]["extern_calls"]
        print(f"{name:14s}{launches[name]:7d}{kernels:10d}", flush=True)
        rows[name] = {"eager": launches[name], "compiled": kernels}
        ratios[f"{name}: compiled / eager launches"] = Ratio(kernels / launches[name])
    save("compiled_loss", rows, ratios)
    return 0


if __name__ == "__main__":
    sys.exit(main())
