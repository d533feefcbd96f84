"""The interval over classes of a mean over seeds equals the formulas; for one seed it equals the
evaluation."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.oracles import comparison as oracle
from unseen.evaluation.evaluate import Extent, evaluate
from unseen.evaluation.landmarks import LandmarkProtocol, evaluate_landmarks
from unseen.evaluation.metrics import Rows
from unseen.evaluation.protocol import Protocol
from unseen.evaluation.sides import Sides
from unseen.evaluation.tables import query_table, write_table
from unseen.report.joint_intervals import joint_intervals
from unseen.report.report_data import RunResults
from unseen.runtime.errors import UserError

COLUMNS = {
    "recall_at_1": "recall_at_1",
    "recall_at_2": "recall_at_2",
    "r_precision": "r_precision",
    "map_at_r": "ap_at_r",
    "map": "ap",
}


def expected_ends(values: list[list[float]], labels: list[int], share: float) -> tuple[float, float]:
    """The interval over the labels of the mean over seeds. values: of each seed, of each query."""
    means = np.mean(values, axis=0)
    of_label = {label: means[np.array(labels) == label] for label in sorted(set(labels))}
    averages, sizes = zip(*((float(each.mean()), len(each)) for each in of_label.values()), strict=True)
    low, high = oracle.interval_of_classes(list(averages), list(sizes), [], share)
    return max(low, 0.0), min(high, 1.0)


def run_of(
    directory: Path, seed: int, metrics: dict[str, object], protocol: Protocol | LandmarkProtocol
) -> RunResults:
    path = directory / "queries.parquet"
    declared = json.loads(json.dumps(protocol.declaration()))
    return RunResults(
        "birds", "good", seed, dict(metrics), [], {}, declared, pq.read_table(path), path, pa.table({}), {}
    )


@pytest.fixture
def runs(tmp_path: Path) -> list[RunResults]:
    """Three seeds with different noise on classes of one to six images, so that each seed has other hard
    classes."""
    sizes = [2, 6, 3, 1, 5, 4, 2, 3, 2, 4]
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10) * 5, sizes))
    protocol = Protocol("test", (1, 2), 0.9, 4)
    results_of_seeds = []
    for seed in range(3):
        generator = np.random.default_rng(seed + 1)
        centres, noise = generator.normal(size=(10, 6)), generator.uniform(0.3, 1.8, 10)
        x = centres[labels // 5] + noise[labels // 5][:, None] * generator.normal(size=(len(labels), 6))
        rows, last = (
            Rows(
                np.arange(len(labels)),
                labels,
                (y / np.linalg.norm(y, axis=1, keepdims=True)).astype(np.float32),
            )
            for y in (x, x + generator.normal(size=x.shape))
        )
        metrics, results = evaluate(
            Sides(rows, rows), {"last": Sides(last, last)}, protocol, Extent(class_means=True, nmi=True)
        )
        (tmp_path / str(seed)).mkdir()
        for network, file in (("selected", "queries.parquet"), ("last", "queries-last.parquet")):
            write_table(tmp_path / str(seed) / file, query_table(results[network]))
        results_of_seeds.append(run_of(tmp_path / str(seed), seed, metrics, protocol))
    return results_of_seeds


@pytest.mark.slow
def test_equals_the_interval_of_the_mean_over_seeds(runs: list[RunResults]) -> None:
    intervals = joint_intervals(runs)
    names = {name.removesuffix("_low") for name in runs[0].metrics if name.endswith("_low")}
    assert set(intervals) == names
    assert {
        "precision_at_1",
        "class_mean_map",
        "class_mean_recall_at_2",
        "last_precision_at_1",
        "last_class_mean_map",
    } < names
    scored = (runs[0].queries["relevant"].to_numpy() > 0).tolist()
    labels = [
        label
        for label, is_scored in zip(runs[0].queries["label"].to_pylist(), scored, strict=True)
        if is_scored
    ]
    for prefix, file in (("", "queries"), ("last_", "queries-last")):
        tables = [pq.read_table(run.query_file.with_name(f"{file}.parquet")) for run in runs]
        for metric, column in COLUMNS.items():
            values = [
                [float(value) for value in table[column].to_pylist() if value is not None] for table in tables
            ]
            of_class = [
                [
                    float(np.mean(np.array(of_seed)[np.array(labels) == label]))
                    for label in sorted(set(labels))
                ]
                for of_seed in values
            ]
            ends = expected_ends(values, labels, 0.9)
            assert intervals[prefix + metric] == pytest.approx(ends, abs=1e-9), prefix + metric
            ends = expected_ends(of_class, list(range(len(of_class[0]))), 0.9)
            assert intervals[f"{prefix}class_mean_{metric}"] == pytest.approx(ends, abs=1e-9)
    assert intervals["last_map_at_r"] != intervals["map_at_r"]
    assert intervals["precision_at_1"] == intervals["recall_at_1"]


@pytest.mark.slow
def test_one_seed_or_three_equal_seeds_have_the_interval_of_the_evaluation(
    runs: list[RunResults],
) -> None:
    for group in (runs[:1], [runs[1]] * 3):
        for name, ends in joint_intervals(group).items():
            assert ends == pytest.approx(
                tuple(group[0].metrics[f"{name}_{end}"] for end in ("low", "high")), abs=1e-9
            )


@pytest.mark.slow
def test_landmark_sets_have_the_queries_of_each_benchmark_and_level(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    truth = {"benchmark": [], "query": [], "easy": [], "hard": [], "junk": []}
    for benchmark, first in (("a", 0), ("b", 40)):
        for query in range(10):
            lists = np.split(
                generator.permutation(np.arange(first + 10, first + 40))[:12], [4 * (query != 2), 9]
            )
            for column, value in zip(
                truth, (benchmark, first + query, *(part.tolist() for part in lists)), strict=True
            ):
                truth[column].append(value)
    label, protocol, runs = np.repeat([0, 1], 40), LandmarkProtocol("test", 0.8, 1), []
    for seed in range(2):
        x = np.random.default_rng(seed).normal(size=(80, 5))
        rows = Rows(np.arange(80), label, (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32))
        judged = evaluate_landmarks(
            Sides(rows, rows), {"untrained": Sides(rows, rows)}, pa.table(truth), protocol
        )
        (tmp_path / str(seed)).mkdir()
        write_table(tmp_path / str(seed) / "queries.parquet", judged.queries)
        write_table(tmp_path / str(seed) / "queries-untrained.parquet", judged.others["untrained"])
        runs.append(run_of(tmp_path / str(seed), seed, judged.metrics, protocol))
    intervals = joint_intervals(runs)
    assert set(intervals) == {name.removesuffix("_low") for name in runs[0].metrics if name.endswith("_low")}
    assert intervals["untrained_a_easy_map"] == intervals["a_easy_map"], (
        "the untrained network has the results of the selected one"
    )
    for name, column, benchmark in (
        ("a_easy_map", "easy_ap", "a"),
        ("b_hard_mp_at_5", "hard_precision_at_5", "b"),
    ):
        values = [
            [
                v
                for v, query_label in zip(
                    run.queries[column].to_pylist(), run.queries["benchmark"].to_pylist(), strict=True
                )
                if query_label == benchmark
            ]
            for run in runs
        ]
        scored = [[value for value in row if value is not None] for row in values]
        places = list(range(len(scored[0])))
        assert intervals[name] == pytest.approx(expected_ends(scored, places, 0.8), abs=1e-9)
        of_evaluation = tuple(runs[0].metrics[f"{name}_{end}"] for end in ("low", "high"))
        assert joint_intervals(runs[:1])[name] == pytest.approx(of_evaluation, abs=1e-9)
    assert len([v for v in values[0] if v is None]) + len(places) == 10


@pytest.mark.slow
def test_refuses_missing_files_and_other_queries(runs: list[RunResults]) -> None:
    file = runs[1].query_file.with_name("queries-last.parquet")
    file.rename(file.with_suffix(".aside"))
    with pytest.raises(UserError, match=r"1/queries-last\.parquet is missing"):
        joint_intervals(runs)
    file.with_suffix(".aside").rename(file)
    table = pq.read_table(runs[2].query_file)
    pq.write_table(table.drop_columns(["r_precision"]), runs[2].query_file)
    with pytest.raises(UserError, match=r"2/queries\.parquet has no column r_precision"):
        joint_intervals(runs)
    pq.write_table(table.slice(1), runs[2].query_file)
    with pytest.raises(UserError, match="does not contain the same queries"):
        joint_intervals(runs)
    runs[2].query_file.unlink()
    with pytest.raises(UserError, match=r"2/queries\.parquet is missing"):
        joint_intervals(runs)
