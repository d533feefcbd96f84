"""Strict reading of the files, the origin of conditions, and no heavy imports."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

import unseen.experiments.printed
from unseen.experiments.printed.model import PAPERS, papers, published, read, rows
from unseen.runtime.errors import UserError

ROOT = Path(__file__).resolve().parents[3]
PAPER = """
key: irt
name: IRT
title: A title
authors: Someone
venue: somewhere
selection: by chance
left_out: []
tables:
  - table: "1"
    what: a table
    dim: 64
    size: 224
    columns:
      - {dataset: cub, metrics: [recall_at_1, recall_at_2]}
      - {dataset: sop, dim: 128, metrics: [recall_at_1]}
    rows:
      - {name: A, method: ms, values: 50.0 60.0 | 70.0}
"""


def test_a_row_has_all_conditions_of_its_number() -> None:
    row = next(
        row for row in published("cub", "ms") if row.source == "CRT table 5" and row.name == "ResNet-50, MS"
    )
    conditions = (row.backbone, row.dim, row.size, row.setting, row.quoted, row.reduced)
    assert conditions == ("resnet50.tv_in1k", 128, 227, "conventional", False, False)
    assert row.recipe == {"backbone.name": "resnet50.tv_in1k", "dim": 128, "pooling.name": "average"}
    assert {name: (number.text, number.value) for name, number in row.metrics.items()} == {
        "recall_at_1": ("62.64", 62.64),
        "recall_at_2": ("73.73", 73.73),
        "recall_at_4": ("83.20", 83.2),
    }
    spread = next(
        row for row in published("sop", "gsp") if row.setting == "mlrc-separated" and row.name == "MS + GSP"
    )
    assert (spread.metrics["map_at_r"].text, spread.metrics["map_at_r"].deviation, spread.dim) == (
        "40.87",
        "0.19",
        128,
    )


def test_conditions_of_the_row_precede_those_of_columns_and_table() -> None:
    stated = {"DeiT-S, MS": None, "MiT-B1, MS": 227}
    for name, size in stated.items():
        assert {row.size for row in rows() if row.source == "CRT table 5" and row.name == name} == {size}, (
            "null in a row means not stated"
        )
    assert {row.dim for row in rows() if row.source == "GSP table 1"} == {128, 512}


def test_finds_a_baseline_in_the_setting_of_another_recipe() -> None:
    baseline = published("inshop", "proxy_anchor")
    assert [row.method for row in baseline if row.loss_of == "proxy_anchor"] == ["gsp_proxy_anchor"] * 2
    assert baseline[-1].loss_of == "proxy_anchor", "rows of the recipe itself are first"
    assert published("parts", "ms") == published("cub", "no_such_method") == []


def test_rows_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        rows()[0].name = "another"


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("50.0 60.0 | 70.0", "50.0 | 70.0", r"groups of \[2, 1\] cells expected, got \[1, 1\]"),
        ("50.0 60.0 | 70.0", "50.0 6o.0 | 70.0", "'6o.0' is not a valid cell"),
        ("50.0 60.0 | 70.0", "50.0 60.0! | 70.0", "there is no note"),
        ("50.0 60.0 | 70.0", "50.0", "valid string"),
        ("recall_at_2]", "R@2]", "known names"),
        ("recall_at_2]", "recall_at_1]", "each once"),
        ("dataset: sop", "dataset: soup", "soup|'cub'"),
        ("dim: 64", "dimension: 64", "dimension"),
        ("dim: 64", "dim: 0", "greater than or equal"),
        ("name: A, method: ms", "name: A, recipe: {dim: 3}", "need a method"),
        ("key: irt", "key: [irt", "not valid YAML"),
    ],
)
def test_names_a_mistake_in_a_file(old: str, new: str, finding: str) -> None:
    assert read(PAPER, "a.yaml").tables[0].rows[0].name == "A"
    assert old in PAPER
    with pytest.raises(UserError, match=finding) as caught:
        read(PAPER.replace(old, new), "a.yaml")
    assert "a.yaml" in caught.value.what


def test_the_files_are_package_data() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"][
        "package-data"
    ]["unseen"]
    packed = {path for pattern in patterns for path in (ROOT / "pipeline").glob(pattern)}
    folder = Path(unseen.experiments.printed.__file__).resolve().parent
    assert packed >= {folder / f"{key}.yaml" for key in PAPERS} == set(folder.glob("*.yaml"))
    assert [paper.key for paper in papers()] == list(PAPERS)


@pytest.mark.slow
def test_imports_no_heavy_library() -> None:
    heavy = ("torch", "numpy", "ray", "pyarrow", "faiss", "matplotlib")
    imported = f"print([name for name in {heavy} if name in sys.modules])"
    code = f"import sys, unseen.experiments.printed.model as tables; tables.rows(); {imported}"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert process.stdout.strip() == "[]"
