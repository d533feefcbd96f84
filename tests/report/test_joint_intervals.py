"""The interval over classes of a mean over seeds equals loops over resampled classes; for one seed it equals
the evaluation."""

import json
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.oracles import joint_bootstrap
from tests.oracles.retrieval import percentile
from unseen.evaluation.evaluate import Extent, evaluate
from unseen.evaluation.landmarks import LandmarkProtocol, evaluate_landmarks
from unseen.evaluation.metrics import Rows
from unseen.evaluation.protocol import Protocol
from unseen.evaluation.sides import Sides
from unseen.evaluation.statistics.bootstrap import CHUNK
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


def replayed(labels: list[int], resamples: int, seed: int) -> list[list[int]]:
    """The draws of the evaluation, repeated from its seed."""
    classes, random, draws = sorted(set(labels)), np.random.default_rng(seed), []
    while len(draws) < resamples:
        sampled = random.integers(len(classes), size=(min(CHUNK, resamples - len(draws)), len(classes)))
        draws += [[classes[place] for place in row] for row in sampled.tolist()]
    return draws


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
    sizes = [2, 6, 3, 1, 5, 4, 2, 3]
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(8) * 5, sizes))
    protocol = Protocol("test", (1, 2), 300, 0.9, 4)
    results_of_seeds = []
    for seed in range(3):
        generator = np.random.default_rng(seed + 1)
        centres, noise = generator.normal(size=(8, 6)), generator.uniform(0.3, 1.8, 8)
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
def test_equals_the_brute_force_bootstrap_of_the_mean_over_seeds(runs: list[RunResults]) -> None:
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
    draws = replayed(labels, 300, 4)
    for prefix, file in (("", "queries"), ("last_", "queries-last")):
        tables = [pq.read_table(run.query_file.with_name(f"{file}.parquet")) for run in runs]
        for metric, column in COLUMNS.items():
            values = [
                [float(value) for value in table[column].to_pylist() if value is not None] for table in tables
            ]
            for name, oracle in (
                (metric, joint_bootstrap.resampled_means),
                (f"class_mean_{metric}", joint_bootstrap.resampled_class_means),
            ):
                means = oracle(values, labels, draws)
                assert intervals[prefix + name] == pytest.approx(
                    (percentile(means, 0.05), percentile(means, 0.95)), abs=1e-12
                ), prefix + name
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


def test_differs_from_the_mean_of_the_intervals(runs: list[RunResults]) -> None:
    """The seeds differ in their hard classes, so the interval of the mean is narrower than the mean of the
    intervals.
    """
    lower, upper = joint_intervals(runs)["map_at_r"]
    widths = [run.metrics["map_at_r_high"] - run.metrics["map_at_r_low"] for run in runs]
    assert upper - lower < 0.95 * statistics.fmean(widths)


@pytest.mark.slow
def test_landmark_sets_draw_the_queries_of_each_benchmark_and_level(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    truth = {"benchmark": [], "query": [], "easy": [], "hard": [], "junk": []}
    for benchmark, first in (("a", 0), ("b", 40)):
        for query in range(7):
            lists = np.split(
                generator.permutation(np.arange(first + 7, first + 40))[:12], [4 * (query != 2), 9]
            )
            for column, value in zip(
                truth, (benchmark, first + query, *(part.tolist() for part in lists)), strict=True
            ):
                truth[column].append(value)
    label, protocol, runs = np.repeat([0, 1], 40), LandmarkProtocol("test", 200, 0.8, 1), []
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
        means = joint_bootstrap.resampled_means(scored, places, replayed(places, 200, 1))
        assert intervals[name] == pytest.approx((percentile(means, 0.1), percentile(means, 0.9)), abs=1e-12)
    assert len([v for v in values[0] if v is None]) + len(places) == 7


@pytest.mark.slow
def test_refuses_missing_files_and_files_of_another_evaluation(runs: list[RunResults]) -> None:
    for prefix, name in (("", "queries"), ("last_", "queries-last")):
        changed = {f"{prefix}map": runs[1].metrics[f"{prefix}map"] + 1e-4}
        changed_run = replace(runs[1], metrics=runs[1].metrics | changed)
        message = rf"in its metrics file, but the mean in .*1/{name}\.parquet is 0"
        finding = rf"^{prefix}map of seed 1 of good is 0\.\d+ {message}"
        with pytest.raises(UserError, match=finding):
            joint_intervals([runs[0], changed_run])
    file = runs[1].query_file.with_name("queries-last.parquet")
    file.rename(file.with_suffix(".aside"))
    with pytest.raises(UserError, match=r"1/queries-last\.parquet cannot be read"):
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
    with pytest.raises(UserError, match=r"2/queries\.parquet cannot be read"):
        joint_intervals(runs)
