"""Training on tuples: from archives of landmarks to metrics, killed and resumed to the byte, on one and two
workers."""

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from tests.data.ingest import landmark_miniature as miniature
from tests.oracles.mining import walk
from tests.params import resolve
from tests.resolved import write_resolved
from tests.training.jobs import Killed
from tests.training.workers import run_workers
from unseen.config.document import Params
from unseen.config.stages import TrainSettings
from unseen.data.class_split import VALIDATION, split_group
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import IngestSettings, LandmarksSource
from unseen.data.shard_writer import ShardWriter
from unseen.data.shards import Shards
from unseen.methods.build import initial_method
from unseen.methods.settings import Recipe, parse_recipe
from unseen.runtime.errors import UserError
from unseen.stages import evaluate, export
from unseen.training import loop, row_embedder
from unseen.training.job import Job, job_of
from unseen.training.mining import mine, tuple_sampler
from unseen.training.row_embedder import RowEmbedder
from unseen.training.worker import Worker

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("every_checkpoint")]

CPU = torch.device("cpu")
NAME = Path("landmarks/irt_r/0")
VALUE: dict[str, Any] = {
    "method": "irt",
    "backbone": {"name": "test_vit", "pretrained": False, "arguments": {"img_size": 32, "patch_size": 8}},
    "input": {
        "size": 32,
        "resize": None,
        "fit": "square",
        "crop_scale": [1.0, 1.0],
        "crop_ratio": [1.0, 1.0],
        "flip": 0.0,
    },
    "batch": {"classes": 2, "images_per_class": 5, "sampling": "tuples", "pairs": 8, "pool": 20},
    "optimizer": {"name": "adam", "learning_rate": 1e-3, "weight_decay": 1e-6, "clip_norm": None},
    "schedule": {"name": "step", "every": 4, "factor": 0.990049833749168},
    "training": {"iterations": 8, "validate_every": 4, "precision": "float32", "threads": 1},
    "loss": {"name": "tuple_contrastive", "negatives": 3},
    "memory": None,
    "koleo_weight": 4.0,
}
RECIPE: Recipe = parse_recipe(VALUE)


def project(tmp_path: Path, shards: Path) -> Path:
    (tmp_path / "data/shards").mkdir(parents=True)
    (tmp_path / "data/shards/landmarks").symlink_to(shards)
    return tmp_path


def job(root: Path, recipe: Recipe = RECIPE) -> Job:
    machine = TrainSettings(loader_threads=1, checkpoint_every=1)
    return job_of("landmarks", "irt_r", 0, recipe, root, machine)


def results(root: Path) -> dict[str, bytes]:
    files = [*(root / "data/models").rglob("*.*"), *(root / "data/history").rglob("*.csv")]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("landmarks")
    raw = miniature.write(root / "raw")
    with pytest.MonkeyPatch.context() as patch:
        miniature.expect(patch)
        ingest(
            LandmarksSource(**{name: str(raw / name) for name in ("sfm120k", *miniature.BENCHMARKS)}),
            IngestSettings(),
            root / "shards",
            "landmarks",
            1,
        )
    return root / "shards"


@pytest.fixture(scope="module")
def trained(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = project(tmp_path_factory.mktemp("straight"), shards)
    loop.train(job(root), 0, 1, CPU)
    return root


def test_from_archives_to_numbers(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained)
    Path("params.yaml").write_text("export: {workers: 1}\n")
    reduced = {"recall_at": [1], "confidence": 0.9, "seed": 0, "reduce": {"dim": 6}}
    write_resolved(trained, "export", "landmarks", "irt_r", batch_size=8, scales=[1.0])
    write_resolved(trained, "evaluate", "landmarks", "irt_r", evaluate=reduced)
    export.run("landmarks", "irt_r", 0)
    evaluate.run("landmarks", "irt_r", 0)
    metrics = json.loads(Path("data/evaluation", NAME, "metrics.json").read_text())
    for prefix in ("", "last_", "untrained_", "features_", "reduced_"):
        for benchmark in miniature.BENCHMARKS:
            for level in ("easy", "medium", "hard"):
                for metric in ("map", "mp_at_1", "mp_at_5", "mp_at_10"):
                    name = f"{prefix}{benchmark}_{level}_{metric}"
                    assert 0 < metrics[name] <= 1 or (metric == "mp_at_1" and metrics[name] == 0)
                    assert f"{name}_low" not in metrics, "two queries have no interval"
    assert (metrics["queries"], metrics["lone_queries"], metrics["gallery"]) == (4, 0, 16)
    assert "recall_at_1" not in metrics
    protocol = json.loads(Path("data/evaluation", NAME, "protocol.json").read_text())
    assert protocol["reduction"] == "reduced_*: to 6 dimensions, whitening none"
    assert len(pq.read_table(Path("data/evaluation", NAME, "neighbours.parquet"))) == 4
    assert Path("data/evaluation", NAME, "reduction.safetensors").is_file()


def test_the_history_has_both_terms_and_the_published_decay(trained: Path) -> None:
    with (trained / "data/history" / NAME.with_suffix(".csv")).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["iteration"], row["epoch"]) for row in rows] == [("4", "1"), ("8", "2")]
    assert all(float(row["tuple_contrastive"]) > 0 and np.isfinite(float(row["koleo"])) for row in rows)
    assert float(rows[1]["lr"]) == pytest.approx(1e-3 * np.exp(-0.01))
    assert all(0 <= float(row["map_at_r"]) <= 1 for row in rows)


