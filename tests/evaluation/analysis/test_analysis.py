"""The analysis of a run from embedding files, and the stage that writes it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tests.oracles import generalization as oracle
from tests.oracles import retrieval as retrieval_oracle
from tests.resolved import write_resolved
from unseen.data.embeddings import write
from unseen.evaluation.analysis import analyze as analyze_module
from unseen.evaluation.analysis.analyze import COLUMNS, analyze, numbers
from unseen.evaluation.analysis.gap import train_test_gap
from unseen.evaluation.analysis.plain import rounded
from unseen.evaluation.analysis.transfer import attribute_transfer
from unseen.evaluation.analysis.verification import Intervals, operating_points
from unseen.evaluation.metrics import quick_metrics
from unseen.evaluation.settings import AnalyzeSettings, Reduce
from unseen.runtime.errors import UserError
from unseen.runtime.sealed import unsealed


def rows(noise: float, first: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    label = first + np.repeat(np.arange(6), 5)
    x = generator.normal(size=(6, 8))[label - first] + noise * generator.normal(size=(30, 8))
    return (
        np.arange(30) + 30 * first,
        label,
        (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32),
    )


ONE = ("set", "one", 0)
INTERVALS = Intervals(20, 0.9, 1)
SETTINGS = AnalyzeSettings(
    histogram_bins=20, pairs=10_000, transfer_splits=7, transfer_classes=5, transfer_ridge=0.2
)
CLASS_NUMBERS = ("classes", "embedding_density", "positive_similarity", "similarity_overlap")
NEED_LABELS = (*CLASS_NUMBERS, "fnmr_at_fmr_0.1", "test_map_at_r", "map_at_r_gap")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for seed, method in enumerate(("one", "two")):
        for place, (name, noise, first) in enumerate(
            (("train", 0.2, 0), ("test", 0.8, 6), ("test-last", 0.9, 6), ("test-untrained", 3.0, 6))
        ):
            write(
                tmp_path / "data/embeddings/set" / method / "0" / f"{name}.arrow",
                *rows(noise, first, 10 * seed + place),
            )
    return tmp_path


def test_rows_equal_the_definitions(root: Path) -> None:
    runs = analyze(root / "data/embeddings", ONE, SETTINGS, INTERVALS)
    assert [(run.row["method"], run.row["network"]) for run in runs] == [
        ("one", "selected"),
        ("one", "untrained"),
    ]
    (_, train_label, train), (_, label, test) = rows(0.2, 0, 0), rows(0.8, 6, 1)
    row = runs[0].row
    assert tuple(row) == COLUMNS
    assert row["embedding_density"] == pytest.approx(oracle.density(test, label)[2], rel=1e-5)
    assert row["train_embedding_density"] == pytest.approx(oracle.density(train, train_label)[2], rel=1e-5)
    assert row["spectral_decay"] == pytest.approx(
        oracle.kl_uniform_first(oracle.singular_values(test).tolist()), rel=1e-5
    )
    expected = quick_metrics(test, label)["map_at_r"]
    assert row["test_map_at_r"] == pytest.approx(expected, rel=1e-5)
    assert row["map_at_r_gap"] == pytest.approx(
        quick_metrics(train, train_label)["map_at_r"] - expected, rel=1e-4
    )
    assert row["map_at_r_gap"] > 0.1, "the noise of the train classes is smaller"
    assert runs[1].row["map_at_r_gap"] is None
    assert runs[1].row["test_map_at_r"] < row["test_map_at_r"]
    assert sum(runs[0].curves["positive"]["share"]) == pytest.approx(1, abs=1e-4)
    assert set(runs[0].files) == {"test", "train", "test-last"}


def test_one_thread_of_blas_computes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()

    def watched(*arguments: Any) -> Any:
        threads.update(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")
        return operating_points(*arguments)

    monkeypatch.setattr(analyze_module, "operating_points", watched)
    with threadpool_limits(2, user_api="blas"):
        analyze(root / "data/embeddings", ONE, SETTINGS, INTERVALS)
    assert threads == {1}


def test_modes_and_similarities_of_both_sides(root: Path) -> None:
    run = analyze(root / "data/embeddings", ONE, SETTINGS, INTERVALS)[0]
    (_, train_label, train), (_, label, test) = rows(0.2, 0, 0), rows(0.8, 6, 1)
    values, seen_values = (oracle.singular_values(side).tolist() for side in (test, train))
    for mode in range(2, 9):
        assert run.row[f"spectral_decay_at_{mode}"] == pytest.approx(
            oracle.kl_uniform_first(values[mode - 1 :]), rel=1e-5
        )
        assert run.row[f"spectral_decay_reversed_at_{mode}"] == pytest.approx(
            oracle.kl_uniform_second(values[mode - 1 :]), rel=1e-5
        )
    assert run.row["spectral_decay_reversed"] == pytest.approx(oracle.kl_uniform_second(values), rel=1e-5)
    assert run.row["spectral_decay_at_9"] is None, "the dimension is 8"
    assert run.row["train_spectral_decay_reversed"] == pytest.approx(
        oracle.kl_uniform_second(seen_values), rel=1e-5
    )
    for side, (x, side_labels) in {"": (test, label), "train_": (train, train_label)}.items():
        positive, negative = oracle.pair_similarities(x.astype(np.float64), side_labels)
        assert run.row[f"{side}positive_similarity"] == pytest.approx(np.mean(positive), abs=1e-6)
        assert run.row[f"{side}negative_similarity"] == pytest.approx(np.mean(negative), abs=1e-6)
        shares = [np.histogram(pairs, 20, (-1, 1))[0] / len(pairs) for pairs in (positive, negative)]
        assert run.row[f"{side}similarity_overlap"] == pytest.approx(np.minimum(*shares).sum(), abs=0.01)
        np.testing.assert_allclose(run.curves[f"{side}positive"]["share"], shares[0], atol=0.02)
    assert run.row["transfer_map_l2"] is None
    assert "attributes" not in run.curves


def test_transfer_is_computed_for_runs_with_attributes(root: Path) -> None:
    attributes = np.random.default_rng(0).dirichlet(np.ones(3), 30).astype(np.float32)
    _, label, test = rows(0.8, 6, 1)
    for place, (name, noise) in enumerate((("test", 0.8), ("test-last", 0.9), ("test-untrained", 3.0)), 1):
        write(root / f"data/embeddings/set/one/0/{name}.arrow", *rows(noise, 6, place), attributes=attributes)
    runs = analyze(root / "data/embeddings", ONE, SETTINGS, INTERVALS)
    without_attributes = analyze(root / "data/embeddings", ("set", "two", 0), SETTINGS, INTERVALS)
    transfer = attribute_transfer(attributes, test, label, splits=7, ridge=0.2, classes=5)
    assert runs[0].row["transfer_map_l2"] == pytest.approx(transfer.l2, rel=1e-5)
    assert runs[0].row["transfer_map_cosine_std"] == pytest.approx(transfer.cosine_std, rel=1e-5)
    assert runs[0].row["transfer_map_chance"] == pytest.approx(transfer.chance, rel=1e-5)
    assert runs[0].row["transfer_classes"] == 5
    assert runs[1].row["transfer_map_l2"] != runs[0].row["transfer_map_l2"], (
        "the embeddings of the untrained network differ"
    )
    assert runs[0].curves["attributes"]["labels"] == [6, 7, 8, 9, 10, 11]
    np.testing.assert_allclose(
        runs[0].curves["attributes"]["share"][2], attributes[label == 8].mean(0), rtol=1e-5
    )
    assert numbers(runs)["transfer_map_l2"] == runs[0].row["transfer_map_l2"]
    assert "transfer_map_l2" not in numbers(without_attributes)
    assert "attributes" not in without_attributes[0].curves


def test_fnmr_is_in_the_row_with_its_interval_and_its_threshold_in_the_curves(root: Path) -> None:
    runs = analyze(root / "data/embeddings", ONE, SETTINGS, INTERVALS)
    for run, noise, seed in zip(runs, (0.8, 3.0), (1, 3), strict=True):
        _, label, test = rows(noise, 6, seed)
        points = operating_points(test, label, INTERVALS)
        assert [point.rate for point in points] == [0.1, 0.01], "375 pairs of different classes"
        for point, written in zip(points, run.curves["operating_points"], strict=True):
            name = f"fnmr_at_fmr_{point.rate}"
            expected = [rounded(value) for value in (point.fnmr, point.low, point.high)]
            assert [run.row[name], run.row[f"{name}_low"], run.row[f"{name}_high"]] == expected
            assert [written["fnmr"], written["low"], written["high"]] == expected
            assert written["threshold"] == rounded(point.threshold)
        assert run.row["fnmr_at_fmr_0.001"] is None


def test_gap_is_train_minus_test_by_definition() -> None:
    (_, train_label, train), (_, label, test) = rows(0.2, 0, 0), rows(0.8, 6, 1)
    gap = train_test_gap((train, train_label), (test, label))
    train_scores, test_scores = (
        retrieval_oracle.metrics(x.tolist(), side_labels.tolist(), list(range(30)), (1,))
        for x, side_labels in ((train, train_label), (test, label))
    )
    for name in ("recall_at_1", "map_at_r", "r_precision"):
        assert gap[f"train_{name}"] == pytest.approx(train_scores[name], rel=1e-12)
        assert gap[f"test_{name}"] == pytest.approx(test_scores[name], rel=1e-12)
        assert gap[f"{name}_gap"] == pytest.approx(train_scores[name] - test_scores[name], abs=1e-12)
    assert len(gap) == 9


@pytest.mark.slow
def test_the_stage_writes_curves_and_numbers_of_its_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from unseen.stages.analyze import run

    measures = {"histogram_bins": 20, "pairs": 10000, "transfer_splits": 5, "bootstrap": 20}
    intervals = {"confidence": 0.9, "seed": 1}
    write_resolved(root, "analyze", "set", "two", analyze=measures, intervals=intervals)
    networks = analyze(root / "data/embeddings", ("set", "two", 0), SETTINGS, INTERVALS)
    (root / "data/embeddings/set/one/0/test.arrow").unlink()  # another run is not read
    monkeypatch.chdir(root)
    run("set", "two", 0)
    files = [root / name for name in ("data/analysis/set/two/0.json", "data/metrics/set/two/0-analysis.json")]
    first = [file.read_bytes() for file in files]
    content, leaf = (unsealed(file, json.loads(text), "") for file, text in zip(files, first, strict=True))
    rows = [network["row"] for network in content["networks"]]
    assert [(row["method"], row["seed"], row["network"]) for row in rows] == [
        ("two", 0, "selected"),
        ("two", 0, "untrained"),
    ]
    assert rows[1]["map_at_r_gap"] is None
    assert content["object_shares"] == [], "the set has no known object"
    assert leaf["embedding_density"] == rows[0]["embedding_density"]
    low = "fnmr_at_fmr_0.1_low"
    assert rows[0][low] == networks[0].row[low] is not None, "the intervals are those of the resolved file"
    assert leaf.keys() == {"embedding_density", "spectral_decay"}, (
        "the attributes of transfer are missing here"
    )
    assert all(isinstance(value, int | float) for value in leaf.values())
    run("set", "two", 0)
    assert [file.read_bytes() for file in files] == first

    (root / "data/embeddings/set/two/0/test-untrained.arrow").unlink()
    with pytest.raises(UserError, match=r"set/two/0/test-untrained\.arrow is missing"):
        run("set", "two", 0)
    assert [file.read_bytes() for file in files] == first, "the earlier files are unchanged"


def test_undefined_numbers_are_left_out_of_the_metrics(tmp_path: Path) -> None:
    unit = np.eye(4, dtype=np.float32)
    pairs = np.array([5, 5, 5, 5])
    for name in ("train", "test", "test-untrained"):
        write(tmp_path / "set/one/0" / f"{name}.arrow", np.arange(4), pairs, unit)
    runs = analyze(tmp_path, ONE, SETTINGS, INTERVALS)
    assert runs[0].row["embedding_density"] is None
    assert runs[0].row["negative_similarity"] is None
    leaf = numbers(runs)
    assert "embedding_density" not in leaf
    assert leaf["spectral_decay"] == pytest.approx(0, abs=1e-6)


def test_rounding_keeps_six_digits() -> None:
    assert rounded(0.123456789) == 0.123457
    assert rounded(float("nan")) is None
    assert rounded(7) == 7


def test_histograms_of_reduced_embeddings(root: Path) -> None:
    folder = root / "data/embeddings/set/one/0"
    truth = {"benchmark": ["b"], "query": [181], "easy": [[182]], "hard": [[]], "junk": [[]]}
    pq.write_table(pa.table(truth), folder / "ground_truth.parquet")
    reduce = Reduce(dim=3)
    selected, untrained = analyze(
        root / "data/embeddings", ONE, SETTINGS.model_copy(update={"reduce": reduce}), INTERVALS
    )
    (_, _, train), (row_ids, label, test) = rows(0.2, 0, 0), rows(0.8, 6, 1)
    directions = np.linalg.svd(train - train.mean(0))[2][:3]
    projected = (test - train.mean(0)) @ directions.T
    unit = projected / np.linalg.norm(projected, axis=1, keepdims=True)
    reduced = selected.curves["reduced"]
    assert reduced["dim"] == 3
    pair = unit[list(row_ids).index(181)] @ unit[list(row_ids).index(182)]
    assert reduced["benchmarks"]["b"]["positive"]["mean"] == pytest.approx(pair, abs=1e-5)
    same = (label[:, None] == label) & np.triu(np.ones((30, 30), bool), 1)
    assert reduced["positive"]["mean"] == pytest.approx((unit @ unit.T)[same].mean(), abs=1e-5)
    assert "reduced" not in untrained.curves, "its train embeddings are not exported"
    without = analyze(root / "data/embeddings", ONE, SETTINGS, INTERVALS)[0]
    assert without.curves == {name: curve for name, curve in selected.curves.items() if name != "reduced"}


def test_numbers_that_need_labels_are_empty_for_landmark_sets(root: Path) -> None:
    truth = {"benchmark": ["b"], "query": [181], "easy": [[182]], "hard": [[]], "junk": [[]]}
    pq.write_table(pa.table(truth), root / "data/embeddings/set/one/0/ground_truth.parquet")
    for run in analyze(root / "data/embeddings", ONE, SETTINGS, INTERVALS):
        row = run.row
        assert row["spectral_decay"] is not None
        assert row["images"] == 30
        assert [row[name] for name in NEED_LABELS] == [None] * len(NEED_LABELS)
        assert run.curves["benchmarks"]["b"]["positive"]["pairs"] == 1
        if row["network"] == "selected":
            assert row["train_embedding_density"] is not None
