"""The table of a study over all data sets: one file per format, columns in the printed order."""

import csv
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from unseen.report.report_data import ReportData
from unseen.report.study_document import FILES, PARTS, write_document
from unseen.report.study_table import study_table


@pytest.fixture
def documents(study_inputs: ReportData, tmp_path: Path) -> dict[str, str]:
    study = study_inputs.studies[0].model_copy(update={"baselines": {"K1 = 4": "K1 = 1"}})
    tables = [study_table(study_inputs, dataset, study) for dataset in study_inputs.datasets]
    folder = tmp_path / "files"
    folder.mkdir()
    write_document(tables, folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    return {path.suffix: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_the_numbers_of_all_data_sets_are_in_one_table(
    documents: dict[str, str], study_inputs: ReportData
) -> None:
    rows = list(csv.DictReader(documents[".csv"].splitlines()))
    assert [row["row"] for row in rows] == ["K1 = 1", "K1 = 4", "K1 = 16", "K1 = 64", "K1 = 4 over K1 = 1"]
    head = documents[".csv"].splitlines()[0].split(",")
    assert head[1:9] == ["method", *(f"cub Recall@1 {part}" for part in PARTS)]
    own = [name.removeprefix("birds Recall@1 ") for name in head if name.startswith("birds Recall@1")]
    assert own[:4] == ["ours", "deviation", "low", "high"], "nothing is printed for this data set"
    assert own[4:] == [f"against K1 = 1 {part}" for part in ("difference", "low", "high", "p", "verdict")]
    assert [row["method"] for row in rows] == [*study_inputs.methods, ""]
    for row, method in zip(rows, study_inputs.methods, strict=False):
        for dataset in study_inputs.datasets:
            recalls = [100 * run.metrics["recall_at_1"] for run in study_inputs.of(dataset, method)]
            name, mean = f"{dataset} Recall@1", statistics.fmean(recalls)
            assert float(row[f"{name} ours"]) == pytest.approx(mean, abs=0.0051)
            assert float(row[f"{name} low"]) < mean < float(row[f"{name} high"])
    difference = float(rows[0]["cub Recall@1 ours"]) - 75.76
    assert rows[0]["cub Recall@1 printed"] == "75.76"
    assert float(rows[0]["cub Recall@1 difference"]) == pytest.approx(difference, abs=0.011)
    against = "cub Recall@1 against K1 = 1"
    assert [row[f"{against} verdict"] for row in rows] == ["", *3 * ["open"], ""]
    ours = [float(row["cub Recall@1 ours"]) for row in rows[:4]]
    for row, mean in zip(rows[1:4], ours[1:], strict=True):
        assert float(row[f"{against} difference"]) == pytest.approx(mean - ours[0], abs=0.011)
    assert rows[-1]["cub Recall@1 printed"] == f"{100 * (75.57 / 75.76 - 1):+.2f}%"


def test_a_caption_names_only_what_the_table_has(
    documents: dict[str, str], study_inputs: ReportData, tmp_path: Path
) -> None:
    assert "Printed, and ours as the mean" in documents[".tex"]
    study = study_inputs.studies[0]
    own = study.model_copy(
        update={"table": None, "rows": tuple(row.model_copy(update={"printed": None}) for row in study.rows)}
    )
    write_document([study_table(study_inputs, study_inputs.datasets[-1], own)], tmp_path)
    for name in ("table.tex", "table.md"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "Nothing is printed: ours as the mean over seeds" in text
        assert "difference from the printed" not in text


def test_the_best_numbers_are_bold_and_latex_has_a_caption(documents: dict[str, str]) -> None:
    latex, page = documents[".tex"], documents[".md"]
    assert r"\caption{CRT table 8: " in latex
    assert r"{K1 = 64} & \textbf{75.96} & " in latex, "the highest printed Recall@1; [ may start a name"
    assert "| K1 = 64 | **75.96** | " in page
    assert r"\textbf{75.76}" not in latex
    assert r"\%" in latex.split("over K1 = 1", 1)[1], "no comment of LaTeX"
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert {line.count(" & ") for line in latex.splitlines() if line.startswith("{K1")} == {
        table[0].count("|") - 2
    }


def test_text_is_escaped_and_a_label_is_no_formula(study_inputs: ReportData, tmp_path: Path) -> None:
    table = study_table(study_inputs, "cub", study_inputs.studies[0])
    study = table.study.model_copy(update={"title": "a\n\\input{x}"})
    labels = ("=1+1", "50% of a_b & c", "50% of a_b & c")
    lines = tuple(replace(line, label=label) for line, label in zip(table.lines, labels, strict=False))
    write_document([replace(table, study=study, lines=lines)], tmp_path)
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        assert [row[0] for row in csv.reader(file)][1:] == ["'=1+1", labels[1], f"{labels[1]} (2)"]
    latex = (tmp_path / "table.tex").read_text(encoding="utf-8")
    assert r"a \textbackslash{}input\{x\}. Printed" in latex
    assert r"{50\% of a\_b \& c} & 75.57 & " in latex
    assert r"\begin{tabular}{lrrrrrrrr}" in latex
