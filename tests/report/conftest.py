"""A synthetic finished run: shards of small drawn images, embeddings of given noise, and their evaluation and
analysis."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg

from tests.params import resolve
from tests.report.page_reader import Element, read_page
from unseen.config.document import Params
from unseen.data.embeddings import write
from unseen.data.positions import Match, PositionMap, Positions, QueryMatches
from unseen.data.positions import write as write_positions
from unseen.data.shard_writer import ShardWriter
from unseen.evaluation.analysis.analyze import analyze, content_of
from unseen.evaluation.analysis.object_shares import object_share_rows
from unseen.evaluation.analysis.verification import Intervals
from unseen.evaluation.evaluate import NEIGHBOURS, SELECTED, Extent, evaluate
from unseen.evaluation.metrics import Rows
from unseen.evaluation.protocol import Protocol
from unseen.evaluation.settings import AnalyzeSettings
from unseen.evaluation.sides import Sides
from unseen.evaluation.tables import file_of, neighbour_table, query_table, write_table
from unseen.experiments.catalogue import definitions, entries, study_of
from unseen.experiments.run_studies import studies_of_run
from unseen.experiments.sweep.outputs import row_of
from unseen.experiments.sweep.record import Trial
from unseen.report.dataset import DataSet, GallerySize
from unseen.report.page import build
from unseen.report.report_data import VALIDATION, ReportData, read_report_data
from unseen.runtime.files import write_json
from unseen.runtime.sealed import sealed_csv, write_digests, write_sealed

TRAIN, TEST, EACH = 6, 16, 5
LONG = "Vögel der Heimat/Singvögel/Kleiber und Verwandte aus dem Süden"
NAMES = [f"train {i}" for i in range(TRAIN)] + [
    "<script>alert(1)</script>",
    "a & b",
    'quote " class',
    LONG,
    *(f"bird {i}" for i in range(TEST - 4)),
]
NOISE = {"good": 0.25, "poor": 1.2, "fair": 0.9}  # of an embedding around its class centre
METHODS = tuple(NOISE)
ATTRIBUTES = "fair"  # the method with prototypes
MEASURED = "poor"  # the method that measures its gradient noise
PRETRAINED = "poor"
ANALYSIS = AnalyzeSettings(histogram_bins=40, pairs=10_000, transfer_splits=5)


def make_shards(directory: Path) -> None:
    """Images of discs on stripes: one colour per class, different sizes."""
    generator = np.random.default_rng(0)
    directory.mkdir(parents=True)
    with ShardWriter(directory, NAMES, 2**20) as writer:
        for label, _ in enumerate(NAMES):
            colour = generator.integers(40, 255, 3)
            for number in range(EACH):
                height, width = (int(side) for side in generator.integers(50, 120, 2))
                y, x = np.mgrid[:height, :width]
                image = (
                    np.where(((x + y) // 9 % 2)[..., None] == 0, 205, 225).repeat(3, axis=2).astype(np.uint8)
                )
                image[(x - width / 2) ** 2 + (y - height / 2) ** 2 < (min(width, height) / 3) ** 2] = colour
                jpeg = simplejpeg.encode_jpeg(np.ascontiguousarray(image), quality=90)
                writer.add(
                    jpeg, label, "train" if label < TRAIN else "test", f"{label}/{number}.jpg", width, height
                )
        writer.finish(
            {
                "dataset": directory.name,
                "unread_images": [f"{number}.jxl" for number in range(9)],
                "repeated_folders": ["9 = 8"],
                "unlisted_images": {"count": 7, "first": ["a.jpg", "b.jpg"]},
                "other_files": {".txt": 2},
                "other_file_names": ["notes.txt", "prices.txt"],
                "duplicates": {
                    "images": 2, "across_classes": 1, "across_splits": 0,
                    "pairs": [["6/1.jpg", "7/2.jpg"], ["8/0.jpg", "8/3.jpg"]],
                },
                "ingest": {
                    "resize": None, "quality": 95, "on_error": "skip", "formats": {"jpeg": 64, "png": 2},
                    "upright": 3, "resized": 0, "skipped_images": 1, "dropped_classes": [],
                    "skipped": [{"source": "<img src=x>.jpg", "reason": "cut short"}],
                },
            }
        )  # fmt: skip


def clustered(labels: np.ndarray, noise: float, seed: int, dim: int = 12) -> np.ndarray:
    centres = np.random.default_rng(5).normal(size=(len(NAMES), dim)) / dim**0.5
    x = centres[labels] + noise * np.random.default_rng(seed).normal(size=(len(labels), dim)) / dim**0.5
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def make_run(root: Path, dataset: str, method: str, seed: int, noise: float) -> None:
    """The outputs of train, export and evaluate of one run."""
    name = Path(dataset, method, str(seed))
    label = np.repeat(np.arange(len(NAMES)), EACH)
    test = np.flatnonzero(label >= TRAIN)
    sides = {"train": np.flatnonzero(label < TRAIN), "test": test, "test-last": test}
    sides |= {"test-untrained": test, "test-features": test}
    for place, (file, rows) in enumerate(sides.items()):
        width = {"train": noise * 0.7, "test": noise, "test-last": noise * 1.1}.get(file, 2.5)
        path = root / "embeddings" / name / f"{file}.arrow"
        attributes = (
            np.random.default_rng(seed).dirichlet(np.ones(5), len(rows)).astype(np.float32)
            if method == ATTRIBUTES
            else None
        )
        sides[file] = Rows(rows, label[rows], clustered(label[rows], width, 100 * seed + place))
        write(path, *sides[file], attributes=None if file == "train" else attributes)
    make_positions(root / "positions" / f"{name}.arrow", method, seed)
    protocol = Protocol("test", (1, 2, 4), 0.95, 0)
    both_sides = {file: Sides(rows, rows) for file, rows in sides.items()}
    metrics, results = evaluate(
        both_sides["test"],
        {name: both_sides[f"test-{name}"] for name in ("last", "untrained", "features")},
        protocol,
        Extent(neighbours=NEIGHBOURS),
    )
    (root / "evaluation" / name).mkdir(parents=True)
    write_json(root / "evaluation" / name / "metrics.json", metrics)
    for network, result in results.items():
        write_table(root / "evaluation" / name / file_of(network), query_table(result))
    write_table(root / "evaluation" / name / "neighbours.parquet", neighbour_table(results[SELECTED]))
    write_json(root / "evaluation" / name / "protocol.json", protocol.declaration())
    write_digests(root / "evaluation" / name)

    model = root / "models" / name
    model.mkdir(parents=True)
    for file in ("weights", "last"):
        (model / f"{file}.safetensors").write_bytes(f"{file} of {name}".encode())
    term = "pair" if method == MEASURED else None
    training = {"protocol": "selected", "iterations": 60, "patience": None, "selection_metric": "map_at_r"}
    backbone = {
        "name": "test_resnet",
        "pretrained": method == PRETRAINED,
        "checkpoint": None,
        "arguments": {},
    }
    recipe = {"method": method, "backbone": backbone, "input": {"size": 64}, "batch": {"sampling": "classes"}}
    recipe["training"] = training | {"gradient_noise": term}
    write_json(
        model / "recipe.json", {"recipe": recipe, "dataset": dataset, "seed": seed, "classes": TRAIN - 2}
    )
    history = root / "history" / dataset / method / f"{seed}.csv"
    history.parent.mkdir(parents=True, exist_ok=True)
    measured = ["gradient_covariance", "direction_covariance"] if method == MEASURED else []
    header = ["iteration", "epoch", "lr", "loss", "diversity", "pair", *measured, "grad_norm"]
    steps: list[list[float]] = []
    for step in range(10, 70, 10):
        scores = [0.4 + step / 200 - noise / 9, 0.2 + step / 300 - noise / 9, 0.3]
        noises = [1 / step, 0.5][: len(measured)]
        steps.append([step, step / 5, 1e-3, 3 / step + 0.2, 0.2, 3 / step, *noises, 1.0, *scores])
    text = sealed_csv([*header, *VALIDATION], [list(map(str, row)) for row in steps])
    history.write_text(text, encoding="utf-8")


def make_positions(path: Path, method: str, seed: int) -> None:
    """Maps of 3 x 3 positions of the first image of each of two classes, and of a right and a wrong match."""
    generator = np.random.default_rng([seed, len(method)])
    first, second = TRAIN * EACH, (TRAIN + 1) * EACH

    def position_map(row: int, name: str, **fields: Any) -> PositionMap:
        label, number = divmod(row, EACH)
        weights = generator.uniform(-0.5, 1, (3, 3)).astype(np.float32)
        return PositionMap(row, label, f"{label}/{number}.jpg", (0.1, 0.0, 0.9, 1.0), name, weights, **fields)

    maps = []
    for row in (first, second):
        if method == ATTRIBUTES:
            prototype = np.arange(9, dtype=np.int32).reshape(3, 3) % 5
            maps.append(position_map(row, "transported mass", prototype=prototype))
        if method == MEASURED:
            maps.append(position_map(row, "attention, global map"))
            maps.append(position_map(row, "attention of point 1", detail=True, point=(0.5, 0.2)))
        maps.append(position_map(row, "contribution"))
    pairs = ((first, first + 1), (first + 1, first), (second, first), (first, second))
    maps += [position_map(row, "contribution", reference=reference) for row, reference in pairs]
    queries = (
        QueryMatches(first, Match(first + 1, 0.75), Match(second, 0.5)),
        QueryMatches(second, None, None),
    )
    write_positions(path, Positions(tuple(maps), queries))


def disc(source: str) -> np.ndarray:
    """The share of each pixel of an image that its disc covers; of every image the same."""
    y, x = np.mgrid[:60, :60]
    return ((x - 30) ** 2 + (y - 30) ** 2 < 20**2).astype(float)


@pytest.fixture(scope="session")
def make_project(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """data/ of a run over the given data sets, methods (with the noise of their embeddings) and seeds."""

    def make(
        datasets: tuple[str, ...] = ("birds",),
        noise: dict[str, float] = NOISE,
        seeds: tuple[int, ...] = (0,),
        sweeps: tuple[str, ...] = (),
    ) -> Path:
        root = tmp_path_factory.mktemp("project") / "data"
        for dataset in datasets:
            make_shards(root / "shards" / dataset)
            for method, width in noise.items():
                for seed in seeds:
                    make_run(root, dataset, method, seed, width)
            for method in sweeps:
                make_sweep(root / "sweep" / dataset / method)
        for dataset, method, seed in product(datasets, noise, seeds):
            run = (dataset, method, seed)
            networks = analyze(root / "embeddings", run, ANALYSIS, Intervals(50, 0.95, 0))
            shares = object_share_rows(root / "positions", run, disc) if dataset == "birds" else []
            write_sealed(root / "analysis" / dataset / method / f"{seed}.json", content_of(networks, shares))
        return root

    return make


def make_sweep(directory: Path) -> None:
    directory.mkdir(parents=True)
    trials = [
        Trial(number, {"pooling.transport_ratio": ratio}) for number, ratio in enumerate((0.6, 0.1, 0.3, 0.9))
    ]
    for trial, scores in zip(trials, ((0.1, 0.21), (0.125,), (0.34, 0.3), ()), strict=True):
        for step, score in enumerate(scores, 1):
            scores_of_step = {"recall_at_1": 0.5, "map_at_r": score, "r_precision": 0.3}
            trial.add({"iteration": 30.0 * step, "loss": 1.0, **scores_of_step})
    trials[1].stopped_early = True
    trials[3].error = "no memory"
    rows = [row_of(trial, "map_at_r") for trial in trials]
    with (directory / "trials.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    command = "dvc exp run -S 'methods.good.pooling.transport_ratio=0.3'"
    write_json(
        directory / "best.json",
        {"trials": [2], "metric": "map_at_r", "value": 0.34, "values": trials[2].values, "adopt": command},
    )
    write_digests(directory)


def make_ensembles(root: Path, dataset: str, method: str) -> None:
    values = {"recall_at_1": 0.5, "r_precision": 0.375, "map_at_r": 0.25}
    kinds = ("separated", "concatenated")
    numbers = {
        f"{kind}_{name}{end}": values[name] for kind in kinds for name in values for end in ("", "_std")
    }
    sizes = {"members": 12, "ensembles": 81, "separated_dimensions": 128, "concatenated_dimensions": 512}
    write_sealed(root / "metrics" / dataset / method / "ensemble.json", numbers | sizes)


# One data set, one seed, every kind of section except those of several seeds and of papers.


@pytest.fixture(scope="session")
def project(make_project: Callable[..., Path]) -> Path:
    root = make_project(sweeps=("good",))
    make_ensembles(root, "birds", "good")
    return root


@pytest.fixture(scope="session")
def inputs(project: Path) -> ReportData:
    return read_report_data(project, ("birds",), METHODS, (0,), [("birds", "good")], ("good",))


@pytest.fixture(scope="session")
def birds(inputs: ReportData) -> DataSet:
    return DataSet(inputs, "birds", "set-0", GallerySize(20, 5, 40))


@pytest.fixture(scope="session")
def html(inputs: ReportData) -> str:
    return build(inputs, "A report", queries=20, neighbours=5, thumbnail=40).html


@pytest.fixture(scope="session")
def page(html: str) -> Element:
    return read_page(html)


# Two data sets, two seeds, a sweep of a method of one data set.


@pytest.fixture(scope="session")
def two_seeds_project(make_project: Callable[..., Path]) -> Path:
    return make_project(("birds", "my-birds"), NOISE, (0, 1), ("good",))


@pytest.fixture(scope="session")
def two_seeds_inputs(two_seeds_project: Path) -> ReportData:
    return read_report_data(
        two_seeds_project, ("birds", "my-birds"), METHODS, (0, 1), [("birds", "good"), ("my-birds", "good")]
    )


@pytest.fixture(scope="session")
def two_seeds_page(two_seeds_inputs: ReportData) -> Element:
    return read_page(build(two_seeds_inputs, "A report", queries=4, neighbours=3, thumbnail=24).html)


# A data set of the papers: a baseline, a published method and a variant of it.

VARIANT = {"pooling.epsilon": 1.0, "training.iterations": 70}


@pytest.fixture(scope="session")
def papers_project(make_project: Callable[..., Path]) -> Path:
    root = make_project(datasets=("cub",), noise={"ms": 0.9, "gsp": 0.5, "gsp-soft": 0.4})
    params = Params(Path(__file__).resolve().parents[2] / "params.yaml")
    for method, like, changes in (("ms", "ms", {}), ("gsp", "gsp", {}), ("gsp-soft", "gsp", VARIANT)):
        path = root / f"models/cub/{method}/0/recipe.json"
        recipe = resolve(params, "cub", like, changes).model_dump(mode="json")
        write_json(path, json.loads(path.read_text(encoding="utf-8")) | {"recipe": recipe})
    return root


@pytest.fixture(scope="session")
def papers_inputs(papers_project: Path) -> ReportData:
    like = {"ms": "ms", "gsp": "gsp", "gsp-soft": "gsp"}
    return replace(read_report_data(papers_project, ("cub",), tuple(like), (0,)), like=like)


@pytest.fixture(scope="session")
def papers_page(papers_inputs: ReportData) -> Element:
    return read_page(build(papers_inputs, "A report", queries=4, neighbours=3, thumbnail=24).html)


# A study: table 8 of CRT on its data set and on another one, two seeds.

STUDY = "crt-table-8"
NOISE_OF_ROWS = (0.9, 1.2, 1.6, 1.0)


@pytest.fixture(scope="session")
def study_inputs(make_project: Callable[..., Path]) -> ReportData:
    rows = [entry.method for entry in entries(study_of(STUDY))]
    root = make_project(("cub", "birds"), dict(zip(rows, NOISE_OF_ROWS, strict=True)), (0, 1))
    params = definitions(Params(Path(__file__).resolve().parents[2] / "params.yaml"), *rows)
    for dataset, kind in (("cub", "cub"), ("birds", "parts")):
        for row in rows:
            recipe = resolve(params, kind, row).model_dump(mode="json")
            for seed in (0, 1):
                path = root / f"models/{dataset}/{row}/{seed}/recipe.json"
                write_json(path, json.loads(path.read_text(encoding="utf-8")) | {"recipe": recipe})
    studies = studies_of_run(params, tuple(rows))
    data = read_report_data(root, ("cub", "birds"), rows, (0, 1))
    return replace(data, like={row: row for row in rows}, studies=studies)
