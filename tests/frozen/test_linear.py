"""The linear map learns a direction to ignore, starts at the identity, and repeats."""

import numpy as np
import pytest

from tests.vectors import unit
from unseen.evaluation.metrics import quick_metrics
from unseen.frozen.linear import LENGTHS, OPTIMIZER, LinearMap, mapped, recipe_of_linear, train
from unseen.frozen.proxies import LOSSES, criterion_of

DIM, EACH = 24, 8


def drawn(seed: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Classes differ in half of the dimensions; the other half is noise, which is larger."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((classes, DIM)) * (np.arange(DIM) < DIM // 2)
    noise = random.standard_normal((classes * EACH, DIM)) * np.where(np.arange(DIM) < DIM // 2, 0.3, 2.0)
    return unit(centres.repeat(EACH, axis=0) + noise), np.arange(classes).repeat(EACH)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_raises_the_accuracy_on_other_classes(loss: str) -> None:
    vectors, labels = drawn(0, 40)
    unseen, unseen_labels = drawn(1, 20)
    before = quick_metrics(unseen, unseen_labels)["map_at_r"]
    trained = [(steps, linear.weight()) for steps, linear in train(vectors, labels, (1, 150), loss)]
    steps, weights = zip(*trained, strict=True)
    assert steps == (1, 150)
    after = [quick_metrics(mapped(unseen, weight), unseen_labels)["map_at_r"] for weight in weights]
    assert after[1] > before + 0.05
    assert abs(weights[0] - np.eye(DIM)).max() < 0.0011, "one step of AdamW from the identity"


def test_repeats_and_does_not_touch_the_random_state_of_the_caller() -> None:
    import torch

    vectors, labels = drawn(0, 10)
    torch.manual_seed(5)
    first = dict(train(vectors, labels, (5,)))[5].weight()
    state = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(1), state)
    assert np.array_equal(dict(train(vectors, labels, (5,)))[5].weight(), first)
    assert not np.array_equal(dict(train(vectors[:40], labels[:40], (5,), seed=1))[5].weight(), first)


def test_the_change_decays_towards_the_published_features_and_proxies_do_not() -> None:
    import torch

    from unseen.training.optimizer import build_optimizer

    linear = LinearMap(criterion_of("nsoftmax", *drawn(0, 10)))
    optimizer = build_optimizer(OPTIMIZER, linear.parameter_groups(), torch.device("cpu"))
    for parameter in linear.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with torch.no_grad():
        linear.change.fill_(1.0)
    proxies = linear.criterion.get_parameter("proxies").detach().clone()
    optimizer.step()
    torch.testing.assert_close(linear.change, torch.full_like(linear.change, 1 - 1e-3 * 0.1))
    assert torch.equal(linear.criterion.get_parameter("proxies"), proxies)


def test_the_settings_of_the_rung() -> None:
    assert LENGTHS == (15, 30, 60, 120, 240)
    assert recipe_of_linear("cosface", 1000, 240).model_dump(mode="json", exclude_defaults=True) == {
        "batch": {"classes": 256, "images_per_class": 1, "sampling": "shuffled"},
        "optimizer": {
            "name": "adamw",
            "learning_rate": 1e-3,
            "weight_decay": 0.1,
            "multipliers": {"proxies": 10.0},
            "decay": {"proxies": 0.0},
        },
        "training": {"protocol": "published", "iterations": 240, "precision": "float32"},
        "dim": None,
        "loss": {"scale": 20.0, "margin": 0.1},
    }
    assert recipe_of_linear("nsoftmax", 9, 5).loss.model_dump()["temperature"] == 0.05
    assert recipe_of_linear("nsoftmax", 9, 5).batch.classes == 9, "all photos are fewer than a batch"


def test_mapped_vectors_have_unit_length() -> None:
    vectors, _ = drawn(0, 3)
    weight = np.diag(np.arange(1, DIM + 1)).astype(np.float32)
    result = mapped(vectors, weight)
    expected = vectors.astype(np.float64) @ weight.T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert abs(result - expected).max() < 1e-6