def test_the_loss_decreases_with_newly_mined_negatives(trained: Path) -> None:
    reports: list[Any] = []
    changes = {
        "koleo_weight": 0.0,
        "training": VALUE["training"] | {"iterations": 20},
        "optimizer": {"name": "adam", "learning_rate": 3e-4},
    }
    longer = job(trained, parse_recipe(VALUE | changes))
    loop.train(dataclasses.replace(longer, state=None, outputs=None), 0, 1, CPU, report=reports.append)
    assert [entry["epoch"] for entry in reports] == [1, 2, 3, 4, 5]
    assert reports[-1]["loss"] < 0.3 * reports[0]["loss"]


@pytest.mark.parametrize("death", [2, 4, 5, "second mining"])
def test_killed_and_resumed_ends_with_the_same_bytes(
    death: int | str, shards: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, step, mined = project(tmp_path, shards), loop.train_step, loop.mine
    epochs: list[int] = []

    def dying_step(*arguments: Any) -> Any:
        if arguments[1].step == death:
            raise Killed
        return step(*arguments)

    def dying_mine(*arguments: Any) -> Any:
        epochs.append(arguments[1])
        if death == "second mining" and epochs == [0, 1]:
            raise Killed
        return mined(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", dying_step)
        patch.setattr(loop, "mine", dying_mine)
        with pytest.raises(Killed):
            loop.train(job(root), 0, 1, CPU)
        patch.setattr(loop, "train_step", step)
        loop.train(job(root), 0, 1, CPU)
    assert results(root) == results(trained)
    assert epochs == {2: [0, 1], 4: [0, 1, 1], 5: [0, 1], "second mining": [0, 1, 1]}[death], (
        "a started epoch is not mined again"
    )


def test_the_tuples_of_an_epoch_equal_the_walk(shards: Path) -> None:
    """Includes the complete pipeline: images, evaluation mode, ranking."""
    data = Shards(shards)
    rows = data.rows("train")
    split = split_group(rows, data.labels[rows], data.in_group(VALIDATION)[rows])
    assert (split.classes, len(split.rows), len(split.validation_rows)) == (6, 30, 12)
    sampler = tuple_sampler(data, split, RECIPE, seed=0)
    assert (split.labels[sampler.pairs[:, 0]] == split.labels[sampler.pairs[:, 1]]).all()
    method = initial_method(RECIPE, split.classes, len(split.rows), seed=0).train()
    state_before = {name: value.clone() for name, value in method.state_dict().items()}
    embedder = RowEmbedder(method, data, RECIPE, Worker(0, 1, CPU))
    tuples = mine(sampler, 1, embedder, split.rows).numpy()
    assert method.training
    assert all(torch.equal(state_before[name], value) for name, value in method.state_dict().items())
    embeddings = embedder.embed(split.rows).numpy()
    plan = sampler.plan(1)
    for (query, positive), row in zip(plan.pairs.tolist(), tuples.tolist(), strict=True):
        places = walk(
            embeddings[query],
            int(split.labels[query]),
            embeddings[plan.pool],
            split.labels[plan.pool].tolist(),
            3,
        )
        assert row == [query, positive, *plan.pool[places].tolist()]


def _first_epoch(rank: int, world: int, root: Path) -> dict[str, Any]:
    data = Shards(root / "data/shards/landmarks")
    rows = data.rows("train")
    split = split_group(rows, data.labels[rows], data.in_group(VALIDATION)[rows])
    sampler = tuple_sampler(data, split, RECIPE, seed=0)
    method = initial_method(RECIPE, split.classes, len(split.rows), seed=0)
    embedder = RowEmbedder(method, data, RECIPE, Worker(rank, world, CPU))
    usual, row_embedder.BATCH = row_embedder.BATCH, 4  # several shares, the last one incomplete
    tuples = mine(sampler, 0, embedder, split.rows)
    embeddings = embedder.embed(split.rows)
    row_embedder.BATCH = usual
    return {"tuples": tuples, "embeddings": embeddings}


def _work(rank: int, world: int, root: Path) -> dict[str, Any]:
    reports: list[Any] = []
    first = _first_epoch(rank, world, root)
    loop.train(job(root), rank, world, CPU, report=reports.append)
    return {**first, "reports": reports}


def test_two_workers_mine_the_tuples_of_one(shards: Path, trained: Path, tmp_path: Path) -> None:
    root = project(tmp_path, shards)
    single, workers = _first_epoch(0, 1, root), run_workers(_work, 2, root)
    for worker in workers:
        assert torch.equal(worker["tuples"], single["tuples"])
        assert torch.equal(worker["embeddings"], single["embeddings"]), (
            "embedded in the same batches, to the last bit"
        )
    assert workers[0]["reports"] == workers[1]["reports"]
    reports: list[Any] = []
    loop.train(dataclasses.replace(job(trained), state=None, outputs=None), 0, 1, CPU, report=reports.append)
    assert workers[0]["reports"][0]["loss"] == pytest.approx(reports[0]["loss"], rel=1e-3)
    assert workers[0]["reports"][1]["loss"] == pytest.approx(reports[1]["loss"], rel=1e-2)


def test_refuses_pairs_of_images_that_are_not_for_training(shards: Path) -> None:
    data = Shards(shards)
    rows = data.rows("train")
    split = split_group(rows, data.labels[rows], data.in_group(VALIDATION)[rows])
    half = dataclasses.replace(split, rows=split.rows[::2], labels=split.labels[::2])
    with pytest.raises(UserError, match=r"pairs\.parquet names images that are not for training"):
        tuple_sampler(data, half, RECIPE, seed=0)


def test_refuses_a_data_set_without_pairs(tmp_path: Path) -> None:
    directory = tmp_path / "data/shards/landmarks"
    directory.mkdir(parents=True)
    picture = miniature.encode(miniature.photograph(1, 1))
    with ShardWriter(directory, ["a", "b", "c"], 2**20) as writer:
        for row in range(6):
            writer.add(
                picture, row // 2, "train", f"{row}.jpg", 48, 36, group="validation" if row < 2 else "train"
            )
        writer.finish({"dataset": "landmarks"})
    with pytest.raises(UserError, match="has no table of matching pairs"):
        loop.train(job(tmp_path), 0, 1, CPU)


def test_refuses_a_data_set_without_a_validation_part() -> None:
    with pytest.raises(UserError, match="group `validation`, which contains 0 of 4"):
        split_group(np.arange(4), np.array([0, 0, 1, 1]), np.zeros(4, bool))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"batch": {"classes": 2, "images_per_class": 5}},
            "require each other, got tuple_contrastive and classes",
        ),
        ({"loss": {"name": "contrastive"}}, "require each other, got contrastive and tuples"),
        ({"loss": {"name": "tuple_contrastive", "negatives": 4}}, "images_per_class must be 6, got 5"),
        ({"memory": {"size": 9}}, "a memory needs a pair loss, got loss tuple_contrastive"),
        ({"training": {"fold": {"model": 1}}}, "training.fold must be null"),
    ],
)
def test_refuses_recipes_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_recipe(VALUE | change)


