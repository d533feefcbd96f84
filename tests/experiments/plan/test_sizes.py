"""The sizes of data sets, and the batches, folds and ranks that fit them."""

import dataclasses
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.data.ingest.test_packed import members, table, tar
from tests.params import project
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.layers import dotted
from unseen.config.place import Place
from unseen.config.stages import EnsembleSettings
from unseen.data.ingest.settings import FolderSource, ParquetSource, Source, WebdatasetSource
from unseen.evaluation.settings import Reduce
from unseen.experiments.catalogue import entries, study_of
from unseen.experiments.plan import files
from unseen.experiments.plan.files import Plan, check, plan
from unseen.experiments.plan.sizes import Size, require_batches, size_of
from unseen.experiments.plan.trainings import of_folds
from unseen.runtime.errors import UserError
from unseen.runtime.settings import Strict

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "folds",
            list(range(1, 66)),
            r":1: ensemble\.folds has 65 folds, but parts has 64 train classes[^$]*64 or less",
        ),
        ("recall_at", [1024], r":1: ensemble\.recall_at contains 1,024, but a query of parts has 1,023"),
    ],
)
def test_refuses_an_ensemble_beyond_the_data(folder: Path, key: str, value: Any, message: str) -> None:
    (folder / "data/raw/parts").mkdir(parents=True)
    check(plan(project(folder, {f"ensemble.{key}": value})))  # without ensembles the block has no effect
    with pytest.raises(UserError, match=message):
        check(plan(project(folder, {f"ensemble.{key}": value, "run.ensembles": ["ms"]})))


def test_refuses_a_batch_that_a_fold_leaves_too_few_classes_for(folder: Path) -> None:
    batch = {"ms": {"batch": {"classes": 40, "images_per_class": 2}}}
    changes = {"run.methods": ["ms"], "run.sweeps": [], "run.ensembles": ["ms"], "methods": batch}
    check(plan(project(folder, changes)))  # four folds leave 48 classes
    message = (
        r":1: ensemble\.folds, model 1 of 2 of ms on parts: A batch needs 40 classes, but only 32 [^$]*"
        r"more folds in ensemble\.folds[^$]*-S '\+\+datasets\.parts\.methods\.ms\.batch\.classes=32'"
    )
    with pytest.raises(UserError, match=message):
        check(plan(project(folder, changes | {"ensemble.folds": [1, 2]})))


def test_the_batches_of_a_published_set_fit_its_folds() -> None:
    params = Params(ROOT / "params.yaml")
    size = Size(train_classes=100, train_images=5_864, neighbours=5_923, train_labels=None)
    layers = Definitions(params).layers("cub", "ms").plus(dotted(Place("test"), {"batch.classes": 60}))
    folds = EnsembleSettings(folds=(1, 2))
    with pytest.raises(UserError, match=r"100 classes, 50 of them without the fold"):
        require_batches(Definitions(params), size, of_folds(params, "cub", "ms", layers, folds))
    require_batches(Definitions(params), size, of_folds(params, "cub", "ms", layers, EnsembleSettings()))


@pytest.mark.parametrize(
    ("kind", "neighbours", "train_classes"),
    [("cub", 5_923, 100), ("inshop", 12_612, 3_997), ("cifar10", None, None)],
)
def test_the_size_of_a_published_set_is_its_published_count(
    kind: str, neighbours: int | None, train_classes: int | None
) -> None:
    class Block(Strict):
        source: Source

    size = size_of(Block.parse({"source": {"kind": kind}}).source)
    assert (size and size.neighbours, size and size.train_classes) == (neighbours, train_classes)


def test_a_gallery_without_its_queries_has_one_more_neighbour(folder: Path) -> None:
    lines = ["path,label,split,is_query,is_gallery"]
    for name, image in product("abcd", range(3)):
        (folder / f"{name}{image}.jpg").touch()
        split = "train" if name in "ab" else "test"
        lines.append(f"{name}{image}.jpg,{name},{split},{int(image == 0)},{int(image > 0)}")
    (folder / "labels.csv").write_text("\n".join(lines))
    size = size_of(FolderSource(path=str(folder), labels="labels.csv"))
    assert size is not None
    assert (size.neighbours, size.train_classes, size.train_images) == (4, 2, 6)


@pytest.mark.parametrize("suffix", ["parquet", "tar", "tar.gz"])
def test_own_images_in_tables_and_archives_are_counted_without_their_pixels(
    folder: Path, suffix: str
) -> None:
    rows = [(label, b"no image") for label in range(4) for _ in range(3)]
    options = {"path": str(folder / f"train.{suffix}"), "order": "name"}
    source: Source = WebdatasetSource(**options)
    if suffix == "parquet":
        source = ParquetSource(**options)
        pq.write_table(table(rows), source.path)
    else:
        tar(Path(source.path), members(rows), "w:gz" if suffix.endswith("gz") else "w")
    size = size_of(source)
    counts = None if size is None else (size.neighbours, size.train_classes, size.train_images)
    assert counts == (None if suffix == "tar.gz" else (5, 2, 6))


def test_refuses_too_few_classes_before_reading_images(folder: Path) -> None:
    for name, image in product(range(17), range(3)):
        path = folder / f"data/raw/my-birds/{name}/{image}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    changes = {
        "run.datasets": ["my-birds"],
        "run.methods": ["gsp", "ms"],
        "run.sweeps": [],
        "datasets.my-birds": {"source": {"kind": "folder"}, "recipe": {"backbone": {"name": "test_resnet"}}},
    }
    message = (
        r"A batch needs 8 classes, but only 6 can be trained on\.[^$]*-S "
        r"'\+\+datasets\.my-birds\.methods\.gsp\.batch\.classes=6'"
    )
    with pytest.raises(UserError, match=message):
        check(plan(project(folder, changes)))


def test_a_set_of_unknown_size_is_checked_after_its_ingest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "require_files", lambda *_: None)
    changes = {
        "run.datasets": ["cifar10"],
        "run.methods": ["ms"],
        "run.sweeps": [],
        "evaluate.recall_at": [10**6],
    }
    check(plan(project(folder, changes)))


@pytest.mark.slow
@pytest.mark.parametrize("block", ["reduce", "analyze_reduce"])
def test_refuses_a_row_of_a_study_that_is_reduced_to_more_than_its_dimensions(
    folder: Path, monkeypatch: pytest.MonkeyPatch, block: str
) -> None:
    methods = {entry.label: entry.method for entry in entries(study_of("irt-figure-5"))}
    method = methods["IRT_R"]
    changes = {"run.datasets": ["sop"], "run.methods": [method], "run.sweeps": [], "run.seeds": [0]}
    monkeypatch.setattr(files, "require_files", lambda *_: None)
    monkeypatch.setattr(files, "is_small", lambda _: False)
    run = plan(project(folder, changes))
    dims = {("sop", method): 200}
    monkeypatch.setattr(files, "require_networks", lambda *_: dims)
    row = run.definitions.rows[method]

    def with_row(**reductions: Any) -> Plan:
        rows = {method: dataclasses.replace(row, **{"reduce": None, "analyze_reduce": None} | reductions)}
        return dataclasses.replace(run, definitions=dataclasses.replace(run.definitions, rows=rows))

    check(with_row())
    message = rf"{row.study}\.{block}\.dim is 201, but {method} on sop has embeddings of 200 dimensions"
    with pytest.raises(UserError, match=message):
        check(with_row(**{block: Reduce(dim=201, whiten="none")}))
