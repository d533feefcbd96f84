"""The evaluate stage on a landmark set: each benchmark uses its own ground truth among its own images.
Reduced embeddings are reported in addition."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from tests.evaluation.conftest import read_results
from tests.oracles import reduction as reduction_oracle
from tests.oracles import revisited as oracle
from tests.resolved import write_resolved
from unseen.data.embeddings import read, write
from unseen.evaluation.evaluate import evaluate
from unseen.evaluation.landmarks import LandmarkProtocol, evaluate_landmarks
from unseen.evaluation.metrics import Rows
from unseen.evaluation.protocol import Protocol
from unseen.evaluation.reduction import Reduction, apply
from unseen.evaluation.run import evaluate_run
from unseen.evaluation.settings import EvaluateSettings
from unseen.evaluation.sides import Sides
from unseen.runtime.errors import UserError
from unseen.stages.evaluate import run

NAME = Path("landmarks/irt_r/0")
LEVELS, PRECISION_AT, DIM = ("easy", "medium", "hard"), (1, 5, 10), 10
SETTINGS: dict[str, Any] = {"recall_at": [1], "confidence": 0.9, "seed": 3}
# roxford: rows 100-139, queries 110, 121, 133; rparis: rows 140-169, queries 141, 150. One query has no easy
# image, one has no relevant image.
TRUTH: list[dict[str, Any]] = [
    {"benchmark": "roxford5k", "query": 121, "easy": [100, 104, 135], "hard": [101, 139], "junk": [102, 120]},
    {"benchmark": "roxford5k", "query": 110, "easy": [], "hard": [130, 131, 132], "junk": []},
    {"benchmark": "roxford5k", "query": 133, "easy": [], "hard": [], "junk": [107]},
    {"benchmark": "rparis6k", "query": 150, "easy": [160], "hard": [140, 161], "junk": [159]},
    {"benchmark": "rparis6k", "query": 141, "easy": [142, 143], "hard": [169], "junk": [144, 145, 146]},
]


def configure(project: Path, *cell: str, **changes: Any) -> None:
    dataset, method = cell or NAME.parts[:2]
    write_resolved(project, "evaluate", dataset, method, evaluate=SETTINGS | changes)


def unit(count: int, seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(count, DIM)) * np.linspace(0.3, 2, DIM) + 0.4
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    configure(tmp_path)
    folder = tmp_path / "data/embeddings" / NAME
    ids, is_query = np.arange(100, 170), np.isin(np.arange(100, 170), [row["query"] for row in TRUTH])
    for seed, name in enumerate(("test", "test-last", "test-untrained", "test-features")):
        write(folder / f"{name}.arrow", ids, np.repeat([7, 8], [40, 30]), unit(70, seed), is_query, ~is_query)
    write(folder / "train.arrow", np.arange(100), np.repeat(np.arange(10), 10), unit(100, 9))
    pq.write_table(pa.Table.from_pylist(TRUTH), folder / "ground_truth.parquet")
    pairs = np.random.default_rng(1).permutation(100)[:80].reshape(40, 2)
    pq.write_table(
        pa.table(
            {"split": ["train"] * 30 + ["validation"] * 10, "query": pairs[:, 0], "positive": pairs[:, 1]}
        ),
        folder / "pairs.parquet",
    )
    return tmp_path


def expected(embeddings: np.ndarray, prefix: str = "") -> dict[str, float]:
    """Computed by the walk down the ranked list, in float64."""
    vectors, is_query = embeddings.astype(float), {row["query"] for row in TRUTH}
    flat = {}
    for benchmark, ids in (("roxford5k", range(100, 140)), ("rparis6k", range(140, 170))):
        scores: dict[str, list[Any]] = {level: [] for level in LEVELS}
        for row in (row for row in TRUTH if row["benchmark"] == benchmark):
            gallery = [identity for identity in ids if identity not in is_query]
            ranking = sorted(
                gallery, key=lambda identity: -float(vectors[identity - 100] @ vectors[row["query"] - 100])
            )
            for level in LEVELS:
                scores[level].append(oracle.level(ranking, row, level, PRECISION_AT))
        for level in LEVELS:
            scored = [score for score in scores[level] if score is not None]
            flat[f"{prefix}{benchmark}_{level}_map"] = float(np.mean([ap for ap, _ in scored]))
            for place, k in enumerate(PRECISION_AT):
                flat[f"{prefix}{benchmark}_{level}_mp_at_{k}"] = float(
                    np.mean([precisions[place] for _, precisions in scored])
                )
    return flat


def metrics() -> dict[str, Any]:
    return json.loads(Path("data/evaluation", NAME, "metrics.json").read_text())


def test_metrics_are_flat_and_equal_the_definition(project: Path) -> None:
    run("landmarks", "irt_r", 0)
    reported = metrics()
    expected_metrics = (
        expected(unit(70, 0))
        | expected(unit(70, 1), "last_")
        | expected(unit(70, 2), "untrained_")
        | expected(unit(70, 3), "features_")
    )
    for name, value in expected_metrics.items():
        assert reported[name] == pytest.approx(value, abs=1e-9), name
    counts = {f"{name}_{level}_queries": 2 for name in ("roxford5k", "rparis6k") for level in LEVELS} | {
        "roxford5k_easy_queries": 1
    }
    counts |= {"queries": 5, "lone_queries": 1, "gallery": 65}
    assert {name: reported[name] for name in counts} == counts
    others = {"protocol", "training_protocol"}
    assert reported.keys() == counts.keys() | expected_metrics.keys() | others, "no interval of 3 queries"


def test_tables_of_queries_and_neighbours(project: Path) -> None:
    run("landmarks", "irt_r", 0)
    queries, neighbours = read_results(project / "data/evaluation" / NAME)
    assert (
        queries["row_id"].to_pylist() == neighbours["row_id"].to_pylist() == [row["query"] for row in TRUTH]
    )
    assert queries["benchmark"].to_pylist() == [row["benchmark"] for row in TRUTH]
    assert queries["relevant"].to_pylist() == [5, 3, 0, 3, 3]
    assert queries["easy_ap"].is_null().to_pylist() == [False, True, True, False, False]
    assert queries["hard_precision_at_10"].null_count == 1
    assert np.nanmean(queries["medium_ap"][:3].to_numpy(zero_copy_only=False)) == pytest.approx(
        metrics()["roxford5k_medium_map"]
    )
    assert neighbours.schema.field("neighbours").type == pa.list_(pa.int64())
    assert neighbours.schema.field("similarities").type == pa.list_(pa.float32())
    for row, nearest in zip(TRUTH, neighbours["neighbours"].to_pylist(), strict=True):
        assert len(nearest) == 10
        assert all((identity < 140) == (row["benchmark"] == "roxford5k") for identity in nearest)


def test_refuses_metrics_of_a_user(project: Path) -> None:
    settings = EvaluateSettings().model_copy(update={"metrics": {"mrr": None}})
    with pytest.raises(UserError, match=r"evaluate\.metrics does not apply .* a table\.\n.*Remove evaluate"):
        evaluate_run(project / "data/embeddings" / NAME, settings)


@pytest.mark.parametrize("whiten", ["none", "pca", "pairs"])
def test_reduced_embeddings_are_reported_in_addition(project: Path, whiten: str) -> None:
    run("landmarks", "irt_r", 0)
    without_reduction = metrics()
    configure(project, reduce={"dim": 4, "whiten": whiten})
    run("landmarks", "irt_r", 0)
    reported = metrics()
    reduction = Reduction(**load_file(project / "data/evaluation" / NAME / "reduction.safetensors"))
    reduced = apply(reduction, read(project / "data/embeddings" / NAME / "test.arrow").embedding)
    assert reduced.shape == (70, 4)
    for name, value in expected(reduced, "reduced_").items():
        assert reported[name] == pytest.approx(value, abs=1e-9), name
    assert {name: reported[name] for name in without_reduction if name != "protocol"} == {
        name: value for name, value in without_reduction.items() if name != "protocol"
    }
    assert reported["protocol"] != without_reduction["protocol"]

    # The reduction is fitted on train embeddings only; the definition is applied to the projections.
    train = unit(100, 9)
    projected = (train.astype(float) - reduction.mean) @ reduction.projection.T
    mean, covariance = reduction_oracle.covariance(train)
    if whiten == "none":
        assert reduction.mean == pytest.approx(mean)
        assert np.cov(projected.T, bias=True) == pytest.approx(
            np.diag(np.linalg.eigvalsh(covariance)[::-1][:4]), abs=1e-12
        )
    elif whiten == "pca":
        assert np.cov(projected.T, bias=True) == pytest.approx(np.eye(4), abs=1e-9)
    else:
        pairs = pq.read_table(project / "data/embeddings" / NAME / "pairs.parquet").to_pandas()
        pairs = pairs[pairs["split"] == "train"][["query", "positive"]].to_numpy()
        assert reduction_oracle.between_pairs(projected, pairs) == pytest.approx(np.eye(4), abs=1e-9)


def test_category_sets_can_be_reduced(project: Path) -> None:
    folder = project / "data/embeddings" / NAME
    for name in ("ground_truth", "pairs"):
        (folder / f"{name}.parquet").unlink()
    for seed, name in enumerate(("test", "test-last", "test-untrained", "test-features")):
        write(folder / f"{name}.arrow", np.arange(100, 170), np.arange(70) // 5, unit(70, seed))
    configure(project, reduce={"dim": 4})
    run("landmarks", "irt_r", 0)
    rows = read(folder / "test.arrow")
    reduction = Reduction(**load_file(project / "data/evaluation" / NAME / "reduction.safetensors"))
    smaller = Rows(rows.row_id, rows.label, apply(reduction, rows.embedding))
    reduced_only, _ = evaluate(Sides(smaller, smaller), {}, Protocol("test", (1,), 0.9, 3))
    for name in ("recall_at_1", "map_at_r", "r_precision", "map", "map_at_r_low"):
        assert metrics()[f"reduced_{name}"] == reduced_only[name]
    configure(project, reduce={"dim": 4, "whiten": "pairs"})
    with pytest.raises(UserError, match="has no table of matching images"):
        run("landmarks", "irt_r", 0)


def sides(ids: np.ndarray, labels: np.ndarray, is_query: np.ndarray) -> Sides:
    rows = Rows(ids, labels, unit(len(ids), 4))
    return Sides(*(Rows(*(column[side] for column in rows)) for side in (is_query, ~is_query)))


def test_refuses_inconsistent_inputs() -> None:
    ids, protocol = np.arange(100, 170), LandmarkProtocol("test", 0.9, 0)
    is_query = np.isin(ids, [row["query"] for row in TRUTH])
    valid = sides(ids, np.repeat([7, 8], [40, 30]), is_query)
    table = pa.Table.from_pylist(TRUTH)
    with pytest.raises(UserError, match="network last have other rows"):
        evaluate_landmarks(
            valid, {"last": sides(ids + 1, np.repeat([7, 8], [40, 30]), is_query)}, table, protocol
        )
    with pytest.raises(UserError, match="lack query 99 of the ground truth of roxford5k"):
        evaluate_landmarks(valid, {}, pa.Table.from_pylist([TRUTH[0] | {"query": 99}]), protocol)
    with pytest.raises(UserError, match="queries of roxford5k have 2 labels"):
        evaluate_landmarks(
            valid, {}, pa.Table.from_pylist([TRUTH[0], TRUTH[3] | {"benchmark": "roxford5k"}]), protocol
        )
    with pytest.raises(UserError, match="id 160 is not in the ranked gallery"):
        evaluate_landmarks(valid, {}, pa.Table.from_pylist([TRUTH[0] | {"junk": [160]}]), protocol)


def test_the_hash_of_the_protocol_depends_on_every_field() -> None:
    protocol = LandmarkProtocol("test", 0.9, 0)
    variants = [
        LandmarkProtocol("test", 0.91, 0),
        LandmarkProtocol("test", 0.9, 0, "reduced"),
        LandmarkProtocol("test", 0.9, 0, easy="all"),
    ]
    assert len({protocol.hash(), *(variant.hash() for variant in variants)}) == 4
