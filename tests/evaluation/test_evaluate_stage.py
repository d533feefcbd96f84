"""The evaluate stage on embedding files: its three outputs, its protocol, and no import of torch."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.evaluation.conftest import read_results
from tests.oracles import retrieval as oracle
from tests.resolved import write_resolved
from tests.torch_counter import TorchCounter
from unseen.data.embeddings import read, write
from unseen.evaluation import evaluate as evaluation
from unseen.evaluation.clustering import nmi
from unseen.evaluation.counted_gallery import NumpyGallery
from unseen.evaluation.evaluate import Extent, evaluate
from unseen.evaluation.headline import headline
from unseen.evaluation.metrics import PerQuery, Rows, quick_metrics
from unseen.evaluation.protocol import Protocol
from unseen.evaluation.sides import Sides
from unseen.runtime.errors import UserError
from unseen.runtime.sealed import unsealed
from unseen.runtime.stage import ROOT
from unseen.stages import evaluate as stage
from unseen.stages.evaluate import run

SETTINGS: dict[str, Any] = {"recall_at": [1, 2, 4], "confidence": 0.9, "seed": 3}
NAME = Path("parts/gsp/0")
COUNTS = {"queries", "lone_queries", "gallery", "classes"}
NOT_METRICS = COUNTS | {"protocol", "training_protocol"}


def configure(project: Path, **changes: Any) -> None:
    write_resolved(project, "evaluate", "parts", "gsp", evaluate=SETTINGS | changes)


def embed(labels: np.ndarray, noise: float, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    x = np.eye(16)[labels % 16] + noise * generator.standard_normal((len(labels), 16))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with exported embeddings: 16 classes of 6 images and 3 of one image. Ids start at 1000."""
    monkeypatch.chdir(tmp_path)
    configure(tmp_path)
    labels = np.concatenate([np.repeat(np.arange(16), 6), [20, 21, 22]])
    for name, noise in (("test", 0.2), ("test-last", 0.3), ("test-untrained", 2.0), ("test-features", 1.0)):
        write(
            tmp_path / "data/embeddings" / NAME / f"{name}.arrow",
            np.arange(1000, 1099),
            labels,
            embed(labels, noise, 1),
        )
    return tmp_path


def test_metrics_are_flat_and_correct(project: Path) -> None:
    run("parts", "gsp", 0)
    metrics = json.loads((project / "data/evaluation" / NAME / "metrics.json").read_text())
    names = [*(f"recall_at_{k}" for k in (1, 2, 4)), "precision_at_1", "r_precision", "map_at_r", "map"]
    expected = {
        f"{prefix}{name}{end}"
        for prefix in ("", "last_", "untrained_", "features_")
        for name in names
        for end in ("", "_low", "_high")
    }
    sealed = project / "data/metrics" / NAME.with_suffix(".json")
    compared = unsealed(sealed, json.loads(sealed.read_text()), "")
    assert compared == headline(metrics)
    assert metrics.keys() == expected | NOT_METRICS
    assert metrics["training_protocol"] == "selected"
    counts = {name: metrics[name] for name in COUNTS}
    assert counts == {"queries": 99, "lone_queries": 3, "gallery": 99, "classes": 19}
    labels = np.concatenate([np.repeat(np.arange(16), 6), [20, 21, 22]])
    for prefix, noise in (("", 0.2), ("last_", 0.3), ("untrained_", 2.0), ("features_", 1.0)):
        truth = oracle.metrics(embed(labels, noise, 1).tolist(), labels.tolist(), list(range(99)), (1, 2, 4))
        for name, value in truth.items():
            assert metrics[prefix + name] == pytest.approx(value, abs=1e-9)
        assert metrics[prefix + "precision_at_1"] == metrics[prefix + "recall_at_1"]
        for name in names:
            assert metrics[f"{prefix}{name}_low"] <= metrics[prefix + name] <= metrics[f"{prefix}{name}_high"]
        assert metrics[f"{prefix}map_at_r_low"] < metrics[f"{prefix}map_at_r_high"]
    assert metrics["untrained_map_at_r_high"] < metrics["last_map_at_r"] < metrics["map_at_r"]


