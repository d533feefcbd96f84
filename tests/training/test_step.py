"""The step on one worker, with a method that can be computed by hand; test_exact.py tests several workers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from tests.training.jobs import recipe
from unseen.data.loader import TrainBatch, normalize
from unseen.methods.method import Method, Outputs
from unseen.runtime.errors import UserError
from unseen.training.optimizer import build_optimizer
from unseen.training.step import Learner, NotFinite, Step, train_step

SIDE = 4
RECIPE = recipe(
    "baseline",
    input={"size": SIDE, "resize": SIDE, "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.2]},
    optimizer={"name": "sgd", "learning_rate": 0.5, "weight_decay": 0.0, "momentum": 0.0},
)


@dataclass(frozen=True)
class NoisyOutputs(Outputs):
    noise: Tensor  # (B,)


class Linear(Method):
    """Loss terms: the mean of w x over the batch, and a random number of the objective."""

    dim = 1

    def __init__(self, poison: int | None = None, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = Parameter(torch.tensor(2.0))
        self.poison, self.scale = poison, scale
        self.seen: dict[str, Any] = {}

    def forward(self, images: Tensor) -> Any:
        mean = images.mean((1, 2, 3))[:, None] @ self.weight.reshape(1, 1)
        if self.poison is not None:
            mean = torch.where(torch.arange(len(mean))[:, None] == self.poison, torch.nan, mean)
        return NoisyOutputs(mean * self.scale, torch.rand(len(images)))

    def terms(self, outputs: Any, labels: Tensor, samples: Tensor, observed: Any) -> dict[str, Tensor]:
        self.seen = {
            "type": outputs.embedding.dtype,
            "noise": outputs.noise,
            "drawn": torch.rand(()),
            "labels": labels,
            "samples": samples,
        }
        return {"linear": outputs.embedding.mean(), "constant": 0.0 * outputs.embedding.sum() + 3.0}

    def embed(self, images: Tensor) -> Tensor:
        return torch.ones(len(images), 1)

    def parameter_groups(self) -> dict[str, list[Parameter]]:
        return {"backbone": [self.weight], "head": [], "proxies": []}


def _images() -> Tensor:
    return torch.randint(
        0, 256, (12, 3, SIDE, SIDE), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )


def _advance(
    method: Method,
    step: int = 0,
    seed: int = 0,
    rank: int = 0,
    validations: Sequence[float] = (),
    **blocks: Any,
) -> Step:
    settings = RECIPE.model_copy(
        update={name: getattr(RECIPE, name).model_copy(update=values) for name, values in blocks.items()}
    )
    optimizer = build_optimizer(settings.optimizer, method.parameter_groups(), torch.device("cpu"))
    batch = TrainBatch(step, _images(), torch.arange(12) // 4, torch.arange(12))
    return train_step(Learner(method, optimizer, settings, seed, rank), batch, validations).result()


def test_loss_terms_gradient_norm_and_update() -> None:
    method = Linear()
    gradient = float(normalize(_images(), RECIPE.input.mean, RECIPE.input.std).mean())
    result = _advance(method, optimizer={"clip_norm": None}, schedule={"warmup": 4})
    assert result.terms == pytest.approx({"linear": 2 * gradient, "constant": 3.0}, rel=1e-5)
    assert result.loss == pytest.approx(2 * gradient + 3.0, rel=1e-5)
    assert result.gradient_norm == pytest.approx(abs(gradient), rel=1e-5)
    assert result.learning_rate == pytest.approx(0.5 / 4)
    assert method.weight.item() == pytest.approx(2.0 - 0.125 * gradient, rel=1e-6)


def test_the_gradient_is_clipped_to_its_global_norm_and_by_value_and_logged_before() -> None:
    gradient = 1000 * float(normalize(_images(), RECIPE.input.mean, RECIPE.input.std).mean())
    for norm, value, clipped in ((0.5, None, 0.5), (None, 0.2, 0.2), (0.5, 0.2, 0.2), (0.1, 0.2, 0.1)):
        method = Linear(scale=1000.0)
        result = _advance(method, optimizer={"clip_norm": norm, "clip_value": value})
        assert result.gradient_norm == pytest.approx(abs(gradient), rel=1e-5)
        assert method.weight.item() == pytest.approx(2.0 - 0.5 * math.copysign(clipped, gradient), rel=1e-4)


def test_a_plateau_counts_the_validations_after_the_warm_up_of_new_layers() -> None:
    flat = [0.9, 0.9, 0.1, 0.1, 0.1]  # two of the warm-up, one improvement, two without improvement
    blocks = {"schedule": {"name": "plateau", "patience": 1}, "training": {"validate_every": 2}}
    assert _advance(
        Linear(), 10, validations=flat, optimizer={"new_layers_only": 4}, **blocks
    ).learning_rate == pytest.approx(0.05)
    assert _advance(
        Linear(), 8, validations=flat[:4], optimizer={"new_layers_only": 4}, **blocks
    ).learning_rate == pytest.approx(0.5)
    assert _advance(Linear(), 8, validations=flat[:4], **blocks).learning_rate == pytest.approx(0.05), (
        "without a warm-up all count"
    )


def test_a_warm_up_of_new_layers_needs_parameters_beside_the_backbone() -> None:
    method = Linear()
    method.backbone = torch.nn.ParameterList([method.weight])
    with pytest.raises(UserError, match=r"new_layers_only leaves nothing to train"):
        _advance(method, 3, optimizer={"new_layers_only": 4})
    _advance(method, 4, optimizer={"new_layers_only": 4})


def test_random_numbers_depend_on_seed_step_and_rank_only() -> None:
    def random_numbers(**which: int) -> tuple[list[float], float]:
        torch.rand(7)  # earlier random numbers must have no effect
        method = Linear()
        _advance(method, **which)
        return method.seen["noise"].tolist(), float(method.seen["drawn"])

    first = random_numbers(step=3, seed=1, rank=0)
    assert random_numbers(step=3, seed=1, rank=0) == first
    other_rank = random_numbers(step=3, seed=1, rank=1)
    assert other_rank[0] != first[0]
    assert other_rank[1] == first[1]
    assert random_numbers(step=4, seed=1)[0] != first[0]
    assert random_numbers(step=3, seed=2)[0] != first[0]


def test_the_objective_has_float32_inputs_under_bfloat16() -> None:
    method = Linear()
    _advance(method, training={"precision": "bfloat16"})
    assert method.seen["type"] == torch.float32
    assert method.weight.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        # the forward pass ran in bfloat16
        assert (
            method(normalize(_images(), RECIPE.input.mean, RECIPE.input.std)).embedding.dtype
            == torch.bfloat16
        )


def test_a_loss_that_is_not_finite_names_terms_and_positions() -> None:
    method = Linear(poison=7)
    with pytest.raises(NotFinite) as caught:
        _advance(method, step=5)
    assert list(caught.value.numbers) == ["linear", "constant", "loss"]
    assert all(value != value for value in caught.value.numbers.values())
    assert caught.value.positions == [7]
    assert method.weight.item() == 2.0


def test_a_gradient_that_is_not_finite_stops_the_run() -> None:
    class Root(Linear):
        def terms(self, outputs: Any, labels: Tensor, samples: Tensor, observed: Any) -> dict[str, Tensor]:
            return {"root": (outputs.embedding * 0).abs().sqrt().sum()}  # 0, with an infinite slope

    method = Root()
    with pytest.raises(NotFinite) as caught:
        _advance(method)
    assert list(caught.value.numbers) == ["gradient norm"]
    assert caught.value.positions == []
    assert method.weight.item() == 2.0


def test_refuses_a_slice_of_another_batch() -> None:
    method = Linear()
    optimizer = build_optimizer(RECIPE.optimizer, method.parameter_groups(), torch.device("cpu"))
    with pytest.raises(AssertionError, match="1 slices of 6 images are not a batch of 12"):
        train_step(
            Learner(method, optimizer, RECIPE, 0),
            TrainBatch(0, _images()[:6], torch.zeros(6, dtype=torch.int64), torch.arange(6)),
        )
