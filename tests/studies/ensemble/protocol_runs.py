"""A small data set of noisy pictures, and the shortest form of the protocol on it."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pipeline.config import EnsembleSettings, Recipe, TrainSettings
from pipeline.data.shard_writer import ShardWriter
from pipeline.studies.ensemble.ensemble import ensemble
from tests.training.jobs import recipe

TRAIN, TEST, IMAGES = 9, 7, 5
FOLDS, REPEATS, RECALL_AT = 3, 2, (1, 2, 4)
MACHINE = TrainSettings(gpu="no", cpus_per_worker=1, loader_threads=1, checkpoint_every=2)
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


def settings(**more: Any) -> EnsembleSettings:
    return EnsembleSettings(
        **{"folds": FOLDS, "repeats": REPEATS, "recall_at": RECALL_AT, "concurrent": 1, **more}
    )


def short(**more: Any) -> Recipe:
    return recipe("baseline", training={**SHORT, **more})


def run_protocol(
    root: Path,
    ensemble_settings: EnsembleSettings | None = None,
    how: Recipe | None = None,
    machine: TrainSettings = MACHINE,
) -> dict[str, Any]:
    """The protocol on data set `tiny` under `root`, one member after the other by default."""
    return ensemble(
        "tiny", "baseline", how or short(), ensemble_settings or settings(), machine, root, cores=1
    )


def output_bytes(root: Path) -> dict[str, bytes]:
    """The bytes of all outputs of the stage."""
    files = [*(root / "data/ensemble").rglob("*"), *(root / "data/metrics").rglob("*")]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files if path.is_file()}