def test_per_query_results(project: Path) -> None:
    run("parts", "gsp", 0)
    queries, neighbours = read_results(project / "data/evaluation" / NAME)
    recalls = "recall_at_1 recall_at_2 recall_at_4"
    columns = f"row_id label relevant {recalls} r_precision ap_at_r ap first_positive"
    assert queries.column_names == columns.split()
    assert queries["row_id"].to_pylist() == neighbours["row_id"].to_pylist() == list(range(1000, 1099))
    assert all(
        queries[name].null_count == 3
        for name in ("recall_at_1", "r_precision", "ap_at_r", "ap", "first_positive")
    )
    labels = queries["label"].to_pylist()
    embeddings = embed(np.array(labels), 0.2, 1).tolist()
    for row in (0, 50, 98):
        ranked = oracle.ranking(embeddings[row], row, embeddings, list(range(99)))
        assert neighbours["neighbours"][row].as_py() == [1000 + identity for _, identity, _ in ranked[:10]]
        assert neighbours["similarities"][row].as_py() == [value for value, _, _ in ranked[:10]]
        hits = [labels[identity] == labels[row] for _, identity, _ in ranked]
        assert queries["first_positive"][row].as_py() == (hits.index(True) + 1 if True in hits else None)
        assert queries["ap"][row].as_py() == (
            pytest.approx(oracle.average_precision(hits), abs=1e-12) if True in hits else None
        )


def test_metrics_are_means_of_the_results_per_query(project: Path) -> None:
    configure(project, reduce={"dim": 4, "whiten": "none"})
    labels = np.repeat(np.arange(30, 40), 5)
    write(project / "data/embeddings" / NAME / "train.arrow", np.arange(50), labels, embed(labels, 0.2, 2))
    run("parts", "gsp", 0)
    metrics = json.loads((project / "data/evaluation" / NAME / "metrics.json").read_text())
    networks = set()
    for prefix in ("last", "untrained", "features", "reduced"):
        table = pq.read_table(project / "data/evaluation" / NAME / f"queries-{prefix}.parquet")
        assert table["row_id"].to_pylist() == list(range(1000, 1099))
        for name, column in (("recall_at_1", "recall_at_1"), ("map_at_r", "ap_at_r"), ("map", "ap")):
            values = [float(value) for value in table[column].to_pylist() if value is not None]
            assert metrics[f"{prefix}_{name}"] == pytest.approx(sum(values) / 96, abs=1e-9)
        networks.add(metrics[f"{prefix}_map_at_r"])
    assert len(networks) == 4


def test_a_second_run_writes_equal_bytes(project: Path) -> None:
    contents = []
    for _ in range(2):
        run("parts", "gsp", 0)
        contents.append(
            {
                path.relative_to(project): path.read_bytes()
                for path in sorted((project / "data").rglob("*"))
                if path.is_file()
            }
        )
    assert contents[0] == contents[1]


def test_uses_the_query_and_gallery_sides_of_the_data_set(project: Path) -> None:
    """A CSV may define queries and gallery."""
    labels = np.repeat(np.arange(8), 4)
    is_query = np.arange(32) % 4 == 0
    for name in ("test", "test-last", "test-untrained", "test-features"):
        write(
            project / "data/embeddings" / NAME / f"{name}.arrow",
            np.arange(32),
            labels,
            embed(labels, 0.1, 2),
            is_query,
            ~is_query,
        )
    run("parts", "gsp", 0)
    metrics = json.loads((project / "data/evaluation" / NAME / "metrics.json").read_text())
    assert (metrics["queries"], metrics["gallery"], metrics["recall_at_1"]) == (8, 24, 1.0)
    queries = pq.read_table(project / "data/evaluation" / NAME / "queries.parquet")
    assert queries["row_id"].to_pylist() == list(range(0, 32, 4))
    assert queries["relevant"].to_pylist() == [3] * 8


