"""The model card: origin, training, and the accuracy of the file that belongs to the model."""

import json
from pathlib import Path

import pytest

from tests.photos import save_model
from unseen.frozen.embedder import Embedder
from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json
from unseen.runtime.sealed import write_sealed
from unseen_search.catalog.model_card import accuracy_of, card, read_accuracy

METRICS = {
    "classes": 64,
    "queries": 1024,
    "gallery": 1024,
    "map_at_r": 0.1326,
    "map_at_r_high": 0.1529,
    "map_at_r_low": 0.1151,
    "untrained_map_at_r": 0.01,
    "protocol": "4f84",
    "training_protocol": "selected",
}


def test_the_card_states_data_recipe_protocol_and_numbers_with_intervals(tmp_path: Path) -> None:
    model = save_model(tmp_path / "data/models/tiny/ms/0", 1)
    (tmp_path / "data/metrics/tiny/ms").mkdir(parents=True)
    write_sealed(tmp_path / "data/metrics/tiny/ms/0.json", METRICS)
    text = card(Embedder(model), accuracy_of(model), {"model.onnx": 2e-6, "model.pt2": 0.0})
    for line in (
        "- Network: test_resnet, from random weights",
        "| data | 12 images of 3 classes |",
        "| protocol | selected |",
        "| MAP@R | 13.3 | 11.5 – 15.3 |",
        "Protocol 4f84, training protocol selected.",
        "- `model.onnx` differed from PyTorch by at most 2e-06 in a component.",
    ):
        assert f"\n{line}\n" in text
    assert "64 classes, which the training did not contain (metrics/tiny/ms/0.json)" in text
    assert "untrained" not in text, "only metrics with an interval"


def test_refuses_metrics_that_were_changed_after_the_evaluation(tmp_path: Path) -> None:
    path = tmp_path / "tiny/ms/0.json"
    path.parent.mkdir(parents=True)
    write_sealed(path, METRICS)
    path.write_text(path.read_text().replace("0.1326", "0.9326"))
    with pytest.raises(UserError, match=r"0\.json differs from its sha256(.|\n)*evaluate@tiny-ms-0"):
        read_accuracy(path)


def test_the_card_without_metrics_states_that_nothing_was_measured(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", 1)
    assert accuracy_of(model) is None
    assert "Not measured." in card(Embedder(model), None, {})


@pytest.mark.parametrize("shipped", [False, True])
def test_the_accuracy_of_a_ladder_is_that_of_the_chosen_rung(shipped: bool, tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", 1)
    chosen = {"name": "linear", "size": 96, "test": METRICS}
    write_json(tmp_path / "ladder.json", {"chosen": chosen, "shipped": shipped})
    accuracy = accuracy_of(model)
    assert accuracy is not None
    assert accuracy.metrics == METRICS
    assert accuracy.remark.startswith("Rung linear at 96 pixels")
    assert ("was not measured" in accuracy.remark) == shipped


def test_reads_the_json_of_unseen_evaluate(tmp_path: Path) -> None:
    write_json(tmp_path / "result.json", {"files": [{"file": "vectors.npy", **METRICS}]})
    assert read_accuracy(tmp_path / "result.json").metrics["map_at_r"] == 0.1326


@pytest.mark.parametrize("content", ["{}", "[]", "no JSON", json.dumps({"files": []}), '{"chosen": {}}'])
def test_refuses_a_file_without_metrics(content: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text(content)
    with pytest.raises(UserError, match=r"metrics\.json"):
        read_accuracy(tmp_path / "metrics.json")
