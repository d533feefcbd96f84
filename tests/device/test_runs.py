"""Whole runs on the pretended GPU: a training with its export, an interrupted training, photo search, a rung
of the ladder. No operation mixes devices, and the results are those of the CPU to rounding."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.device import pretended
from tests.device.pretended import CPU, GPU, recorded
from tests.frozen.test_train import RESNET, cached_maps, recipe_of
from tests.photos import picture, save_model, save_products
from tests.training.jobs import job, killed_at, log_of, recipe
from unseen.config.stages import ExportSettings
from unseen.data.embeddings import read
from unseen.frozen import head_training, tail
from unseen.frozen.embedder import Embedder
from unseen.frozen.network import Network
from unseen.frozen.pictures import listed
from unseen.frozen.tail import AdaptTrainer, inputs
from unseen.frozen.trained import Task
from unseen.training import loop, pace
from unseen.training.export import model as export
from unseen.training.job import Job

pytestmark = pytest.mark.slow

RUNS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "crt": {"training": {"protocol": "refit"}},
    "multihead": {"training": {"protocol": "published", "watch_test": True}},
    "gsp": {"training": {"patience": 2}},
    "irt": {"training": {"precision": "bfloat16"}, "optimizer": {"name": "sgd", "learning_rate": 1e-4}},
}


def _elsewhere(job: Job, root: Path) -> Job:
    """The same job with its state and outputs below `root`."""
    assert job.outputs is not None
    outputs = replace(job.outputs, model=root / "model", history=root / "history.csv", log=root / "log.json")
    return replace(job, outputs=outputs, state=root / "state")


def _trained_and_exported(root: Path, method: str) -> None:
    rows, vectors = [], []
    with pytest.MonkeyPatch.context() as patch:
        for device in (CPU, GPU):
            training = _elsewhere(job(root, recipe(method, **RUNS[method])), root / device.type)
            patch.setattr(export, "device", lambda device=device: device)
            with recorded() as record:
                rows.append(loop.train(training, 0, 1, device))
                assert training.outputs is not None
                export.export_model(
                    root / "data/shards/tiny", training.outputs.model, root / device.type / "out",
                    ExportSettings(workers=1, batch_size=4),
                )  # fmt: skip
            assert record.refused == []
            assert (record.launches.total() > 1000) == (device == GPU)
            training_batch = 12 * 3 * 32 * 32
            assert (training_batch in record.pinned_to_device) == (device == GPU)
            assert training_batch not in record.pinned  # images are decoded into pinned memory
            assert (record.launches["searchsorted"] > 0) == (device == GPU)  # validations
            vectors.append(read(root / device.type / "out/test-untrained.arrow").embedding)
    on_cpu, on_gpu = rows
    assert log_of(training)["host"]["device"] == "pretended"
    assert on_gpu.keys() == on_cpu.keys()
    assert on_gpu["iteration"] == on_cpu["iteration"]
    assert on_gpu["loss"] == pytest.approx(on_cpu["loss"], rel=5e-2)
    np.testing.assert_allclose(vectors[1], vectors[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", RUNS)
def test_a_training_and_its_export(method: str, root: Path) -> None:
    pretended.run(_trained_and_exported, root, method)


def _interrupted(root: Path) -> None:
    settings = recipe("baseline")
    straight, broken = (_elsewhere(job(root, settings), root / name) for name in ("straight", "broken"))
    row = loop.train(straight, 0, 1, GPU)
    pace.SHORT = 60.0  # also a slow checkpoint is due
    with killed_at(7):
        loop.train(broken, 0, 1, GPU)
    resumed = loop.train(broken, 0, 1, GPU)
    assert log_of(broken)["resumed_at"] == [6]
    assert resumed == row


def test_a_resumed_training_repeats_the_bits_of_the_uninterrupted_one(root: Path) -> None:
    pretended.run(_interrupted, root)


def _embedded(folder: Path) -> None:
    pictures = []
    for number in range(3):
        pictures.append(folder / f"{number}.jpg")
        pictures[-1].write_bytes(picture(number))
    model = save_model(folder / "model", 0)
    expected = Embedder(model, where=CPU)(pictures)
    with recorded() as record:
        embedder = Embedder(model)
        on_gpu = embedder(pictures)
        half = Embedder(model, "bfloat16")(pictures)
    assert embedder.device.type == "cuda"
    assert record.refused == []
    np.testing.assert_allclose(on_gpu, expected, rtol=0, atol=1e-6)
    assert 0 < np.abs(half - expected).max() < 2e-2


def test_an_embedder_in_float32_and_bfloat16(tmp_path: Path) -> None:
    pretended.run(_embedded, tmp_path)


def _head() -> None:
    maps, labels = cached_maps()
    settings = recipe_of("gsp", RESNET | {"dim": 8})
    rows, results = np.arange(24), []
    with pytest.MonkeyPatch.context() as patch:
        for place in (CPU, GPU):
            patch.setattr(head_training, "device", lambda place=place: place)
            with recorded() as record:
                (trained,) = head_training.train(settings, maps, rows, labels, (2,), principal=True)
                results.append(head_training.embedded(trained.method, maps, rows))
            assert record.refused == []
            assert bool(record.launches) == (place == GPU)
    np.testing.assert_allclose(results[1], results[0], rtol=0, atol=1e-3)


def test_a_head_on_cached_maps() -> None:
    pretended.run(_head)


def _adapted(folder: Path) -> None:
    import timm
    from safetensors.torch import save_file

    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), folder / "w.safetensors")
    network = Network("test_resnet.r160_in1k", folder / "w.safetensors", 32)
    photos = save_products(folder / "photos", 8, 3)
    rows, searched, results = np.arange(18), np.arange(18, 24), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail, "HEAD_STEPS", 2)
        for device in (CPU, GPU):
            patch.setattr(tail, "device", lambda device=device: device)
            patch.setattr("unseen.frozen.maps.device", lambda device=device: device)
            place = folder / device.type
            with recorded() as record:
                given = inputs(network, photos, listed(photos), place / "features", place / "model")
                adapt = AdaptTrainer(given, "nsoftmax", 0)
                (trained,) = adapt.train(Task(rows, rows // 3, (3,), searched))
            assert record.refused == []
            assert bool(record.launches) == (device == GPU)
            results.append(trained.vectors)
    np.testing.assert_allclose(results[1], results[0], rtol=0, atol=1e-3)


def test_the_rung_that_trains_the_last_layers(tmp_path: Path) -> None:
    pretended.run(_adapted, tmp_path)
