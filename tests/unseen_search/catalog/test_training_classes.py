"""The training classes of a model, and the products of which a catalog measures false matches."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import save_file

from tests.photos import picture, save_model, save_products
from unseen.data.shard_writer import ShardWriter
from unseen.frozen.network import Network, write_network
from unseen.frozen.training_classes import FILE, training_classes, write_training_classes
from unseen.networks.published_network import timm
from unseen.runtime.errors import UserError
from unseen_search.catalog import Catalog, Embedder, build


@pytest.mark.slow
def test_a_catalog_measures_the_rate_on_products_that_its_model_was_not_trained_on(tmp_path: Path) -> None:
    photos = save_products(tmp_path / "photos", 18, 2)
    model = save_model(tmp_path / "model", 1)
    unknown = build(photos, tmp_path / "catalog", model, labels="folders", processes=1).threshold(0.9)
    assert (unknown.products, unknown.photos, unknown.trained) == (18, 36, None)
    write_training_classes(model, ["product 00", "product 01", "product 02", "elsewhere"])
    catalog = build(photos, tmp_path / "catalog", model, processes=1)
    shutil.rmtree(model)
    threshold = catalog.threshold(0.9)
    assert (threshold.products, threshold.photos, threshold.trained) == (15, 30, 3)
    updated = build(photos, tmp_path / "catalog", processes=1)
    assert updated.threshold(0.9) == threshold, "an update keeps the names"
    (tmp_path / "catalog/model" / FILE).write_text('{"classes": []}')
    with pytest.raises(UserError, match=f"{FILE} is damaged"):
        Catalog(tmp_path / "catalog")


@pytest.mark.parametrize(("names", "warns"), [(["shirt"], True), (["shirt", "product 00"], False)])
def test_a_build_warns_if_no_training_class_is_a_label(
    names: list[str], warns: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = save_products(tmp_path / "photos", 3, 2)
    model = save_model(tmp_path / "model", 1)
    write_training_classes(model, names)
    build(photos, tmp_path / "catalog", model, labels="folders", processes=1)
    assert ("none of the 1 training classes of the model is a label" in capsys.readouterr().err) is warns


def test_the_names_change_no_fingerprint_and_are_a_file_of_the_model(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", 1)
    assert training_classes(model) is None
    fingerprint = Embedder(model).fingerprint()
    write_training_classes(model, ["b", "a"])
    assert Embedder(model).fingerprint() == fingerprint
    assert Embedder(model).files()[-1] == model / FILE
    assert Embedder(model).training_classes == {"a", "b"}
    (model / FILE).write_text("[]")
    with pytest.raises(UserError, match=f"{FILE} is damaged"):
        training_classes(model)


def test_a_published_network_has_no_training_class_and_one_with_a_trained_part_has_unknown_ones(
    tmp_path: Path,
) -> None:
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), tmp_path / "w.safetensors")
    write_network(Network("test_resnet.r160_in1k", tmp_path / "w.safetensors", 32), tmp_path / "model")
    assert training_classes(tmp_path / "model") == frozenset()
    about = tmp_path / "model/network.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"linear": {}}))
    assert training_classes(tmp_path / "model") is None


def test_a_model_of_the_graph_has_the_training_classes_of_its_shards(tmp_path: Path) -> None:
    model = save_model(tmp_path / "data/models/fruit/ms/0", 1)
    assert training_classes(model) is None
    shards = tmp_path / "data/shards/fruit"
    shards.mkdir(parents=True)
    with ShardWriter(shards, ["apple", "fig", "pear"], 2**20) as writer:
        for label, split in enumerate(("train", "test", "train")):
            writer.add(picture(label), label, split, f"{label}.jpg", 48, 40)
        writer.finish({"dataset": "fruit"})
    assert training_classes(model) == {"apple", "pear"}
