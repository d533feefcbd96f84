"""The landmark set: three published sets in one set of shards with their tables, and refusal of missing
sets."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tests.data.ingest import landmark_miniature as miniature
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import IngestSettings, LandmarksSource, RoxfordSource
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    miniature.expect(monkeypatch)


def run(root: Path, output: Path, processes: int = 1, **paths: str | None) -> dict[str, Any]:
    source = LandmarksSource(
        **({name: str(root / name) for name in ("sfm120k", *miniature.BENCHMARKS)} | paths)
    )
    return ingest(source, IngestSettings(), output, "landmarks", processes)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return miniature.write(tmp_path_factory.mktemp("raw"))


def test_training_images_are_train_and_benchmarks_are_test(raw: Path, tmp_path: Path) -> None:
    manifest = run(raw, tmp_path / "out")
    shards = Shards(tmp_path / "out", verify=True)
    train, test = shards.rows("train").tolist(), shards.rows("test").tolist()
    assert manifest["counts"] == {
        "train": {"images": 30 + 12, "classes": 9},
        "test": {"images": 20, "classes": 2},
    }
    assert {shards.groups[row] for row in train} == {"train", "validation"}
    for row in train:
        is_validation = shards.class_names[shards.labels[row]].startswith("val/")
        assert is_validation == (shards.groups[row] == "validation")
    assert [shards.groups[row] for row in test] == [None] * 20
    for benchmark in miniature.BENCHMARKS:
        rows = [row for row in test if shards.class_names[shards.labels[row]] == benchmark]
        assert all(shards.sources[row].startswith(f"{benchmark}/") for row in rows)
        assert [shards.is_query[row] for row in rows].count(True) == 2
        assert all(shards.is_query[row] != shards.is_gallery[row] for row in rows)
        assert all(shards.is_query[row] == (shards.box(row) is not None) for row in rows)
    assert manifest["members"]["sfm120k"]["pairs"] == {"train": 24, "test": 9}
    assert manifest["members"]["rparis6k"]["published"] == "Revisited Paris"


def test_pairs_and_ground_truth_refer_to_the_images_of_the_sets(raw: Path, tmp_path: Path) -> None:
    run(raw, tmp_path / "out")
    ingest(RoxfordSource(path=str(raw / "roxford5k")), IngestSettings(), tmp_path / "alone", "roxford5k", 1)
    shards, alone = Shards(tmp_path / "out"), Shards(tmp_path / "alone")
    names = np.array(shards.sources)
    pairs = shards.extra("pairs").to_pydict()
    assert pairs["split"] == ["train"] * 24 + ["validation"] * 9
    assert all(shards.groups[row] == split for row, split in zip(pairs["query"], pairs["split"], strict=True))
    assert (shards.labels[pairs["query"]] == shards.labels[pairs["positive"]]).all()
    truth = shards.extra("ground_truth").to_pylist()
    assert [row["benchmark"] for row in truth] == ["roxford5k"] * 2 + ["rparis6k"] * 2
    for combined, single in zip(truth[:2], alone.extra("ground_truth").to_pylist(), strict=True):
        assert names[combined["query"]] == f"roxford5k/{alone.sources[single['query']]}"
        for kind in ("easy", "hard", "junk"):
            expected = [f"roxford5k/{alone.sources[row]}" for row in single[kind]]
            assert [names[row] for row in combined[kind]] == expected
        assert shards.box(combined["query"]) == alone.box(single["query"])
        assert shards.image(combined["query"]).tobytes() == alone.image(single["query"]).tobytes()


@pytest.mark.slow
def test_bytes_are_equal_for_any_number_of_processes(raw: Path, tmp_path: Path) -> None:
    for processes in (1, 2):
        run(raw, tmp_path / str(processes), processes)
    serial, parallel = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("1", "2")
    )
    assert serial == parallel


def test_accepts_one_benchmark(raw: Path, tmp_path: Path) -> None:
    run(raw, tmp_path / "out", rparis6k=None)
    shards = Shards(tmp_path / "out")
    assert shards.class_names[-1] == "roxford5k"
    assert shards.extra("ground_truth")["benchmark"].to_pylist() == ["roxford5k"] * 2


def test_refuses_a_set_without_a_benchmark() -> None:
    with pytest.raises(ValidationError, match="evaluation needs at least one benchmark"):
        LandmarksSource(roxford5k=None, rparis6k=None)


def test_names_a_missing_set(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty contains no gnd_rparis6k\.pkl"):
        run(raw, tmp_path / "out", rparis6k=str(tmp_path / "empty"))
    assert not (tmp_path / "out").exists()
