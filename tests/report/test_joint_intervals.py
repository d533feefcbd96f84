"""The interval over classes of a mean over seeds: against loops over drawn classes, against the evaluation's own for one seed, and on the page."""

import json
import math
import re
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.evaluation.evaluate import Extent, evaluate
from pipeline.evaluation.landmarks import LandmarkProtocol, evaluate_landmarks
from pipeline.evaluation.metrics import Rows
from pipeline.evaluation.protocol import Protocol
from pipeline.evaluation.sides import Sides
from pipeline.evaluation.statistics.bootstrap import CHUNK
from pipeline.evaluation.statistics.seeds import over_seeds
from pipeline.evaluation.tables import query_table, write_table
from pipeline.report.geometry_section import _means
from pipeline.report.inputs import Inputs, Run, read_inputs
from pipeline.report.joint_intervals import joint_intervals
from pipeline.report.page import build
from pipeline.report.summary import results
from pipeline.runtime.errors import UserError
from tests.oracles import joint_bootstrap
from tests.oracles.retrieval import percentile
from tests.report.page_reader import read_page

TWO = {"good": 0.25, "poor": 1.2}
COLUMNS = {"recall_at_1": "recall_at_1", "recall_at_2": "recall_at_2", "r_precision": "r_precision", "map_at_r": "ap_at_r", "map": "ap"}


def replayed(labels: list[int], resamples: int, seed: int) -> list[list[int]]:
    """The draws of the evaluation, from its seed."""
    classes, random, draws = sorted(set(labels)), np.random.default_rng(seed), []
    while len(draws) < resamples:
        drawn = random.integers(len(classes), size=(min(CHUNK, resamples - len(draws)), len(classes)))
        draws += [[classes[place] for place in row] for row in drawn.tolist()]
    return draws


def run_of(directory: Path, seed: int, metrics: dict[str, object], protocol: Protocol | LandmarkProtocol) -> Run:
    path = directory / "queries.parquet"
    declared = json.loads(json.dumps(protocol.declaration()))
    return Run("birds", "good", seed, dict(metrics), [], {}, declared, pq.read_table(path), path, pa.table({}), {})


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """Three seeds on classes of one to six images, the noise of each seed another: the seeds disagree about which class is hard."""
    sizes = [2, 6, 3, 1, 5, 4, 2, 3]
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(8) * 5, sizes))
    protocol = Protocol("test", (1, 2), 300, 0.9, 4)
    found = []
    for seed in range(3):
        generator = np.random.default_rng(seed + 1)
        x = generator.normal(size=(8, 6))[labels // 5] + generator.uniform(0.3, 1.8, 8)[labels // 5][:, None] * generator.normal(
            size=(len(labels), 6)
        )
        rows, last = (
            Rows(np.arange(len(labels)), labels, (y / np.linalg.norm(y, axis=1, keepdims=True)).astype(np.float32))
            for y in (x, x + generator.normal(size=x.shape))
        )
        metrics, results = evaluate(Sides(rows, rows), {"last": Sides(last, last)}, protocol, Extent(class_means=True, nmi=True))
        (tmp_path / str(seed)).mkdir()
        for network, file in (("selected", "queries.parquet"), ("last", "queries-last.parquet")):
            write_table(tmp_path / str(seed) / file, query_table(results[network]))
        found.append(run_of(tmp_path / str(seed), seed, metrics, protocol))
    return found


def test_is_the_brute_force_bootstrap_of_the_mean_over_seeds(runs: list[Run]) -> None:
    found = joint_intervals(runs)
    names = {name.removesuffix("_low") for name in runs[0].metrics if name.endswith("_low")}
    assert set(found) == names
    assert {"precision_at_1", "class_mean_map", "class_mean_recall_at_2", "last_precision_at_1", "last_class_mean_map"} < names
    scored = (runs[0].queries["relevant"].to_numpy() > 0).tolist()
    labels = [label for label, kept in zip(runs[0].queries["label"].to_pylist(), scored, strict=True) if kept]
    draws = replayed(labels, 300, 4)
    for prefix, file in (("", "queries"), ("last_", "queries-last")):
        tables = [pq.read_table(run.query_file.with_name(f"{file}.parquet")) for run in runs]
        for metric, column in COLUMNS.items():
            values = [[float(value) for value in table[column].to_pylist() if value is not None] for table in tables]
            for name, oracle in ((metric, joint_bootstrap.resampled_means), (f"class_mean_{metric}", joint_bootstrap.resampled_class_means)):
                means = oracle(values, labels, draws)
                assert found[prefix + name] == pytest.approx((percentile(means, 0.05), percentile(means, 0.95)), abs=1e-12), prefix + name
    assert found["last_map_at_r"] != found["map_at_r"]
    assert found["precision_at_1"] == found["recall_at_1"]


