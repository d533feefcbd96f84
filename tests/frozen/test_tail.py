"""The rung `adapt`: rates of the layers, the length of the warm-up, and the written model."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.photos import save_products
from unseen.frozen import tail as module
from unseen.frozen.embedder import Embedder
from unseen.frozen.network import Network, add_tail, write_network
from unseen.frozen.pictures import listed
from unseen.frozen.tail import OPTIMIZER, AdaptTrainer, inputs, schedule_of
from unseen.frozen.trained import Task
from unseen.networks.published_network import timm
from unseen.networks.tail import Tail
from unseen.runtime.errors import UserError
from unseen.training.optimizer import build_optimizer, factor


@pytest.fixture
def network(tmp_path: Path) -> Network:
    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), tmp_path / "w.safetensors")
    return Network("test_resnet.r160_in1k", tmp_path / "w.safetensors", 32)


def tail(count: int = 3) -> Tail:
    torch.manual_seed(0)
    return Tail(timm.create_model("test_resnet", num_classes=0).eval(), "test_resnet", count, 32)


def test_rates_decay_from_the_last_layer_to_the_first() -> None:
    adapted = tail(3)
    optimizer = build_optimizer(
        OPTIMIZER, {"backbone": list(adapted.parameters())}, torch.device("cpu"), adapted.layers()
    )
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    last, middle, first = (
        {rates[id(value)] for name, value in adapted.network.named_parameters() if name.startswith(layer)}
        for layer in ("layer4", "layer3", "layer2")
    )
    assert last == {2e-3}
    assert middle == {2e-3 * 0.8}
    assert first == {2e-3 * 0.8**2}
    assert len(rates) == sum(map(len, adapted.layers()))


def test_a_short_training_has_no_warm_up() -> None:
    assert (schedule_of(100).name, schedule_of(100).warmup) == ("cosine", 20)
    rates = [factor(schedule_of(2), step, 2) for step in range(2)]
    assert rates == [1.0, pytest.approx(0.5)]


def test_the_settings_of_the_rung() -> None:
    assert (module.LENGTHS, module.HEAD_STEPS, module.SHARE) == ((100,), 50, 4)
    recipe = AdaptTrainer.recipe(Mock(_loss="arcface"), 1000, 100)
    assert recipe.model_dump(mode="json", exclude_defaults=True) == {
        "batch": {"classes": 32, "images_per_class": 1, "sampling": "shuffled"},
        "optimizer": {
            "name": "adamw",
            "learning_rate": 2e-3,
            "weight_decay": 0.0,
            "multipliers": {"proxies": 5.0},
            "anchor": 10.0,
            "layer_decay": 0.8,
        },
        "schedule": {"name": "cosine", "warmup": 20},
        "training": {"protocol": "published", "iterations": 100, "precision": "float32"},
        "dim": None,
        "loss": {"scale": 20.0, "margin": 0.1},
    }


@pytest.fixture
def trainer(
    tmp_path: Path, network: Network, monkeypatch: pytest.MonkeyPatch
) -> tuple[AdaptTrainer, np.ndarray]:
    monkeypatch.setattr(module, "HEAD_STEPS", 2)
    photos = save_products(tmp_path / "photos", 8, 3)
    pictures = listed(photos)
    given = inputs(network, photos, pictures, tmp_path / "features", tmp_path / "model")
    return AdaptTrainer(given, "nsoftmax", 0), np.arange(24) // 3


def test_repeats_and_restarts_from_the_published_weights(
    trainer: tuple[AdaptTrainer, np.ndarray],
) -> None:
    adapt, labels = trainer
    rows, searched = np.arange(18), np.arange(18, 24)
    first = adapt.train(Task(rows, labels[rows], (1, 3), searched))
    other = adapt.train(Task(rows[6:], labels[rows[6:]], (2,), searched))
    again = adapt.train(Task(rows, labels[rows], (1, 3), searched))
    assert [each.steps for each in first] == [1, 3]
    assert not np.array_equal(first[0].vectors, first[1].vectors)
    assert not np.array_equal(first[1].vectors, other[0].vectors)
    for one, two in zip(first, again, strict=True):
        assert one.vectors.tobytes() == two.vectors.tobytes()
        assert all(torch.equal(value, two.parameters[name]) for name, value in one.parameters.items())
    assert abs(np.linalg.norm(first[1].vectors, axis=1) - 1).max() < 1e-6


def test_the_written_model_embeds_as_trained_and_other_weights_are_equal(
    trainer: tuple[AdaptTrainer, np.ndarray], network: Network, tmp_path: Path
) -> None:
    adapt, labels = trainer
    write_network(network, tmp_path / "model")
    before = load_file(tmp_path / "model/weights.safetensors")
    (trained,) = adapt.train(Task(np.arange(24), labels, (3,), np.arange(24)))
    adapt.write(tmp_path / "model", trained, 24, 8, True)
    after = load_file(tmp_path / "model/weights.safetensors")
    assert before.keys() == after.keys()
    changed = {name for name in before if before[name].numpy().tobytes() != after[name].numpy().tobytes()}
    assert changed
    assert changed <= trained.parameters.keys()
    files = [tmp_path / "photos" / name for name in listed(tmp_path / "photos").paths]
    vectors = Embedder(tmp_path / "model")(files)
    assert abs(vectors - trained.vectors).max() < 2e-3, "the inputs of the last layers are float16"
    assert abs(vectors - Embedder(network)(files)).max() > 1e-2


def test_refuses_a_network_that_is_no_chain_and_foreign_weights(
    tmp_path: Path, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_network(network, tmp_path / "model")
    with pytest.raises(ValueError, match="has no weight fc"):
        add_tail(tmp_path / "model", {"fc": torch.zeros(1)}, {})
    monkeypatch.setattr(module, "SHARE", 0.1)
    with pytest.raises(UserError, match=r"last layers of test_resnet(.|\n)* --no-adapt"):
        module.tail_of(network, tmp_path / "out")
