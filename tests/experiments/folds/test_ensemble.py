"""The complete protocol: its numbers equal an oracle; each member has its own fold and seed."""

import csv
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from tests.experiments.folds.protocol_runs import (
    FOLDS,
    RECALL_AT,
    SEEDS,
    TEST,
    TRAIN,
    settings,
)
from tests.oracles import ensembles as oracle
from unseen.experiments.folds.ensemble import ensemble
from unseen.experiments.folds.ensemble_protocol import EnsembleProtocol
from unseen.runtime.errors import UserError
from unseen.runtime.sealed import sealed_csv

pytestmark = pytest.mark.slow

OUT = Path("data/ensemble/tiny/baseline")


def side(path: Path) -> oracle.Side:
    table = pa.ipc.open_file(path.read_bytes()).read_all()
    embedding, label, is_query, is_gallery = (
        table[name].to_pylist() for name in ("embedding", "label", "is_query", "is_gallery")
    )
    return embedding, label, is_query, is_gallery


def table(root: Path) -> list[dict[str, str]]:
    with open(root / OUT / "members.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_numbers_equal_those_of_the_embeddings(uninterrupted: Path) -> None:
    metrics = json.loads((uninterrupted / "data/metrics/tiny/baseline/ensemble.json").read_text())
    members = [
        [side(uninterrupted / f"data/fold_embeddings/tiny/baseline/{model}/{seed}.arrow") for seed in SEEDS]
        for model in range(1, FOLDS + 1)
    ]
    expected = oracle.protocol(members, RECALL_AT)
    assert metrics.pop("sha256")
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-9)
    assert 0 < expected["separated_map_at_r"] < 1
    assert expected["separated_map_at_r_std"] > 0
    assert expected["concatenated_map_at_r_std"] > 0
    counts = {name: value for name, value in metrics.items() if name not in expected}
    assert counts == {
        "protocol": EnsembleProtocol(FOLDS, len(SEEDS), RECALL_AT).hash(),
        "training_protocol": "selected",
        "members": FOLDS * len(SEEDS),
        "ensembles": len(SEEDS) ** FOLDS,
        "separated_dimensions": 8,
        "concatenated_dimensions": 24,
        "queries": 4 * TEST,
        "lone_queries": 0,
        "gallery": 4 * TEST,
        "classes": TEST,
    }
    results = json.loads((uninterrupted / OUT / "results.json").read_text())
    assert results["metrics"] == metrics
    assert [ensemble["repeats"] for ensemble in results["ensembles"]] == [
        [a, b, c] for a in (1, 2) for b in (1, 2) for c in (1, 2)
    ]
    second = oracle.metrics(members[1][1], RECALL_AT)
    row = next(row for row in table(uninterrupted) if (row["model"], row["repeat"]) == ("2", "2"))
    assert {name: float(row[f"test_{name}"]) for name in second} == pytest.approx(second, abs=1e-9)


def test_each_member_has_its_own_fold_and_seed(uninterrupted: Path) -> None:
    rows = table(uninterrupted)
    assert [(row["model"], row["repeat"], row["seed"]) for row in rows] == [
        (str(model), str(repeat), str(FOLDS * (repeat - 1) + model - 1))
        for repeat in (1, 2)
        for model in (1, 2, 3)
    ]
    third = TRAIN // 3
    for row in rows:
        block = FOLDS - int(row["model"])
        assert (int(row["first_validation_class"]), int(row["last_validation_class"])) == (
            block * third,
            (block + 1) * third - 1,
        )
        with open(
            uninterrupted / f"data/fold_history/tiny/baseline/{row['model']}/{int(row['repeat']) - 1}.csv",
            newline="",
            encoding="utf-8",
        ) as file:
            history = list(csv.DictReader(file))
        best = max(history, key=lambda validation: float(validation["map_at_r"]))
        assert (row["iterations"], row["best_iteration"]) == ("4", best["iteration"])
        assert float(row["validation_map_at_r"]) == float(best["map_at_r"])
    embeddings = {path.read_bytes() for path in (uninterrupted / "data/fold_embeddings").rglob("*.arrow")}
    assert len(embeddings) == FOLDS * len(SEEDS)
    assert sorted(path.name for path in (uninterrupted / OUT).iterdir()) == [
        "digests.json",
        "members.csv",
        "protocol.json",
        "results.json",
    ]
    assert not (uninterrupted / "data/models").exists()


def test_missing_embeddings_are_an_error(uninterrupted: Path) -> None:
    with pytest.raises(UserError, match=r"fold_embeddings/tiny/baseline/1/7.arrow is missing"):
        ensemble("tiny", "baseline", settings(seeds=(0, 7)), uninterrupted)


def test_the_selected_iteration_is_the_last_with_a_gain(uninterrupted: Path, tmp_path: Path) -> None:
    """As the loop: without a gain of more than `minimum_gain` the earlier iterate stays."""
    for name in ("fold_embeddings", "fold_history", "shards"):
        shutil.copytree(uninterrupted / "data" / name, tmp_path / "data" / name)
    for path in (tmp_path / "data/fold_history").rglob("*.csv"):
        rows = [["2", "0.5"], ["4", "0.75"], ["6", "0.75"], ["8", "0.76"]]
        path.write_text(sealed_csv(["iteration", "map_at_r"], rows), encoding="utf-8")
    ensemble("tiny", "baseline", settings(minimum_gain=0.125), tmp_path)
    assert {(row["iterations"], row["best_iteration"]) for row in table(tmp_path)} == {("8", "4")}
    ensemble("tiny", "baseline", settings(), tmp_path)
    assert {(row["best_iteration"], row["validation_map_at_r"]) for row in table(tmp_path)} == {("8", "0.76")}


def test_the_hash_of_the_protocol_depends_on_every_field() -> None:
    protocol = EnsembleProtocol(4, 3, (1, 2))
    variants = [
        EnsembleProtocol(4, 4, (1, 2)),
        EnsembleProtocol(3, 3, (1, 2)),
        EnsembleProtocol(4, 3, (1,)),
        EnsembleProtocol(4, 3, (1, 2), spread=""),
    ]
    assert len({protocol.hash(), *(variant.hash() for variant in variants)}) == 5
    declared = protocol.declaration()
    assert declared["ties"] == "equal similarities in ascending order of row id"
    assert not {"confidence", "interval", "nmi"} & declared.keys()