def test_of_one_seed_or_the_same_seed_thrice_it_is_the_interval_of_the_evaluation(runs: list[Run]) -> None:
    for group in (runs[:1], [runs[1]] * 3):
        for name, ends in joint_intervals(group).items():
            assert ends == pytest.approx(tuple(group[0].metrics[f"{name}_{end}"] for end in ("low", "high")), abs=1e-9)


def test_it_is_not_the_mean_of_the_intervals(runs: list[Run]) -> None:
    """Seeds that disagree about the classes: resampled together they even out, the interval of the mean is narrower than the mean of theirs."""
    low, high = joint_intervals(runs)["map_at_r"]
    widths = [run.metrics["map_at_r_high"] - run.metrics["map_at_r_low"] for run in runs]
    assert high - low < 0.95 * statistics.fmean(widths)


def test_landmark_sets_draw_the_queries_of_each_benchmark_and_level(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    truth = {"benchmark": [], "query": [], "easy": [], "hard": [], "junk": []}
    for benchmark, first in (("a", 0), ("b", 40)):
        for query in range(7):
            lists = np.split(generator.permutation(np.arange(first + 7, first + 40))[:12], [4 * (query != 2), 9])
            for column, value in zip(truth, (benchmark, first + query, *(part.tolist() for part in lists)), strict=True):
                truth[column].append(value)
    label, protocol, runs = np.repeat([0, 1], 40), LandmarkProtocol("test", 200, 0.8, 1), []
    for seed in range(2):
        x = np.random.default_rng(seed).normal(size=(80, 5))
        rows = Rows(np.arange(80), label, (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32))
        judged = evaluate_landmarks(Sides(rows, rows), {"untrained": Sides(rows, rows)}, pa.table(truth), protocol)
        (tmp_path / str(seed)).mkdir()
        write_table(tmp_path / str(seed) / "queries.parquet", judged.queries)
        write_table(tmp_path / str(seed) / "queries-untrained.parquet", judged.others["untrained"])
        runs.append(run_of(tmp_path / str(seed), seed, judged.metrics, protocol))
    found = joint_intervals(runs)
    assert set(found) == {name.removesuffix("_low") for name in runs[0].metrics if name.endswith("_low")}
    assert found["untrained_a_easy_map"] == found["a_easy_map"], "here the untrained network is the selected one"
    for name, column, benchmark in (("a_easy_map", "easy_ap", "a"), ("b_hard_mp_at_5", "hard_precision_at_5", "b")):
        values = [
            [v for v, of in zip(run.queries[column].to_pylist(), run.queries["benchmark"].to_pylist(), strict=True) if of == benchmark]
            for run in runs
        ]
        kept = [[value for value in row if value is not None] for row in values]
        places = list(range(len(kept[0])))
        means = joint_bootstrap.resampled_means(kept, places, replayed(places, 200, 1))
        assert found[name] == pytest.approx((percentile(means, 0.1), percentile(means, 0.9)), abs=1e-12)
    assert len([v for v in values[0] if v is None]) + len(places) == 7


def test_what_is_missing_or_of_another_evaluation_is_refused(runs: list[Run]) -> None:
    other = replace(runs[1], metrics=runs[1].metrics | {"map": runs[1].metrics["map"] + 1e-4})
    with pytest.raises(UserError, match=r"1/queries\.parquet averages to map 0\.\d+, but the metrics of seed 1 of good say .* not of one evaluation"):
        joint_intervals([runs[0], other])
    other = replace(runs[1], metrics=runs[1].metrics | {"last_map": runs[1].metrics["last_map"] + 1e-4})
    with pytest.raises(UserError, match=r"1/queries-last\.parquet averages to last_map 0\.\d+, but the metrics of seed 1 of good say"):
        joint_intervals([runs[0], other])
    file = runs[1].query_file.with_name("queries-last.parquet")
    file.rename(file.with_suffix(".aside"))
    with pytest.raises(UserError, match=r"1/queries-last\.parquet cannot be read"):
        joint_intervals(runs)
    file.with_suffix(".aside").rename(file)
    kept = pq.read_table(runs[2].query_file)
    pq.write_table(kept.drop_columns(["r_precision"]), runs[2].query_file)
    with pytest.raises(UserError, match=r"2/queries\.parquet has no column r_precision"):
        joint_intervals(runs)
    pq.write_table(kept.slice(1), runs[2].query_file)
    with pytest.raises(UserError, match="does not contain the same queries"):
        joint_intervals(runs)
    runs[2].query_file.unlink()
    with pytest.raises(UserError, match=r"2/queries\.parquet cannot be read"):
        joint_intervals(runs)


def test_without_an_interval_of_the_mean_there_is_none() -> None:
    files = [("a", {"map_at_r": value, "map_at_r_low": value - 0.1, "map_at_r_high": value + 0.1, "last_map_at_r": value}) for value in (0.2, 0.4)]
    bare = results(files, ("a",)).of("a", "map_at_r")
    joint = results(files, ("a",), {"a": {"map_at_r": (0.25, 0.36)}})
    assert bare is not None
    assert (bare.value, bare.deviation) == pytest.approx((0.3, math.sqrt(0.02)))
    assert (bare.low, bare.high) == (None, None)
    both = [joint.of("a", "map_at_r", network) for network in ("selected", "last")]
    assert [(value.low, value.high) for value in both if value is not None] == [(0.25, 0.36), (None, None)]


def test_deviations_over_splits_of_several_seeds_are_those_of_all_splits_together() -> None:
    """Exactly: of two seeds with three splits each, from the mean and the deviation of each seed."""
    splits = {"l2": [[0.1, 0.4, 0.2], [0.6, 0.5, 0.9]], "cosine": [[0.3, 0.3, 0.3], [0.3, 0.5, 0.1]]}
    rows = [
        {"transfer_map_chance": 0.1}
        | {f"transfer_map_{key}": statistics.fmean(of[seed]) for key, of in splits.items()}
        | {f"transfer_map_{key}_std": statistics.pstdev(of[seed]) for key, of in splits.items()}
        for seed in range(2)
    ]
    means = _means(rows)
    for key, (first, second) in splits.items():
        assert means[f"transfer_map_{key}"] == pytest.approx(statistics.fmean(first + second))
        assert means[f"transfer_map_{key}_std"] == pytest.approx(statistics.pstdev(first + second))
    assert means["embedding_density"] is None


@pytest.fixture(scope="module")
def project(make_project: Callable[..., Path]) -> Path:
    return make_project(noise=TWO, seeds=(0, 1))


def read(root: Path) -> Inputs:
    return read_inputs(root, ("birds",), tuple(TWO), (0, 1))


def test_the_page_prints_it_and_says_which_interval_is_which(project: Path) -> None:
    inputs = read(project)
    page = read_page(build(inputs, "A report", queries=4, neighbours=3, thumbnail=24))
    for method in TWO:
        runs = inputs.of("birds", method)
        low, high = joint_intervals(runs)["map_at_r"]
        values = [run.metrics["map_at_r"] for run in runs]
        said = f"{100 * statistics.fmean(values):.1f} ± {100 * statistics.stdev(values):.1f}"
        row = page.first("tr", **{"data-method": method, "data-network": "selected"})
        assert row.first("td", **{"data-metric": "map_at_r"}).text() == f"{said}{100 * low:.1f} – {100 * high:.1f}"
        for network in ("last", "untrained"):
            cell = page.first("tr", **{"data-method": method, "data-network": network}).first("td", **{"data-metric": "map_at_r"})
            ends = joint_intervals(runs)[f"{network}_map_at_r"]
            assert cell.text().endswith(f"{100 * ends[0]:.1f} – {100 * ends[1]:.1f}")
            assert re.match(r"\d+\.\d ± \d+\.\d", cell.text())
        student = over_seeds(np.array(values), 0.95)
        over = page.first("tr", **{"data-seeds": method}).first("td", **{"data-metric": "map_at_r"}).text()
        beyond = student.low < 0 or student.high > 1
        assert over == f"{said}seeds {100 * max(student.low, 0):.1f} – {100 * min(student.high, 1):.1f}{' (cut)' if beyond else ''}"
    text = page.first("section", id="set-0-results").text()
    assert "the same ones drawn for every seed" in text
    assert "(cut)" in page.first("table", **{"class": "seeds"}).text(), "t takes an interval of the made-up run beyond 100"
    assert "what reached below 0 or beyond 100 is cut there, and says so" in text
    assert "Each seed holds out other classes" in page.first("section", id="set-0-training").text()
    assert "the mean of 2 seeds" in page.first("p", **{"class": "lede"}).text()
    assert "Several seeds" in page.first("section", id="guide").text()
    assert "before training, with its interval" in text


def test_metrics_without_the_results_of_single_queries_make_no_page(project: Path) -> None:
    path = project / "evaluation/birds/poor/1/queries.parquet"
    kept = path.read_bytes()
    path.unlink()
    with pytest.raises(UserError, match=r"evaluation/birds/poor/1/queries\.parquet is missing") as caught:
        read(project)
    path.write_bytes(kept)
    assert "dvc pull" in caught.value.remedy
