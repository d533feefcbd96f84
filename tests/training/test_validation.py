"""The metrics of the held-out classes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.jobs import CLASSES, IMAGES, recipe, write_tiny_set
from unseen.data.class_split import split_classes
from unseen.data.shards import Shards
from unseen.evaluation import metrics as module
from unseen.evaluation.metrics import quick_metrics
from unseen.methods.build import initial_method
from unseen.runtime.errors import UserError
from unseen.training.row_embedder import RowEmbedder
from unseen.training.validation import METRICS, validate, watch_test
from unseen.training.worker import Worker


def test_the_metrics_equal_those_of_the_held_out_rows(tiny_set: Path) -> None:
    shards, settings = Shards(tiny_set / "data/shards/tiny"), recipe("baseline")
    rows = shards.rows("train")
    split = split_classes(rows, shards.labels[rows], 0.4, seed=0)
    assert split.classes == CLASSES - 4
    method = initial_method(settings, split.classes, len(split.rows), seed=0)
    embedder = RowEmbedder(method, shards, settings, Worker(0, 1, torch.device("cpu")))
    metrics = validate(embedder, split)
    assert method.training
    embeddings = embedder.embed(split.validation_rows)
    assert embeddings.shape == (4 * IMAGES, method.dim)
    embedding = embedder.embed(split.validation_rows[7:8])
    torch.testing.assert_close(embedding[0], embeddings[7], rtol=1e-4, atol=1e-5)
    expected = quick_metrics(embeddings.numpy(), split.validation_labels)
    assert metrics == {name: expected[name] for name in METRICS}
    assert 0 < metrics["map_at_r"] < 1


@pytest.mark.parametrize("images", ["held out", "test"])
def test_validation_ranks_only_as_deep_as_its_metrics_need(
    images: str, tiny_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The depth of each query is R: no metric of a validation is that of the whole ranking."""
    depths: list[np.ndarray | None] = []
    rank_blocks = module.rank_blocks

    def recorded(*rows: Any, depth: np.ndarray | None, **options: Any) -> Any:
        depths.append(depth)
        return rank_blocks(*rows, depth=depth, **options)

    monkeypatch.setattr(module, "rank_blocks", recorded)
    shards, settings = Shards(tiny_set / "data/shards/tiny"), recipe("baseline")
    rows = shards.rows("train")
    split = split_classes(rows, shards.labels[rows], 0.4, seed=0)
    method = initial_method(settings, split.classes, len(split.rows), seed=0)
    embedder = RowEmbedder(method, shards, settings, Worker(0, 1, torch.device("cpu")))
    if images == "test":
        queries = len(shards.rows("test"))
        watch_test(embedder)
    else:
        queries = len(split.validation_rows)
        validate(embedder, split)
    (depth,) = depths
    assert depth is not None, "the whole ranking"
    assert depth.tolist() == [IMAGES - 1] * queries


def test_refuses_to_watch_the_test_classes_of_a_landmark_set(tmp_path: Path) -> None:
    write_tiny_set(tmp_path)
    settings = recipe("baseline", training={"watch_test": True})
    method = initial_method(settings, 8, 48, seed=0)
    shards = Shards(tmp_path / "data/shards/tiny")
    shards.manifest["extras"] = {"ground_truth.parquet": "sha256"}
    with pytest.raises(UserError, match="watch_test needs class labels of test images"):
        watch_test(RowEmbedder(method, shards, settings, Worker(0, 1, torch.device("cpu"))))
