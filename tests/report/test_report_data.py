"""Errors name missing and damaged inputs of the report."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.report.conftest import make_ensembles
from unseen.report.report_data import ReportData, read_json, read_report_data
from unseen.runtime.errors import UserError
from unseen.runtime.sealed import DIGESTS


@pytest.fixture(scope="module")
def root(make_project: Callable[..., Path]) -> Path:
    return make_project(noise={"good": 0.25})


@pytest.fixture(scope="module")
def complete(make_project: Callable[..., Path]) -> Path:
    """With a sweep and an ensemble."""
    folder = make_project(noise={"good": 0.25}, sweeps=("good",))
    make_ensembles(folder, "birds", "good")
    return folder


def read(root: Path, sweeps: Sequence[tuple[str, str]] = (), ensembles: Sequence[str] = ()) -> ReportData:
    return read_report_data(root, ("birds",), ("good",), (0,), sweeps, ensembles)


@pytest.mark.parametrize(
    "name",
    [
        "evaluation/birds/good/0/metrics.json", "history/birds/good/0.csv",
        "models/birds/good/0/last.safetensors", "analysis/birds/good/0.json",
        "evaluation/birds/good/0/queries.parquet",
    ],
)  # fmt: skip
def test_names_a_missing_file(root: Path, name: str) -> None:
    path = root / name
    content = path.read_bytes()
    assert len(read(root).runs) == 1
    path.unlink()
    with pytest.raises(UserError, match=re.escape(name) + " is missing") as caught:
        read(root)
    path.write_bytes(content)
    assert "dvc repro" in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("evaluation/birds/good/0/metrics.json", "evaluate@birds-good-0"),
        ("evaluation/birds/good/0/queries-last.parquet", "evaluate@birds-good-0"),
        ("history/birds/good/0.csv", "train@birds-good-0"),
        ("analysis/birds/good/0.json", "analyze@birds-good-0"),
        ("metrics/birds/good/ensemble.json", "ensemble@birds-good"),
        ("sweep/birds/good/trials.csv", "sweep@birds-good"),
        ("sweep/birds/good/best.json", "sweep@birds-good"),
    ],
)
def test_a_changed_digit_is_refused_with_the_stage_that_computes_it(
    complete: Path, name: str, stage: str
) -> None:
    path = complete / name
    original = path.read_bytes()
    digits = [place for place, octet in enumerate(original) if chr(octet).isdigit()]
    changed = bytearray(original)
    changed[digits[len(digits) // 2]] ^= 1
    path.write_bytes(changed)
    with pytest.raises(UserError, match=re.escape(name) + " differs from its sha256") as caught:
        read(complete, [("birds", "good")], ["good"])
    path.write_bytes(original)
    assert caught.value.remedy == (
        f"Run `unseen doctor --verify`, then `dvc repro --force --single-item {stage}`."
    )


def test_a_file_of_another_evaluation_is_refused(make_project: Callable[..., Path]) -> None:
    """So the means of per-query files are the metrics beside them, which no other check compares."""
    root = make_project(noise={"good": 0.8}, seeds=(0, 1))
    replaced = []
    for path in sorted((root / "evaluation/birds/good/0").iterdir()):
        own, other = path.read_bytes(), Path(root, "evaluation/birds/good/1", path.name).read_bytes()
        path.write_bytes(other)
        if other != own:
            replaced.append(path.name)
            with pytest.raises(UserError, match="differs from its sha256"):
                read(root)
        path.write_bytes(own)
    assert {DIGESTS, "metrics.json", "queries.parquet", "queries-last.parquet"} <= set(replaced)


@pytest.mark.parametrize("name", ["history/birds/good/0.csv", "analysis/birds/good/0.json", DIGESTS])
def test_results_of_an_earlier_version_have_no_digest_and_are_refused(complete: Path, name: str) -> None:
    path = complete / "evaluation/birds/good/0" / name if name == DIGESTS else complete / name
    original = path.read_bytes()
    path.write_bytes(b"iteration,loss\n1,2\n" if name.endswith(".csv") else b"{}")
    with pytest.raises(UserError, match=r"has none|is missing|differs") as caught:
        read(complete)
    path.write_bytes(original)
    assert "dvc repro --force --single-item" in caught.value.remedy


@pytest.mark.parametrize(
    ("content", "message"),
    [(b'{"a":\n 1', r"x\.json:2 is not valid JSON"), (b'"\xff"', r"x\.json is not UTF-8 text")],
)
def test_a_file_that_is_no_json_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_json(tmp_path / "x.json")
