"""A small data set of noisy pictures, and the shortest form of the protocol on it."""

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.params import project
from tests.resolved import write_resolved
from tests.training.jobs import recipe
from unseen.config.inputs import EnsembleInputs
from unseen.config.layers import Layers, Patch
from unseen.config.place import Place
from unseen.data.shard_writer import ShardWriter
from unseen.experiments.folds.members import fold as fold_layers
from unseen.methods.settings import Recipe
from unseen.stages import ensemble, export_fold, train_fold

TRAIN, TEST, IMAGES = 9, 7, 5
FOLDS, SEEDS, RECALL_AT = 3, (0, 1), (1, 2, 4)
MACHINE = {"gpu": "no", "loader_threads": 1, "checkpoint_every": 2}
SHORT = {"iterations": 4, "validate_every": 2}


def write_set(root: Path, train: int = TRAIN, test: int = TEST) -> None:
    """Classes are colours with much noise, so that no metric is 0 or 1. One test image in five is only a
    query, one only in the gallery."""
    directory = root / "data/shards/tiny"
    directory.mkdir(parents=True)
    generator = np.random.default_rng(5)
    colours = generator.integers(90, 166, (train + test, 3))
    with ShardWriter(
        directory, [f"class {label}" for label in range(train + test)], shard_bytes=2**22
    ) as writer:
        for label in range(train + test):
            for index in range(IMAGES):
                picture = colours[label] + generator.normal(0, 12, 3) + generator.normal(0, 60, (36, 36, 3))
                encoded = io.BytesIO()
                Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(encoded, "PNG")
                split, sides = (
                    ("train", {})
                    if label < train
                    else ("test", {"is_query": index != 3, "is_gallery": index != 4})
                )
                writer.add(
                    encoded.getvalue(),
                    label,
                    split,
                    f"class {label}/{index}.png",
                    width=36,
                    height=36,
                    **sides,
                )
        writer.finish({"dataset": "tiny"})


def settings(**more: Any) -> EnsembleInputs:
    return EnsembleInputs(**{"folds": FOLDS, "seeds": SEEDS, "recall_at": RECALL_AT, **more})


def short(**more: Any) -> Recipe:
    return recipe("baseline", training={**SHORT, **more})


def run_protocol(root: Path) -> None:
    """Stages `train_fold`, `export_fold` and `ensemble` of the protocol on data set `tiny` under `root`."""
    project(root, {f"train.{name}": value for name, value in MACHINE.items()})
    layers = Layers("baseline", (Patch(Place("test"), short().model_dump(mode="json")),))
    with contextlib.chdir(root):
        for fold in range(1, FOLDS + 1):
            of_fold = fold_layers(layers, fold, FOLDS).recipe().model_dump(mode="json")
            write_resolved(root, "train_fold", "tiny", "baseline", str(fold), recipe=of_fold)
            write_resolved(root, "export_fold", "tiny", "baseline", str(fold), batch_size=256, scales=(1.0,))
            for seed in SEEDS:
                train_fold.run("tiny", "baseline", fold, seed)
                export_fold.run("tiny", "baseline", fold, seed)
        write_resolved(root, "ensemble", "tiny", "baseline", **settings().model_dump())
        ensemble.run("tiny", "baseline")
