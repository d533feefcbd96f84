"""A batch in several passes: loss and gradients are those of the whole batch, to rounding."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.methods.small import CLASSES, SAMPLES, batch, places
from tests.training.jobs import job, recipe
from unseen.data.loader import TrainBatch
from unseen.methods.build import initial_method
from unseen.runtime.errors import UserError
from unseen.training import loop
from unseen.training.optimizer import build_optimizer
from unseen.training.step import Learner, train_step

FROZEN = {"batch_norm": "frozen"}


def trained(method: str, images_per_pass: int | None, steps: int, **blocks: Any) -> tuple[list[Any], Any]:
    """The numbers of some steps, and the method after them."""
    optimizer = {"name": "sgd", "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 1e-3}
    settings = recipe(method, **({"backbone": FROZEN, "optimizer": optimizer} | blocks))
    settings = settings.model_copy(
        update={"batch": settings.batch.model_copy(update={"classes": 4, "images_per_class": 3})}
    )
    module = initial_method(settings, CLASSES, SAMPLES, seed=0).double().train()
    built = build_optimizer(settings.optimizer, module.parameter_groups(), torch.device("cpu"))
    learner = Learner(module, built, settings, seed=0, images_per_pass=images_per_pass)
    numbers = []
    for step in range(steps):
        images, labels = batch(step)
        pixels = (128 + 40 * images).clamp(0, 255).to(torch.uint8)
        numbers.append(train_step(learner, TrainBatch(step, pixels, labels, places(labels))).result())
    return numbers, module


@pytest.mark.slow
@pytest.mark.parametrize("method", ["baseline", "crt", "multihead", "gsp", "irt"])
def test_weights_equal_those_of_the_whole_batch(method: str) -> None:
    """Of gsp, a step initialises the prototypes between the two forward passes."""
    blocks: dict[str, Any] = {"attention": False} if method == "multihead" else {}
    if method == "gsp":
        blocks["pooling"] = {"prototypes": 4, "initialization_memory": 24, "warmup": 1}
        blocks["backbone"] = FROZEN | {"arguments": {"output_stride": 8}}  # maps of several positions
    whole, expected = trained(method, None, 5, **blocks)
    parts, module = trained(method, 5, 5, **blocks)
    for one, other in zip(whole, parts, strict=True):
        assert other.loss == pytest.approx(one.loss, rel=1e-9)
        assert other.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-7)
    state = module.state_dict()
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(
            state[name], value, rtol=1e-7, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_the_first_pass_keeps_no_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest number of images whose forward pass has a graph is that of one pass."""
    from unseen.methods.baseline import Baseline

    original, seen = Baseline.forward, []

    def forward(self: Any, images: torch.Tensor) -> Any:
        seen.append((len(images), torch.is_grad_enabled()))
        return original(self, images)

    monkeypatch.setattr(Baseline, "forward", forward)
    trained("baseline", 5, 1)
    assert seen == [(5, False), (5, False), (2, False), (5, True), (5, True), (2, True)]


@pytest.mark.parametrize(
    ("method", "blocks", "module"),
    [("baseline", {}, "backbone"), ("multihead", {"backbone": FROZEN}, r"heads\.local\.0\.f")],
)
def test_refuses_statistics_of_the_whole_batch(
    method: str, blocks: dict[str, Any], module: str, root: Path
) -> None:
    in_passes = replace(job(root, recipe(method, **blocks)), images_per_pass=6)
    with pytest.raises(UserError, match=rf"images_per_pass is set, and {module}.* of the whole batch"):
        loop.train(in_passes, 0, 1, torch.device("cpu"))
