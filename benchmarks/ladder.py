"""The ladder of three networks on two splits of photos, and the time of rung `linear`, for docs/catalog.md.

    python benchmarks/ladder.py PHOTOS WORK --weights mobilenetv2=FILE --weights vit-tiny=FILE
        [--network lite0] [--split random]
    python benchmarks/ladder.py

Networks and product groups are those of `unseen claims`; photos of another kind are 40 classes of the
built-in set. WORK/results.json contains all ladders that ran.

Without PHOTOS: rung `linear` on 6,000 synthetic photos of 300 classes with 1,280 dimensions. Exits with 1 if
it takes 60 CPU seconds or more.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before the libraries are loaded

import argparse
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from timing import Ratio, save

from unseen.cli.ladder import groups_of, measured_rungs
from unseen.data.ingest.settings import PartsSource
from unseen.data.ingest.sources import parts
from unseen.experiments.claims.claim import claims
from unseen.experiments.ladder import ladder as module
from unseen.experiments.ladder.ladder import LadderPlan
from unseen.frozen.linear import LinearTrainer
from unseen.frozen.network import Network
from unseen.runtime.files import write_json

GROUPS = Path(__file__).parents[1] / "pipeline/experiments/claims/grocery_groups.csv"
SPLITS = {"random": None, "groups": GROUPS}
NETWORKS = ("lite0", "mobilenetv2", "vit-tiny")
OTHER_CLASSES, OTHER_EACH = 40, 10
PHOTOS, CLASSES, DIM, AT_MOST = 6000, 300, 1280, 60.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", type=Path, nargs="?")
    parser.add_argument("work", type=Path, nargs="?")
    parser.add_argument("--weights", action="append", default=[])
    parser.add_argument("--network", choices=NETWORKS)
    parser.add_argument("--split", choices=SPLITS)
    options = parser.parse_args()
    torch.set_num_threads(1)  # sums of several threads round differently
    if options.photos is None:
        return linear_seconds()
    if options.work is None:
        parser.error("PHOTOS needs a directory WORK for the results")
    other = options.work / "built-in"
    draw(other)
    weights = dict(text.split("=", 1) for text in options.weights)
    for name in [options.network] if options.network else NETWORKS:
        about = claims().networks[name]
        file = Path(weights[name]) if name in weights else None
        statistics = about.statistics if file is not None else None
        network = Network(about.name, file, about.size, statistics, dict(about.arguments))
        for split in [options.split] if options.split else SPLITS:
            output = options.work / name
            groups = SPLITS[split]
            group_of = None if groups is None else groups_of(groups)
            plan = LadderPlan(network, (about.size,), group_of=group_of, other=other)
            sys.stdout.write(measured_rungs(options.photos, output, plan, "folders", False))
            content = json.loads((output / "ladder.json").read_text(encoding="utf-8"))
            keep(options.work / "results.json", f"{name} {split}", content)
    return 0


def draw(folder: Path) -> None:
    """The photos of another kind: test classes of the built-in set."""
    collection = parts.collection(PartsSource(test_classes=OTHER_CLASSES, images_per_class=OTHER_EACH))
    for picture in collection.pictures:
        path = folder / picture.source.removeprefix("test/")
        if picture.split == "test" and not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            content = collection.read(picture.source)
            assert isinstance(content, bytes)
            path.write_bytes(content)


def keep(path: Path, name: str, content: dict[str, object]) -> None:
    """Puts a ladder into the results."""
    results = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    write_json(path, dict(sorted({**results, name: content}.items())))


def linear_seconds() -> int:
    """CPU seconds of rung `linear` with all folds and lengths."""
    random = np.random.default_rng(0)
    labels = np.arange(PHOTOS) % CLASSES
    centres = random.standard_normal((CLASSES, DIM), np.float32)
    vectors = centres[labels] + 3 * random.standard_normal((PHOTOS, DIM), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    folds = [np.flatnonzero((labels < CLASSES // 2) & (labels % 4 == fold)) for fold in range(4)]
    test = np.flatnonzero(labels >= CLASSES // 2)
    classes = module._Classes(labels, folds, np.sort(np.concatenate(folds)), test, test[:0])
    photos = [f"{row:064x}" for row in range(PHOTOS)], labels
    begin = time.process_time()
    frozen, _ = module._rung(("frozen", 128, 0), [vectors[fold] for fold in folds], vectors[test], classes, 0)
    trainer = LinearTrainer(vectors, "nsoftmax", 0)
    with TemporaryDirectory() as output:
        _, [(rung, _)] = module._climb([trainer], classes, photos, Path(output), 0, frozen)
    seconds = time.process_time() - begin
    print(f"linear, {PHOTOS:,} photos, {CLASSES} classes, {DIM} dimensions: {seconds:.0f} CPU seconds")
    print(f"(at most {AT_MOST:.0f}; {rung.steps} steps; without the features)")
    ratios = {"linear: CPU seconds": Ratio(seconds, at_most=AT_MOST)}
    save("ladder", {"seconds": seconds, "steps": rung.steps}, ratios)
    return int(seconds >= AT_MOST)


if __name__ == "__main__":
    sys.exit(main())