def test_refuses_models_of_other_rows(project: Path) -> None:
    labels = np.repeat(np.arange(16), 6)
    write(
        project / "data/embeddings" / NAME / "test-last.arrow", np.arange(96), labels, embed(labels, 0.1, 2)
    )
    with pytest.raises(UserError, match="network last have other rows"):
        run("parts", "gsp", 0)
    assert not (project / "data/metrics").exists()
    assert not (project / "data/evaluation").exists()


@pytest.mark.parametrize("network", ["untrained", "features"])
def test_names_missing_embeddings(project: Path, network: str) -> None:
    (project / "data/embeddings" / NAME / f"test-{network}.arrow").unlink()
    with pytest.raises(UserError, match=rf"test-{network}.arrow is missing"):
        run("parts", "gsp", 0)


def test_ranks_networks_with_equal_embeddings_once(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, results = project / "data/embeddings" / NAME, project / "data/evaluation" / NAME
    shutil.copyfile(folder / "test-untrained.arrow", folder / "test-features.arrow")
    shutil.copyfile(folder / "test.arrow", folder / "test-last.arrow")
    ranked: list[str] = []
    per_query = evaluation.per_query

    def counted(*arguments: Any, **options: Any) -> PerQuery:
        ranked.append(arguments[4])
        return per_query(*arguments, **options)

    monkeypatch.setattr(evaluation, "per_query", counted)
    run("parts", "gsp", 0)
    assert ranked == ["evaluate: selected", "evaluate: untrained"]
    metrics = json.loads((results / "metrics.json").read_text())
    for network, other in (("last_", ""), ("features_", "untrained_")):
        for name in ("map_at_r", "recall_at_1_low"):
            assert metrics[network + name] == metrics[other + name]
    assert metrics["features_map_at_r"] < metrics["last_map_at_r"]
    features, untrained = (results / f"queries-{name}.parquet" for name in ("features", "untrained"))
    assert features.read_bytes() == untrained.read_bytes()


def test_the_hash_of_the_protocol_depends_on_every_field(project: Path) -> None:
    run("parts", "gsp", 0)
    protocol = Protocol("test", (1, 2, 4), 0.9, 3)
    metrics = json.loads((project / "data/evaluation" / NAME / "metrics.json").read_text())
    assert metrics["protocol"] == protocol.hash() == Protocol("test", (4, 2, 1, 1), 0.9, 3).hash()
    assert json.loads((project / "data/evaluation" / NAME / "protocol.json").read_text()) == json.loads(
        json.dumps(protocol.declaration())
    )
    variants = [
        Protocol("train", (1, 2, 4), 0.9, 3),
        Protocol("test", (1, 2), 0.9, 3),
        Protocol("test", (1, 2, 4), 0.91, 3),
        Protocol("test", (1, 2, 4), 0.9, 3, ties="at random"),
    ]
    assert len({protocol.hash(), *(variant.hash() for variant in variants)}) == 5
    assert len(protocol.hash()) == 64


def test_counters_give_equal_bytes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files of a run are those of numpy if torch counts the tiles."""
    on_torch = TorchCounter()
    labels = np.repeat(np.arange(30, 40), 5)
    write(project / "data/embeddings" / NAME / "train.arrow", np.arange(50), labels, embed(labels, 0.2, 2))
    configure(project, reduce={"dim": 4, "whiten": "none"}, class_means=True)
    contents = []
    for counter in (NumpyGallery, on_torch):
        monkeypatch.setattr(stage, "tile_counter", lambda counter=counter: counter)
        run("parts", "gsp", 0)
        files = [path for path in sorted((project / "data").rglob("*")) if path.is_file()]
        contents.append({path.relative_to(project): path.read_bytes() for path in files})
    assert contents[0] == contents[1]
    assert on_torch.galleries == [99] * 5


@pytest.mark.slow
def test_evaluation_imports_no_torch(project: Path) -> None:
    """Where FAISS has no GPU, as in its CPU build: the import of torch takes seconds. FAISS and torch each
    bring an OpenMP runtime, and two runtimes in one process may crash or slow each other."""
    code = (
        "import sys; from unseen.stages.evaluate import run; run('parts', 'gsp', 0); "
        "assert 'faiss' in sys.modules; print([m for m in ('torch', 'ray', 'timm') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive"}
    environment["CUDA_VISIBLE_DEVICES"] = ""
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        cwd=project,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip() == "[]"
    assert "evaluate: selected: 96/96 queries" in process.stderr  # three queries have no relevant image
    assert "evaluate: selected, neighbours: 99/99 queries" in process.stderr


def test_validation_equals_evaluation(project: Path) -> None:
    """Training selects by the metrics that evaluation reports."""
    run("parts", "gsp", 0)
    metrics = json.loads((project / "data/evaluation" / NAME / "metrics.json").read_text())
    labels = np.concatenate([np.repeat(np.arange(16), 6), [20, 21, 22]])
    for name, value in quick_metrics(embed(labels, 0.2, 1), labels).items():
        assert metrics[name] == pytest.approx(value, abs=1e-9)


def test_optional_metrics_do_not_change_the_others(project: Path) -> None:
    """MAP, NMI and class means have separate settings."""
    labels = np.repeat(np.arange(8), [3, 4, 5, 6, 7, 8, 9, 10])
    rows = Rows(np.arange(52), labels, embed(labels, 0.5, 4))
    protocol = Protocol("test", (1, 4), 0.9, 0)
    required, _ = evaluate(Sides(rows, rows), {}, protocol, Extent(full_ranking=False))
    all_metrics, results = evaluate(
        Sides(rows, rows), {"last": Sides(rows, rows)}, protocol, Extent(nmi=True, class_means=True)
    )
    assert {name: all_metrics[name] for name in required} == required
    names = ["recall_at_1", "recall_at_4", "r_precision", "map_at_r", "map"]
    added = {"map", "nmi", *(f"class_mean_{name}" for name in names)}
    added |= {f"{name}{end}" for name in added - {"nmi"} for end in ("_low", "_high")}
    added |= {f"last_{name}" for name in added | required.keys() - NOT_METRICS}
    assert all_metrics.keys() == required.keys() | added
    truth = oracle.metrics(rows.embedding.tolist(), labels.tolist(), list(range(52)), (1, 4))
    assert all_metrics["map"] == pytest.approx(truth["map"], abs=1e-9)
    of_class = [np.mean(results["selected"].ap_at_r[labels == c]) for c in range(8)]
    assert all_metrics["class_mean_map_at_r"] == pytest.approx(np.mean(of_class), abs=1e-9)
    assert (
        all_metrics["class_mean_map_at_r_low"]
        < all_metrics["class_mean_map_at_r"]
        < all_metrics["class_mean_map_at_r_high"]
    )
    assert 0 < all_metrics["nmi"] <= 1


def test_nmi_counts_a_row_of_both_sides_once(project: Path) -> None:
    labels = np.repeat(np.arange(5), 6)
    rows = Rows(np.arange(30), labels, embed(labels, 0.4, 5))
    all_rows, split_rows = (
        Sides(rows, rows),
        Sides(Rows(*(column[:20] for column in rows)), Rows(*(column[10:] for column in rows))),
    )
    protocol = Protocol("test", (1,), 0.9, 0)
    extent = Extent(full_ranking=False, nmi=True)
    order = np.r_[10:30, 0:10]  # the gallery, then the rows that are only queries
    assert evaluate(split_rows, {}, protocol, extent)[0]["nmi"] == round(
        nmi(rows.embedding[order], labels[order], 0), 10
    )
    assert evaluate(all_rows, {}, protocol, extent)[0]["nmi"] == round(nmi(rows.embedding, labels, 0), 10)


@pytest.mark.parametrize(
    "setting", [{"kind": "ivf", "lists": 4, "probes": 4}, {"kind": "hnsw", "search_width": 99}]
)
def test_measures_an_approximate_index_and_exact_search(project: Path, setting: dict[str, Any]) -> None:
    configure(project, approximate=setting, approximate_sample=50)
    run("parts", "gsp", 0)
    metrics = json.loads((project / "data/evaluation" / NAME / "metrics.json").read_text())
    for name in ("recall_at_1", "recall_at_4", "r_precision", "map_at_r"):
        assert metrics[f"approximate_{name}"] == pytest.approx(metrics[name], abs=1e-9), (
            "an index that searches all lists"
        )
    assert metrics["approximate_search_recall_at_1"] == metrics["approximate_search_recall_at_10"] == 1.0
    assert metrics["approximate_protocol"] != metrics["protocol"]
    approximate, exact = (
        pq.read_table(project / "data/evaluation" / NAME / f"queries{end}.parquet")
        for end in ("-approximate", "")
    )
    assert approximate.drop_columns(["first_positive"]).equals(exact.drop_columns(["ap", "first_positive"]))
    assert metrics["approximate_map_at_r_low"] == pytest.approx(metrics["map_at_r_low"], abs=1e-9)


@pytest.mark.parametrize("refine", [None, 300])
def test_measures_an_index_of_codes(project: Path, refine: int | None) -> None:
    labels = np.repeat(np.arange(50), 6)
    for name, noise in (("test", 0.2), ("test-last", 0.3), ("test-untrained", 2.0), ("test-features", 1.0)):
        write(
            project / "data/embeddings" / NAME / f"{name}.arrow",
            np.arange(300),
            labels,
            embed(labels, noise, 1),
        )
    setting = {"kind": "ivf_pq", "lists": 4, "probes": 4, "code_bytes": 2, "refine": refine}
    configure(project, approximate=setting, approximate_sample=300)
    run("parts", "gsp", 0)
    metrics = json.loads((project / "data/evaluation" / NAME / "metrics.json").read_text())
    assert metrics["approximate_protocol"] != metrics["protocol"]
    assert (metrics["approximate_search_recall_at_10"] == 1) is (refine == 300)
    assert (metrics["approximate_map_at_r"] == metrics["map_at_r"]) is (refine == 300)


@pytest.mark.slow
def test_several_scales_have_their_own_protocol(project: Path) -> None:
    hashes = set()
    for scales in ((1.0,), (1.0, 0.5), (0.5,)):
        for name in ("test", "test-last", "test-untrained", "test-features"):
            path = project / "data/embeddings" / NAME / f"{name}.arrow"
            rows = read(path)
            columns = [np.array(column) for column in rows[:5]]
            write(path, *columns, scales=scales)
        run("parts", "gsp", 0)
        hashes.add(json.loads((project / "data/evaluation" / NAME / "metrics.json").read_text())["protocol"])
        normalisation = json.loads((project / "data/evaluation" / NAME / "protocol.json").read_text())[
            "normalisation"
        ]
        assert ("scales" in normalisation) is (scales != (1.0,))
    assert len(hashes) == 3
    assert Protocol("test", (1, 2, 4), 0.9, 3).hash() in hashes


def test_a_protocol_of_training_has_its_own_hash(project: Path) -> None:
    metrics = []
    for protocol in ("selected", "published"):
        path = project / "data/embeddings" / NAME / "test.arrow"
        columns = [np.array(column) for column in read(path)[:5]]
        write(path, *columns, training_protocol=protocol)
        run("parts", "gsp", 0)
        metrics.append(json.loads((project / "data/evaluation" / NAME / "metrics.json").read_text()))
    assert [each["training_protocol"] for each in metrics] == ["selected", "published"]
    hashes = [each.pop("protocol") for each in metrics]
    assert len(set(hashes)) == 2
    assert metrics[0] | {"training_protocol": "published"} == metrics[1]


def test_the_best_iterate_on_test_is_reported_separately(project: Path) -> None:
    labels = np.concatenate([np.repeat(np.arange(16), 6), [20, 21, 22]])
    write(
        project / "data/embeddings" / NAME / "test-best.arrow",
        np.arange(1000, 1099),
        labels,
        embed(labels, 0.05, 1),
    )
    run("parts", "gsp", 0)
    metrics = json.loads((project / "data/evaluation" / NAME / "metrics.json").read_text())
    assert metrics["best_on_test_map_at_r"] > metrics["map_at_r"]
    assert metrics["best_on_test_map_at_r_low"] <= metrics["best_on_test_map_at_r"]
    assert (project / "data/evaluation" / NAME / "queries-best_on_test.parquet").is_file()
