"""A saved and loaded model gives the same embeddings to the bit, saves to the same bytes, and errors name
other contents."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.methods.small import CLASSES, METHODS, SAMPLES, batch, places, recipe
from unseen.methods.artifact import (
    Weights,
    load_method,
    save_recipe,
    save_weights,
    training_settings,
    weights_digest,
)
from unseen.methods.build import initial_method
from unseen.methods.method import Method
from unseen.methods.settings import Recipe
from unseen.runtime.errors import UserError
from unseen.runtime.files import remove_partial_files

SEED = 5


def trained(settings: Recipe) -> Method:
    """A method after three steps: weights, running statistics, memories and prototypes have all changed."""
    method = initial_method(settings, CLASSES, SAMPLES, SEED).train()
    optimizer = torch.optim.SGD(method.parameters(), lr=1e-2)
    for step in range(3):
        images, labels = batch(step)
        optimizer.zero_grad()
        sum(method.objective(method(images), labels, places(labels)).values()).backward()
        optimizer.step()
    return method.eval()


def write(directory: Path, settings: Recipe, method: Method) -> None:
    save_weights(directory / "weights.safetensors", method)
    save_recipe(directory / "recipe.json", settings, "drawn", SEED, CLASSES, SAMPLES)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    settings = recipe("baseline")
    write(tmp_path, settings, initial_method(settings, CLASSES, SAMPLES, SEED))
    return tmp_path


@pytest.mark.parametrize("name", METHODS)
def test_a_loaded_model_gives_equal_embeddings(tmp_path: Path, name: str) -> None:
    settings = recipe(name)
    method = trained(settings)
    write(tmp_path, settings, method)
    loaded = load_method(tmp_path)
    images, _ = batch(9)
    assert torch.equal(loaded.method.embed(images), method.embed(images))
    assert not loaded.method.training
    assert (loaded.recipe, loaded.dataset, loaded.seed) == (settings, "drawn", SEED)


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["last", "untrained", "best_on_test"])
def test_each_kind_of_weights_has_its_file(tmp_path: Path, weights: Weights) -> None:
    settings = recipe("baseline")
    method = trained(settings)
    write(tmp_path, settings, initial_method(settings, CLASSES, SAMPLES, SEED))
    save_weights(tmp_path / f"{weights}.safetensors", method)
    images, _ = batch()
    assert torch.equal(load_method(tmp_path, weights).method.embed(images), method.embed(images))
    assert not torch.equal(load_method(tmp_path, "weights").method.embed(images), method.embed(images))


@pytest.mark.parametrize("name", METHODS)
def test_equal_weights_give_equal_bytes(tmp_path: Path, name: str) -> None:
    method = trained(recipe(name))
    save_weights(tmp_path / "one", method)
    save_weights(tmp_path / "other", method)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


@pytest.mark.parametrize(
    ("name", "blocks"),
    [("irt", {}), ("baseline", {"memory": {"size": 5000}}), ("gsp", {"memory": {"size": 5000}})],
)
def test_memories_are_not_saved(tmp_path: Path, name: str, blocks: dict[str, Any]) -> None:
    settings = recipe(name, **blocks)
    method = trained(settings)
    write(tmp_path, settings, method)
    saved = load_file(tmp_path / "weights.safetensors")
    assert not [key for key in saved if ".memory." in key]
    assert {key for key, _ in method.named_parameters()} <= set(saved)
    assert int(load_method(tmp_path).method.loss.memory.filled) == 0


@pytest.mark.slow
def test_loading_does_not_need_the_initial_checkpoint(tmp_path: Path) -> None:
    """Loading works without the checkpoint from which the training started, also for the untrained model."""
    donor = recipe("baseline")
    state = {
        key.removeprefix("backbone.network."): value.contiguous()
        for key, value in initial_method(donor, CLASSES, SAMPLES, 1).state_dict().items()
        if key.startswith("backbone.")
    }
    checkpoint = tmp_path / "start.safetensors"
    save_file(state, checkpoint)
    settings = recipe("baseline", backbone={"checkpoint": str(checkpoint)})
    method = trained(settings)
    write(tmp_path, settings, method)
    save_weights(tmp_path / "untrained.safetensors", initial_method(settings, CLASSES, SAMPLES, SEED))
    checkpoint.unlink()
    images, _ = batch()
    assert torch.equal(load_method(tmp_path).method.embed(images), method.embed(images))
    assert torch.equal(
        load_method(tmp_path, "untrained").method.backbone.network.conv1[0].weight, state["conv1.0.weight"]
    )


def test_the_recipe_is_readable_and_sorted(model: Path) -> None:
    text = (model / "recipe.json").read_text()
    content = json.loads(text)
    assert list(content) == [
        "classes",
        "dataset",
        "recipe",
        "samples",
        "schema_version",
        "seed",
        "weights_sha256",
    ]
    assert json.dumps(content, sort_keys=True, indent=2) + "\n" == text
    assert content["recipe"]["method"] == "baseline"


def test_the_recipe_has_the_hash_of_the_checkpoint(tmp_path: Path) -> None:
    settings = recipe("baseline", backbone={"checkpoint": "start.safetensors"})
    save_weights(tmp_path / "weights.safetensors", initial_method(recipe("baseline"), CLASSES, SAMPLES, SEED))
    save_recipe(tmp_path / "recipe.json", settings, "drawn", SEED, CLASSES, SAMPLES, "ab" * 32)
    assert json.loads((tmp_path / "recipe.json").read_text())["checkpoint_sha256"] == "ab" * 32
    assert load_method(tmp_path).recipe == settings


def test_names_missing_files(model: Path) -> None:
    with pytest.raises(UserError, match=r"last\.safetensors is missing"):
        load_method(model, "last")
    (model / "recipe.json").unlink()
    with pytest.raises(UserError, match=r"recipe\.json is missing"):
        load_method(model)


@pytest.mark.parametrize("name", ["recipe.json", "weights.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "directory"])
def test_refuses_a_pipe_or_directory_in_the_place_of_a_file(model: Path, name: str, kind: str) -> None:
    (model / name).unlink()
    os.mkfifo(model / name) if kind == "pipe" else (model / name).mkdir()
    with pytest.raises(UserError, match=rf"{name} cannot be used: (it is a named pipe|Is a directory)"):
        load_method(model)
    if name == "weights.safetensors":
        with pytest.raises(UserError, match=f"{name} cannot be used"):
            weights_digest(model, "weights")


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"schema_version": 1, "recipe": {"method": "baseline", "colour": 1}, "classes": 1, "samples": 1, '
        '"dataset": "d", "seed": 0}',
        '{"schema_version": 1}',
    ],
)
def test_names_a_damaged_recipe(model: Path, content: str) -> None:
    (model / "recipe.json").write_text(content)
    for read in (load_method, training_settings):
        with pytest.raises(UserError, match=r"recipe\.json"):
            read(model)


def test_names_damaged_weights(model: Path) -> None:
    path = model / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UserError, match=r"weights\.safetensors is damaged"):
        load_method(model)


def test_names_one_flipped_bit_of_the_weights(model: Path) -> None:
    path = model / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"(?s)weights\.safetensors is damaged or was replaced.*dvc repro"):
        load_method(model)


def test_reads_a_model_that_was_written_without_digests(model: Path) -> None:
    content = json.loads((model / "recipe.json").read_text())
    del content["weights_sha256"]
    (model / "recipe.json").write_text(json.dumps(content))
    assert load_method(model).seed == SEED


def test_weights_have_the_permissions_of_other_files_and_the_lock_of_their_writer(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model / "weights.safetensors"
    assert path.stat().st_mode == (model / "recipe.json").stat().st_mode
    replace = Path.replace

    def while_others_write(self: Path, target: Path) -> Path:
        remove_partial_files(model, path.name)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", while_others_write)
    save_weights(path, initial_method(recipe("baseline"), CLASSES, SAMPLES, SEED))


def test_names_weights_of_another_network(model: Path) -> None:
    settings = recipe("baseline", dim=16)
    save_weights(model / "weights.safetensors", initial_method(settings, CLASSES, SAMPLES, SEED))
    save_recipe(model / "recipe.json", recipe("baseline"), "drawn", SEED, CLASSES, SAMPLES)
    with pytest.raises(UserError, match=r"2 tensors differ, first head\.projection\.linear\.bias"):
        load_method(model)


@pytest.mark.parametrize("version", [None, 0])
def test_refuses_a_model_of_another_schema_version(model: Path, version: int | None) -> None:
    path = model / "recipe.json"
    content = json.loads(path.read_text())
    del content["schema_version"]
    path.write_text(json.dumps(content if version is None else content | {"schema_version": version}))
    with pytest.raises(
        UserError, match=rf"recipe\.json has schema version {version}, this version .* reads 1\."
    ):
        load_method(model)
