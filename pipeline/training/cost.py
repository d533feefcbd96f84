"""The cost of a training step: predicted from a recipe by fake tensors, which have shapes and no values, and
measured on this machine. Neither needs data or pretrained weights; the prediction needs no GPU either.

    flops    of matrix products and convolutions, two for a multiplication and an addition
    moved    bytes that the operators read and write, each without a cache
    memory   the largest sum of the bytes of all tensors that exist at a time: weights, gradients, moments of
             the optimizer, activations; linear in the number of images of a pass

The step is one of a training whose memories are full and whose prototypes are selected. Memory within an
operator (a workspace of cuDNN or oneDNN) is not counted.
"""

import weakref
from collections.abc import Iterable
from time import perf_counter, process_time
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from unseen.data.loader import TrainBatch, normalize
from unseen.methods.build import build_method, initial_method
from unseen.methods.method import Method
from unseen.methods.settings import Recipe, StepCost
from unseen.runtime.device.host import HostValue
from unseen.training.precision import with_effective_precision
from unseen.training.reproducible import reproducible
from unseen.training.run import optimizer_of
from unseen.training.step import Learner, train_step

_CPU = torch.device("cpu")
_MANY = 2**40  # a count with which every memory is full and every start is over
_HEAP = 1.28  # resident bytes of a process on a CPU over those of its tensors: the heap keeps freed blocks
_MEASURED = 1e11  # operations of the largest step that is measured: seconds on a core


def step_cost(recipe: Recipe, classes: int, samples: int) -> StepCost:
    """The predicted cost of a step with the precision of the recipe (`auto`: that of this CPU) on one device.
    `classes`, `samples`: those of training."""
    recipe = _without_weights(recipe)
    whole = _fake_step(recipe, classes, samples)
    part_size = _with_images(recipe, recipe.batch.size // 2)
    if part_size.batch.size == recipe.batch.size:
        return StepCost(flops=whole[0], moved=whole[1], fixed=whole[2], per_image=0)
    part = _fake_step(part_size, classes, samples)
    per_image = (whole[2] - part[2]) / (recipe.batch.size - part_size.batch.size)
    fixed = round(whole[2] - per_image * recipe.batch.size)
    return StepCost(flops=whole[0], moved=whole[1], fixed=fixed, per_image=per_image)


def resident(cost: StepCost) -> StepCost:
    """The cost with the memory that a process on a CPU takes more than its libraries, within 15%
    (benchmarks/cost.py)."""
    return cost.model_copy(update={"fixed": round(_HEAP * cost.fixed), "per_image": _HEAP * cost.per_image})


def measured_seconds(
    recipe: Recipe, classes: int, samples: int, cost: StepCost, device: torch.device
) -> float:
    """Seconds of a step on `device` that no other program uses: the faster of two after a first one. On a CPU
    these are CPU seconds divided by the threads, as if none were idle, and a step of more than 1e11
    operations is measured with fewer images, whose seconds are scaled."""
    recipe, images = _without_weights(recipe), recipe.batch.size
    clock, threads = perf_counter, 1
    if device.type == "cpu":
        clock, threads = process_time, recipe.training.threads
        images = min(images, int(_MEASURED / cost.flops * images))
    smaller = _with_images(recipe, images)
    method = initial_method(smaller, classes, samples, seed=0).to(device).train()
    learner = Learner(method, optimizer_of(method, smaller, device), smaller, seed=0)
    seconds = []
    with reproducible(device, recipe.training.threads):
        for step in range(3):
            began = clock()
            train_step(learner, _batch(smaller, step)).result()
            seconds.append((clock() - began) / threads)
    return min(seconds[1:]) * recipe.batch.size / smaller.batch.size


def _without_weights(recipe: Recipe) -> Recipe:
    """The recipe with random weights, eager, with the precision of the CPU for `auto`, and without steps that
    leave the backbone unchanged."""
    recipe = with_effective_precision(recipe, _CPU)
    changes: dict[str, dict[str, Any]] = {
        "backbone": {"pretrained": False, "checkpoint": None},
        "training": {"compile": False},
        "optimizer": {"new_layers_only": 0},
    }
    return recipe.model_copy(
        update={block: getattr(recipe, block).model_copy(update=values) for block, values in changes.items()}
    )


def _with_images(recipe: Recipe, images: int) -> Recipe:
    """The recipe with a batch of about `images` images, of two classes or more."""
    fewest = min(2, recipe.batch.classes)
    classes = max(fewest, min(recipe.batch.classes, images // recipe.batch.images_per_class))
    return recipe.model_copy(update={"batch": recipe.batch.model_copy(update={"classes": classes})})


def _batch(recipe: Recipe, step: int) -> TrainBatch:
    """Random images of as many classes as the batch has. Equal ones have no finite gradient in CRT. Their
    values are tokens of a corpus too, which has 68."""
    size, batch = recipe.input.size, recipe.batch
    images = torch.randint(64, (batch.size, 3, size, size), dtype=torch.uint8)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.arange(batch.classes).repeat_interleave(batch.images_per_class)
    return TrainBatch(step, images, labels, torch.arange(batch.size))


def _fake_step(recipe: Recipe, classes: int, samples: int) -> tuple[int, int, int]:
    """flops, moved and memory of a step after the first one."""
    with torch.device("meta"):
        method = build_method(recipe, classes, samples).train()
    # Its constants are kept for the process: made below, they would be fake in later steps too.
    normalize(torch.zeros(1, 3, 1, 1, dtype=torch.uint8), *method.statistics(recipe.input))
    tensors = _Tensors()
    with FakeTensorMode(allow_non_fake_inputs=True):
        _fill(method)
        optimizer = optimizer_of(method, recipe, _CPU)
        for parameter in method.parameters():
            parameter.grad = torch.empty_like(parameter)
        optimizer.step()  # its moments exist from here on
        optimizer.zero_grad()
        moments = [value for state in optimizer.state.values() for value in state.values()]
        tensors.add(value for value in tree_leaves(moments) if isinstance(value, Tensor))
        tensors.add([*method.parameters(), *method.buffers()])
        with FlopCounterMode(display=False) as counter, tensors:
            train_step(Learner(method, optimizer, recipe, seed=0), _batch(recipe, 0))
    return counter.get_total_flops(), tensors.moved, tensors.most


def _fill(method: Method) -> None:
    """Gives a method on the meta device fake tensors of the CPU, and counts with which its memories are
    full."""
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # the parameters are fake ones
    try:
        method.to_empty(device=_CPU)
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)
    for module in method.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, HostValue):
                value.write(module.get_buffer(name.removeprefix("_")), _MANY)


class _Tensors(TorchDispatchMode):
    """Counts the bytes of the tensors that exist, and those that operators read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.most = self.moved = self._now = 0
        self._known: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def add(self, tensors: Iterable[Tensor]) -> None:
        for storage in (tensor.untyped_storage() for tensor in tensors):
            if storage not in self._known:
                self._known.add(storage)
                weakref.finalize(storage, self._remove, storage.nbytes())
                self._now += storage.nbytes()
        self.most = max(self.most, self._now)

    def _remove(self, octets: int) -> None:
        self._now -= octets

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = operator(*args, **(kwargs or {}))
        self.add(leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
        if not operator.is_view:
            leaves = tree_leaves((args, kwargs, result))
            self.moved += sum(leaf.nbytes for leaf in leaves if isinstance(leaf, Tensor))
        return result
