"""The complete protocol: its numbers equal an oracle; each member has its own fold and seed."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.experiments.folds.protocol_runs import (
    FOLDS,
    RECALL_AT,
    SEEDS,
    TEST,
    settings,
)
from tests.oracles import ensembles as oracle
from unseen.experiments.folds.ensemble import EnsembleProtocol, ensemble
from unseen.runtime.errors import UserError

pytestmark = pytest.mark.slow

OUT = Path("data/ensemble/tiny/baseline")


def side(path: Path) -> oracle.Side:
    table = pa.ipc.open_file(path.read_bytes()).read_all()
    embedding, label, is_query, is_gallery = (
        table[name].to_pylist() for name in ("embedding", "label", "is_query", "is_gallery")
    )
    return embedding, label, is_query, is_gallery


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


def test_each_member_has_its_own_embeddings_and_no_other_output(uninterrupted: Path) -> None:
    embeddings = {path.read_bytes() for path in (uninterrupted / "data/fold_embeddings").rglob("*.arrow")}
    assert len(embeddings) == FOLDS * len(SEEDS)
    names = sorted(path.name for path in (uninterrupted / OUT).iterdir())
    assert names == ["digests.json", "protocol.json", "results.json"]
    assert not (uninterrupted / "data/models").exists()


def test_missing_embeddings_are_an_error(uninterrupted: Path) -> None:
    with pytest.raises(UserError, match=r"fold_embeddings/tiny/baseline/1/7.arrow is missing"):
        ensemble("tiny", "baseline", settings(seeds=(0, 7)), uninterrupted)


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
