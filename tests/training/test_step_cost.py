"""The predicted cost of a training step is that of a real one: its operations, and the memory that torch's
allocator measures."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.params import resolve
from unseen.config.document import Params
from unseen.data.loader import TrainBatch
from unseen.methods.build import initial_method
from unseen.methods.settings import Recipe, StepCost
from unseen.training import cost as module
from unseen.training.cost import measured_seconds, step_cost
from unseen.training.run import optimizer_of
from unseen.training.step import Learner, SubmittedStep, train_step

PARAMS = Params(Path(__file__).resolve().parents[2] / "params.yaml")
CLASSES, IMAGES = 12, 96
CPU = torch.device("cpu")
# one of each kind of network, pooling, loss and memory
METHODS = ("ms", "crt", "multihead", "gsp", "gsp_xbm", "irt_l", "irt_r", "xbm", "snca", "proxy_anchor")
METHODS = (*METHODS, "proxy_nca", "nsoftmax", "triplet")


def small(method: str, **changes: Any) -> Recipe:
    with_memory = getattr(resolve(PARAMS, "parts", method), "memory", None) is not None
    memory = {"memory.size": 32, "memory.start": 0} if with_memory else {}
    overrides = {"training.precision": "float32", "batch.classes": 8, **memory, **changes}
    return resolve(PARAMS, "parts", method, overrides)


def measured(recipe: Recipe) -> tuple[int, int]:
    """Operations, and the most bytes that torch's allocator had, of the third step of a training."""
    recipe = module._without_weights(recipe)
    method = initial_method(recipe, CLASSES, IMAGES, seed=0).train()
    for part in method.modules():  # as in the steps after the first
        if hasattr(part, "_initialized"):
            part._initialized.write(part.initialized, 1)
    optimizer = optimizer_of(method, recipe, CPU)
    learner = Learner(method, optimizer, recipe, seed=0)
    for step in range(2):
        train_step(learner, module._batch(recipe, step)).result()
    optimizer.zero_grad(set_to_none=True)
    states = [value for state in optimizer.state.values() for value in state.values()]
    resident = sum(tensor.nbytes for tensor in (*method.parameters(), *method.buffers(), *states))
    with torch.profiler.profile(profile_memory=True) as profile, FlopCounterMode(display=False) as counter:
        train_step(learner, module._batch(recipe, 2)).result()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return counter.get_total_flops(), resident + most


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_the_prediction_is_that_of_a_real_step(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = small(method)
    predicted = step_cost(recipe, CLASSES, IMAGES)
    assert capsys.readouterr().out == ""
    flops, memory = measured(recipe)
    assert predicted.flops == pytest.approx(flops, rel=0.01)
    assert predicted.memory(recipe.batch.size) == pytest.approx(memory, rel=0.15)


def test_memory_is_linear_in_the_images_and_bfloat16_takes_less() -> None:
    predicted = step_cost(small("ms"), CLASSES, IMAGES)
    larger = small("ms", **{"batch.classes": 12})  # a batch that the prediction has not seen
    expected = step_cost(larger, CLASSES, IMAGES).memory(larger.batch.size)
    assert predicted.memory(larger.batch.size) == pytest.approx(expected, rel=0.03)
    narrow = step_cost(small("ms", **{"training.precision": "bfloat16"}), CLASSES, IMAGES)
    assert narrow.per_image < 0.8 * predicted.per_image
    assert narrow.flops == predicted.flops


@pytest.mark.slow
def test_a_step_of_crt_on_bn_inception_is_measured() -> None:
    """Equal images have a gradient of NaN there."""
    recipe = resolve(PARAMS, "cub", "crt", {"batch.classes": 2, "batch.images_per_class": 2})
    cost = StepCost(flops=10**9, moved=0, fixed=0, per_image=0)
    assert measured_seconds(recipe, CLASSES, IMAGES, cost, CPU) > 0


def test_a_step_is_measured_after_its_prediction() -> None:
    """On the token corpus, whose network refuses a value that is no token: pixels that a constant of the
    prediction left unscaled are none."""
    recipe = resolve(PARAMS, "tokens", "gsp")
    cost = step_cost(recipe, CLASSES, IMAGES)
    assert measured_seconds(recipe, CLASSES, IMAGES, cost, CPU) > 0


def test_a_step_too_large_to_measure_is_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the images is trained on, and its seconds are four times as many."""
    recipe, sizes = small("ms", **{"input.size": 32, "batch.images_per_class": 2}), []
    original = module.train_step

    def noted(learner: Learner, batch: TrainBatch) -> SubmittedStep:
        sizes.append(len(batch.images))
        return original(learner, batch)

    monkeypatch.setattr(module, "train_step", noted)
    clock = iter(range(100))
    monkeypatch.setattr(module, "process_time", lambda: float(next(clock)) * recipe.training.threads)
    for flops, seconds in ((10**10, 1), (4 * 10**11, 4)):
        cost = StepCost(flops=flops, moved=0, fixed=0, per_image=0)
        assert measured_seconds(recipe, CLASSES, IMAGES, cost, CPU) == seconds
    assert sizes == [recipe.batch.size] * 3 + [recipe.batch.size // 4] * 3