@pytest.mark.parametrize("method", ["irt_l", "irt_r", "contrastive"])
def test_the_published_recipe(method: str) -> None:
    """Values of IRT section 4.2 and cnnimageretrieval-pytorch."""
    recipe = resolve(Params(Path(__file__).resolve().parents[2] / "params.yaml"), "landmarks", method)
    assert (recipe.batch.classes, recipe.batch.images_per_class, recipe.batch.pairs, recipe.batch.pool) == (
        5,
        7,
        2000,
        22000,
    )
    steps = recipe.batch.pairs // recipe.batch.classes
    assert (recipe.training.iterations, recipe.training.validate_every, recipe.schedule.every) == (
        100 * steps,
        steps,
        steps,
    )
    assert recipe.schedule.factor == pytest.approx(np.exp(-0.01), rel=1e-15)
    optimizer, view = recipe.optimizer, recipe.input
    assert (optimizer.name, optimizer.learning_rate, optimizer.weight_decay) == ("adam", 5e-7, 1e-6)
    assert optimizer.clip_norm is optimizer.clip_value is None
    assert (view.size, view.fit, view.resize, view.flip) == (224, "square", None, 0)
    assert (view.crop_scale, view.crop_ratio) == ((1, 1), (1, 1))
    assert recipe.backbone.batch_norm == "frozen"
    assert recipe.loss.margin == 0.85
    assert getattr(recipe, "koleo_weight", 0.0) == (4.0 if method == "irt_r" else 0.0)
