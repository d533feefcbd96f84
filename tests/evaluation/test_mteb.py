"""The numbers of mteb, against their definitions in plain Python, and the exact ones."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.vectors import gaussian, unit
from unseen.cli import main as cli
from unseen.evaluation import mteb as module
from unseen.evaluation.external import evaluate_vectors
from unseen.evaluation.mteb import K, evaluate_task, exact, mteb_scores, runs
from unseen.runtime.errors import UserError

Run = dict[str, float]


def oracle(relevant: dict[str, int], run: Run, skips_first: bool) -> dict[str, float]:
    """The scores of one query. Without numpy."""
    rows = list(run.items())
    if skips_first:
        best = max(similarity for _, similarity in rows)
        rows.remove(next(row for row in rows if row[1] == best))
    rows = sorted(rows, key=lambda row: row[0], reverse=True)
    rows = sorted(rows, key=lambda row: row[1], reverse=True)
    gains = [relevant.get(name, 0) for name, _ in rows]
    positive = sum(score > 0 for score in relevant.values()) or 1
    ideal = sorted(relevant.values(), reverse=True)
    scores = {}
    for k in K:
        hits = [rank for rank, gain in enumerate(gains[:k], 1) if gain > 0]
        largest = sum(gain / math.log2(rank + 1) for rank, gain in enumerate(ideal[:k], 1))
        dcg = sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains[:k], 1))
        scores |= {
            f"recall_at_{k}": len(hits) / positive,
            f"precision_at_{k}": len(hits) / k,
            f"hit_rate_at_{k}": float(len(hits) > 0),
            f"mrr_at_{k}": 1 / hits[0] if hits else 0.0,
            f"map_at_{k}": sum(place / rank for place, rank in enumerate(hits, 1)) / positive,
            f"ndcg_at_{k}": dcg / largest if largest else 0.0,
        }
    return scores


def task(seed: int) -> tuple[dict[str, dict[str, int]], dict[str, Run]]:
    """A task with duplicates, ties and classes of one image."""
    random = np.random.default_rng(seed)
    count = int(random.integers(3, 10))
    labels, x = random.integers(0, 4, count), random.integers((2, -1), (5, 2), (count, 2))
    x[random.random(count) < 0.3] = x[0]
    x = unit(x)
    ids = np.array([str(number) for number in random.permutation(count)])
    qrels = {
        str(ids[i]): {str(ids[j]): int(random.integers(0, 3)) for j in range(count) if labels[i] == labels[j]}
        for i in range(count)
    }
    if seed % 2:  # the image itself is not relevant, and a lone query has no line
        qrels = {query: {row: 1 for row in rows if row != query} for query, rows in qrels.items()}
    return {query: rows for query, rows in qrels.items() if rows}, dict(runs(ids, x, ids, x))


def test_a_thousand_tasks_equal_the_definition() -> None:
    compared = 0
    for seed in range(1000):
        qrels, run = task(seed)
        if not qrels:
            continue
        for skips_first in (True, False):
            each = [oracle(qrels[query], run[query], skips_first) for query in run if query in qrels]
            scores = mteb_scores(qrels, iter(run.items()), skips_first)
            for name in each[0]:
                mean = sum(values[name] for values in each) / len(each)
                tolerance = 1e-9 if name.startswith("mrr") else 5e-6 + 1e-9  # of five decimals
                assert abs(scores[name] - mean) <= tolerance, (seed, name)
            assert scores["accuracy"] == scores["recall_at_1"]
            compared += 1
    assert compared > 1900


def test_runs_do_not_depend_on_the_number_of_queries_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    x, ids = gaussian(60, 8), np.array([f"image {number}" for number in range(60)])
    together = dict(runs(ids, x, ids, x))
    products: list[int] = []
    sort = np.argsort
    monkeypatch.setattr(module.np, "argsort", lambda x, **how: products.append(x.size) or sort(x, **how))
    monkeypatch.setattr(module, "_CELLS", 180)
    apart = dict(runs(ids, x, ids, x))
    assert products == [180] * 20
    assert list(apart) == list(together)
    for query, run in together.items():
        assert list(apart[query].values()) == pytest.approx(list(run.values()), abs=1e-6)


def test_a_duplicate_costs_a_hit_in_mteb_alone() -> None:
    """docs/mteb.md: b, the copy of a, is dropped; a remains, which is no answer to itself."""
    x, ids = unit(np.array([[1.0, 0], [1.0, 0], [0.8, 0.6]])), np.array(["a", "b", "c"])
    run = dict(runs(ids[:1], x[:1], ids, x))
    qrels = {"a": {"b": 1}}
    assert mteb_scores(qrels, iter(run.items()), True)["hit_rate_at_1"] == 0.0
    first = {"a": {"a": 1.0, "b": 1.0, "c": 0.8}}
    assert mteb_scores(qrels, iter(first.items()), True)["hit_rate_at_1"] == 1.0
    assert exact(qrels, ids[:2], x[:2], ids, x)["reason"]  # b lacks a
    metrics = exact(qrels | {"b": {"a": 1}}, ids[:2], x[:2], ids, x)
    assert metrics["recall_at_1"] == 1.0


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """A task of 20 classes in the layout of mteb, whose queries are the corpus."""
    random, labels = np.random.default_rng(0), np.repeat(np.arange(20), 3)
    x = np.eye(20)[labels] + 0.3 * random.standard_normal((60, 20))
    ids = [f"image {number}" for number in range(60)]
    pairs = [(i, j) for i in range(60) for j in range(60) if i != j and labels[i] == labels[j]]
    qrels = {"query-id": [ids[i] for i, _ in pairs], "corpus-id": [ids[j] for _, j in pairs]}
    (tmp_path / "SOPI2IRetrieval/qrels").mkdir(parents=True)
    path = tmp_path / "SOPI2IRetrieval/qrels/test-00000-of-00001.parquet"
    pq.write_table(pa.table({**qrels, "score": [1] * len(pairs)}), path)
    pq.write_table(pa.table({"id": ids, "embedding": list(x)}), tmp_path / "x.parquet")
    return tmp_path, x, labels


def test_a_task_has_the_exact_number_and_that_of_mteb(files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    root, x, labels = files
    vectors = str(root / "x.parquet")
    arguments = ["--queries", vectors, "--corpus", vectors, "--output", str(root / "result.json")]
    cli.main(["mteb", str(root / "SOPI2IRetrieval"), *arguments])
    result = json.loads((root / "result.json").read_text())
    (entry,) = result["scores"]["test"]
    metrics = evaluate_vectors(x, labels, normalize=True)
    assert result["unseen"] == metrics
    assert metrics["recall_at_1_low"] < metrics["recall_at_1"]
    assert entry["main_score"] == entry["hit_rate_at_1"]
    assert entry["hit_rate_at_1"] == pytest.approx(metrics["recall_at_1"], abs=1e-5)  # no duplicates here
    printed = json.loads(capsys.readouterr().out)
    assert printed["mteb hit_rate_at_1"] == entry["main_score"]
    assert printed["official"] == result["official"]
    for name in ("recall_at_1", "recall_at_1_low", "recall_at_1_high"):
        assert result["official"][name] == pytest.approx(metrics[name], abs=1e-9)


@pytest.mark.parametrize("prefix", ["", "photo "])
def test_queries_of_another_set_are_other_images_than_the_corpus(files: Any, prefix: str) -> None:
    """In GLDv2, query 7 is not row 7 of the corpus: no row is left out, and both may have one id."""
    _, x, labels = files
    ids, x = np.array([str(number) for number in range(60)]), unit(x)
    relevant = {f"{prefix}{i}": {str(j): 1 for j in range(60) if labels[j] == labels[i]} for i in range(60)}
    queries = np.array(list(relevant))
    metrics = exact(relevant, queries, x, ids, x, "average")
    assert (metrics["recall_at_1"], metrics["lone_queries"]) == (
        1.0,
        0,
    )  # the copy of the query in the corpus


def test_states_why_there_is_no_exact_number(files: Any) -> None:
    root, _, _ = files
    vectors = root / "x.parquet"
    landmarks = evaluate_task(root / "SOPI2IRetrieval", vectors, vectors, "ROxfordHardI2IRetrieval")
    assert "no classes" in landmarks["unseen"]["reason"]
    assert "junk" in landmarks["official"]["reason"]
    path = root / "SOPI2IRetrieval/qrels/test-00000-of-00001.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)
    partial = evaluate_task(root / "SOPI2IRetrieval", vectors, vectors, "SOPI2IRetrieval")
    assert "not all images of one class" in partial["unseen"]["reason"]


def test_a_task_that_mteb_lacks_has_no_main_score(files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    root, _, _ = files
    vectors = str(root / "x.parquet")
    task = [
        "mteb",
        str(root / "SOPI2IRetrieval"),
        "--name",
        "ILIAS",
        "--queries",
        vectors,
        "--corpus",
        vectors,
    ]
    cli.main([*task, "--output", str(root / "result.json")])
    (entry,) = json.loads((root / "result.json").read_text())["scores"]["test"]
    assert entry["main_score"] is None
    printed = json.loads(capsys.readouterr().out)
    assert printed.keys() == {"exact", "official"}
    assert 0 < printed["official"]["map_at_1000_low"] < printed["official"]["map_at_1000"]


def test_refuses_another_task(files: Any) -> None:
    root, _, _ = files
    vectors = root / "x.parquet"
    with pytest.raises(UserError, match="Unknown task Other"):
        evaluate_task(root / "SOPI2IRetrieval", vectors, vectors, "Other")
    with pytest.raises(UserError, match="has no column embedding, id"):
        evaluate_task(root / "SOPI2IRetrieval", root / "SOPI2IRetrieval/qrels", vectors, "SOPI2IRetrieval")
    pq.write_table(pq.read_table(vectors).slice(1), root / "less.parquet")
    with pytest.raises(UserError, match="has no vector of query image 0"):
        evaluate_task(root / "SOPI2IRetrieval", root / "less.parquet", vectors, "SOPI2IRetrieval")


def test_refuses_incomplete_tables(files: Any) -> None:
    root, _, _ = files
    task, vectors, name = root / "SOPI2IRetrieval", root / "x.parquet", "SOPI2IRetrieval"
    table = pq.read_table(vectors)
    pq.write_table(pa.concat_tables([table, table.slice(3, 1)]), root / "twice.parquet")
    with pytest.raises(UserError, match=r"twice\.parquet has ids that occur twice"):
        evaluate_task(task, root / "twice.parquet", vectors, name)
    with pytest.raises(UserError, match="No query has a line in qrels"):
        mteb_scores({"another": {"a": 1}}, iter([("b", {"a": 1.0})]), False)
    (qrels,) = (task / "qrels").iterdir()
    pq.write_table(pq.read_table(qrels).drop_columns(["score"]), qrels)
    with pytest.raises(UserError, match="has no column score"):
        evaluate_task(task, vectors, vectors, name)


@pytest.mark.parametrize("side", ["queries", "corpus"])
@pytest.mark.parametrize(
    ("row", "message"), [([0.0] * 20, "the vector of row 2 is zero"), ([np.nan] * 20, "first in row 2")]
)
def test_refuses_a_vector_without_a_direction(files: Any, side: str, row: list[float], message: str) -> None:
    root, x, _ = files
    table = pq.read_table(root / "x.parquet")
    wrong = table.set_column(1, "embedding", [[*x[:2], row, *x[3:]]])
    pq.write_table(wrong, root / "wrong.parquet")
    paths = {
        name: root / ("wrong.parquet" if name == side else "x.parquet") for name in ("queries", "corpus")
    }
    with pytest.raises(UserError, match=rf"wrong\.parquet: .*{message}"):
        evaluate_task(root / "SOPI2IRetrieval", **paths, name="SOPI2IRetrieval")


def test_refuses_vectors_of_two_models(files: Any) -> None:
    root, x, _ = files
    wide = pq.read_table(root / "x.parquet").set_column(1, "embedding", [list(np.repeat(x, 2, axis=1))])
    pq.write_table(wide, root / "wide.parquet")
    with pytest.raises(UserError, match=r"x\.parquet has 20 dimensions, .*wide\.parquet 40"):
        evaluate_task(root / "SOPI2IRetrieval", root / "x.parquet", root / "wide.parquet", "SOPI2IRetrieval")
