"""Errors name missing and damaged inputs of the report."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.report.report_data import ReportData, read_report_data
from unseen.runtime.errors import UserError


@pytest.fixture(scope="module")
def root(make_project: Callable[..., Path]) -> Path:
    return make_project(noise={"good": 0.25})


def read(root: Path) -> ReportData:
    return read_report_data(root, ("birds",), ("good",), (0,))


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
    assert "dvc pull" in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "content", "finding"),
    [
        ("evaluation/birds/good/0/metrics.json", b'{"queries": 3,', r"metrics\.json:1 is not valid JSON"),
        (
            "evaluation/birds/good/0/queries.parquet",
            b"PAR1 no",
            r"queries\.parquet cannot be read",
        ),
    ],
)
def test_names_a_damaged_file(root: Path, name: str, content: bytes, finding: str) -> None:
    path = root / name
    original = path.read_bytes()
    path.write_bytes(content)
    with pytest.raises(UserError, match=finding):
        read(root)
    path.write_bytes(original)
