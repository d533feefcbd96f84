"""The table of a study: our means beside the printed numbers, differences, conditions, rank correlation."""

import re
import statistics
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from scipy.stats import spearmanr, ttest_rel

from tests.report.conftest import ATTRIBUTES, MEASURED
from unseen.config.inputs import Form, StudyInputs, StudyRowInputs
from unseen.evaluation.statistics.better import holm
from unseen.experiments.catalogue import printed as printed_rows
from unseen.experiments.catalogue import studies
from unseen.experiments.printed.model import Number
from unseen.methods.settings import Cost
from unseen.report.comparison import control_of
from unseen.report.report_data import ReportData
from unseen.report.sections.published import unstated
from unseen.report.study_cells import Cell, Column, Line, Ours, Point, StudyTable, outcome_of
from unseen.report.study_document import write_document, write_studies
from unseen.report.study_figures import charts, grouped_bars
from unseen.report.study_files import write
from unseen.report.study_lines import Numbers, printed_lines, printed_of
from unseen.report.study_table import gains_of, study_table
from unseen.report.summary import Summary
from unseen.report.svg import GRID, INK, MUTED, PAPER, SERIES

PRINTED = ["75.76", "75.57", "75.44", "75.96"]  # CRT table 8, Recall@1
R1 = Column("recall_at_1")


def table_of(inputs: ReportData, dataset: str) -> StudyTable:
    return study_table(inputs, dataset, inputs.studies[0])


def our_recalls(inputs: ReportData, dataset: str) -> list[list[float]]:
    return [
        [100 * run.metrics["recall_at_1"] for run in inputs.of(dataset, method)] for method in inputs.methods
    ]


def test_a_line_has_the_printed_number_ours_and_the_difference(study_inputs: ReportData) -> None:
    table = table_of(study_inputs, "cub")
    assert table.is_printed
    assert [column.metric for column in table.columns] == [f"recall_at_{k}" for k in (1, 2, 4, 8)]
    assert [line.label for line in table.lines] == ["K1 = 1", "K1 = 4", "K1 = 16", "K1 = 64"]
    assert [line.method for line in table.lines] == list(study_inputs.methods)
    for line, printed, values in zip(table.lines, PRINTED, our_recalls(study_inputs, "cub"), strict=True):
        cell = line.cells[0]
        assert cell.printed is not None
        assert cell.ours is not None
        assert cell.printed.text == printed
        assert cell.ours.value == pytest.approx(statistics.fmean(values))
        assert cell.ours.deviation == pytest.approx(statistics.stdev(values))
        assert cell.difference == pytest.approx(statistics.fmean(values) - float(printed))
        assert line.cells[3].ours is None, "Recall@8 is not measured"


def test_a_differing_condition_is_listed(study_inputs: ReportData) -> None:
    lines = table_of(study_inputs, "cub").lines
    assert all("128 dimensions in the paper, 12 here" in line.differences for line in lines)
    assert not any("protocol" in text or "prototypes" in text for line in lines for text in line.differences)


def test_the_rank_correlation_is_that_of_the_printed_order(study_inputs: ReportData) -> None:
    ours = [statistics.fmean(values) for values in our_recalls(study_inputs, "cub")]
    (rank,) = [rank for rank in table_of(study_inputs, "cub").ranks if rank.column == R1]
    assert rank.rows == 4
    assert rank.rho == pytest.approx(spearmanr([float(text) for text in PRINTED], ours).statistic)


def test_another_data_set_is_compared_by_the_order_only(study_inputs: ReportData) -> None:
    table = table_of(study_inputs, "birds")
    assert not table.is_printed
    reference = Column("recall_at_1", "selected", "cub")
    assert table.columns == (R1, Column("map_at_r"), reference)
    assert [line.cells[2].printed.text for line in table.lines if line.cells[2].printed] == PRINTED
    first, *rows = study_inputs.studies[0].rows
    own = study_inputs.studies[0].model_copy(
        update={"rows": (first.model_copy(update={"printed": None}), *rows)}
    )
    lines = study_table(study_inputs, "birds", own).lines
    assert [line.cells[2].printed is None for line in lines] == [True, False, False, False]
    assert all(cell.difference is None for line in table.lines for cell in line.cells)
    ours = [statistics.fmean(values) for values in our_recalls(study_inputs, "birds")]
    (rank,) = table.ranks
    assert rank.column == reference
    assert rank.rho == pytest.approx(spearmanr([float(text) for text in PRINTED], ours).statistic)


def test_points_have_the_values_of_the_axis(study_inputs: ReportData) -> None:
    points = table_of(study_inputs, "cub").points
    assert [point.place for point in points] == [(1.0,), (4.0,), (16.0,), (64.0,)]
    assert [point.printed for point in points] == [float(text) for text in PRINTED]
    assert {point.series for point in points} == {"crt"}
    assert all(point.printed is None for point in table_of(study_inputs, "birds").points)


def test_numbers_of_ensembles_come_first_and_are_those_of_the_chart(study_inputs: ReportData) -> None:
    study = study_inputs.studies[0].model_copy(update={"metric": "map_at_r"})
    numbers = [
        {"separated_map_at_r": value / 10, "separated_map_at_r_std": value / 100} for value in range(4)
    ]
    ensembles = {("birds", row.method): each for row, each in zip(study.rows, numbers, strict=True)}
    table = study_table(replace(study_inputs, ensembles=ensembles), "birds", study)
    assert table.columns[:2] == (Column("map_at_r", "separated"), Column("map_at_r"))
    assert [line.cells[0].ours for line in table.lines] == [point.ours for point in table.points]
    assert [point.ours.value for point in table.points] == pytest.approx([0, 10, 20, 30])
    assert [point.ours.deviation for point in table.points] == pytest.approx([0, 1, 2, 3])
    one_without = replace(study_inputs, ensembles=dict(list(ensembles.items())[1:]))
    other = study_table(one_without, "birds", study)
    assert other.columns[0] == Column("map_at_r")
    assert (table.is_of_ensembles, other.is_of_ensembles) == (True, False)
    assert not table.verdicts, "ensembles share trainings"
    assert len(other.verdicts) == 3


def test_rows_are_compared_with_the_control_as_one_family(study_inputs: ReportData) -> None:
    table = table_of(study_inputs, "cub")
    control, *others = study_inputs.methods
    assert {(pair.first, pair.second, pair.metric) for pair in table.verdicts.values()} == {
        (method, control, "recall_at_1") for method in others
    }
    verdicts = [table.verdicts[method].verdict for method in others]
    p_values = holm(np.array([verdict.comparison.p_value for verdict in verdicts]))
    assert [verdict.adjusted for verdict in verdicts] == pytest.approx(p_values)
    values = {line.method: line.cells[0].ours.value for line in table.lines if line.cells[0].ours}
    for method, verdict in zip(others, verdicts, strict=True):
        assert 100 * verdict.comparison.difference == pytest.approx(values[method] - values[control])
    assert table.control == "K1 = 1"
    assert control_of(study_inputs.studies, study_inputs.methods) == control
    assert control_of(study_inputs.studies, study_inputs.methods[1:]) is None


@pytest.mark.parametrize("metric", ["embedding_density", "recall_at_2"])
def test_a_metric_without_values_of_queries_is_compared_over_the_seeds(
    study_inputs: ReportData, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, *others = study_inputs.methods
    numbers = {
        method: [place, place**1.5 + 0.1 * place] for place, method in enumerate((control, *others), 1)
    }
    monkeypatch.setattr(
        Numbers, "by_seed", lambda self, method, name: numbers[method] if name == metric else []
    )
    study = study_inputs.studies[0].model_copy(update={"metric": metric})
    table = study_table(study_inputs, "cub", study)
    p_values = holm(np.array([ttest_rel(numbers[method], numbers[control]).pvalue for method in others]))
    assert list(table.verdicts) == others
    for method, p_value in zip(others, p_values, strict=True):
        verdict = table.verdicts[method].verdict
        assert verdict.comparison.difference == pytest.approx(
            statistics.fmean(numbers[method]) - statistics.fmean(numbers[control])
        )
        assert verdict.adjusted == pytest.approx(p_value)
        assert verdict.comparison.classes == 0
        assert verdict.outcome == "open"
    monkeypatch.setattr(Numbers, "by_seed", lambda self, method, name: numbers[method][:1])
    assert not study_table(study_inputs, "cub", study).verdicts, "one seed"
    monkeypatch.setattr(
        Numbers, "by_seed", lambda self, method, name: numbers[method][: 1 + (method != control)]
    )
    assert not study_table(study_inputs, "cub", study).verdicts, "a training without a value"


def test_values_of_seeds_are_those_of_the_runs(study_inputs: ReportData, inputs: ReportData) -> None:
    method = study_inputs.methods[1]
    runs = study_inputs.of("cub", method)
    numbers = Numbers(study_inputs, "cub", Mock(spec=Summary))
    assert numbers.by_seed(method, "recall_at_2") == [run.metrics["recall_at_2"] for run in runs]
    assert numbers.by_seed(method, "roxford5k_medium_map") == []
    assert numbers.of(method, Column("gradient_covariance")) is None
    (run,) = inputs.of("birds", MEASURED)
    measured = Numbers(inputs, "birds", Mock(spec=Summary)).of(MEASURED, Column("gradient_covariance"))
    assert measured is not None
    assert measured.value == pytest.approx(
        statistics.fmean(row["gradient_covariance"] for row in run.history)
    )
    assert measured.deviation is None


def test_columns_of_ensembles_that_did_not_run_have_no_number_of_ours(study_inputs: ReportData) -> None:
    study = study_inputs.studies[0].model_copy(update={"paper": "gsp", "table": "1", "item": "table 1"})
    table = study_table(study_inputs, "cub", study)
    assert {column.kind for column in table.columns} == {"separated", "concatenated"}
    printed = [line for line in table.lines if line.method is None]
    assert printed
    assert all(cell.printed for line in printed for cell in line.cells), "both kinds are in one line"
    assert len(table.lines) == len(printed) + 4
    assert not any(cell.ours for line in table.lines for cell in line.cells)


def test_of_a_number_of_order_one_no_row_is_better(study_inputs: ReportData) -> None:
    (pair, *_) = table_of(study_inputs, "cub").verdicts.values()
    worse = replace(pair, verdict=pair.verdict._replace(outcome="worse"))
    assert outcome_of(worse) == "worse"
    assert outcome_of(replace(worse, metric="spectral_decay")) == "lower"


def test_a_series_has_the_name_of_the_paper_if_its_rows_have_one(study_inputs: ReportData) -> None:
    study = study_inputs.studies[0]
    named = [row.model_copy(update={"label": f"CRT, {row.label}"}) for row in study.rows]
    points = study_table(study_inputs, "cub", study.model_copy(update={"rows": tuple(named)})).points
    assert {point.series for point in points} == {"CRT"}


def test_a_series_without_a_name_has_the_fields_that_vary(study_inputs: ReportData) -> None:
    study = study_inputs.studies[0]
    rows = [
        row.model_copy(update={"recipe": {**row.recipe, **dict.fromkeys(fields, str(place))}})
        for place, row in enumerate(study.rows)
        for fields in [("backbone.name", "input.size", "pooling.prototypes")]  # CRT has no pooling
    ]
    size = study_inputs.of("cub")[0].recipe["recipe"]["input"]["size"]
    points = study_table(study_inputs, "cub", study.model_copy(update={"rows": tuple(rows)})).points
    assert {point.series for point in points} == {f"mit_b1, size {size}"}


@pytest.mark.parametrize("dataset", ["sop", "inshop"])
def test_rows_with_one_printed_name_have_their_conditions_on_every_data_set(
    study_inputs: ReportData, dataset: str
) -> None:
    study = study_inputs.studies[0].model_copy(update={"paper": "irt", "table": "2", "rows": ()})
    printed = [row for row in printed_of(study) if row.dataset == dataset]
    lines = printed_lines(Mock(spec=Numbers), study, printed, (R1,))
    labels = [line.label for line in lines]
    assert len(set(labels)) == len(labels) == len(printed)
    assert {"MS", "NSoftmax, 512 dimensions", "NSoftmax, 2048 dimensions", "HTL (not trained)"} <= set(labels)
    assert {"XBM, 512 dimensions, googlenet", "XBM, 512 dimensions, bn_inception"} <= set(labels)
    assert any(map(unstated, printed))
    assert {line.unstated for line in lines} == {""}, "conditions are compared with trained rows only"


def test_a_column_has_the_kind_of_its_numbers_and_another_data_set_in_its_title() -> None:
    titles = [
        Column("map_at_r").title,
        Column("map_at_r", "reduced").title,
        Column("map_at_r", "ensemble", "cub").title,
    ]
    assert titles == ["MAP@R", "reduced MAP@R", "cub: ensemble MAP@R"]


def test_an_unreliable_number_has_no_difference() -> None:
    assert Cell(Number(text="45.53", reliable=False), Ours(40.0, None)).difference is None
    assert Cell(None, Ours(40.0, None)).difference is None
    assert Cell(Number(text="45.5"), None).difference is None


@pytest.mark.slow
def test_writes_the_figure_in_two_formats(study_inputs: ReportData, tmp_path: Path) -> None:
    table = table_of(study_inputs, "cub")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write(table, study_inputs, tmp_path / name)
    files = {path.name: path.read_bytes() for path in (tmp_path / "first").iterdir()}
    assert set(files) == {"cub.svg", "cub.pdf"}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "second").iterdir()}
    assert files["cub.pdf"].startswith(b"%PDF")
    svg = files["cub.svg"].decode()
    assert SERIES[0] in svg
    assert "var(--" not in svg, "a variable of the page"


FORMS: dict[Form, str] = {
    "bars": "cub",
    "epochs": "cub-epochs",
    "histograms": "cub-histograms",
    "energy": "cub-energy",
    "hulls": "cub-hulls",
    "positions": "cub-positions",
    "gallery": "cub-gallery",
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_writes_the_figure_of_a_paper_in_its_form(
    form: Form, study_inputs: ReportData, tmp_path: Path
) -> None:
    study = study_inputs.studies[0].model_copy(update={"figures": (form,), "axes": {}})
    write(study_table(study_inputs, "cub", study), study_inputs, tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert all(content.startswith(b"%PDF") for name, content in files.items() if name.endswith(".pdf"))
    assert {f"{FORMS[form]}.svg", f"{FORMS[form]}.pdf"} <= set(files)
    svg = "".join(content.decode() for name, content in files.items() if name.endswith(".svg"))
    for row in study.rows:
        assert f">{row.label}<" in svg
        assert row.method not in svg


def test_every_figure_with_rows_is_drawn() -> None:
    items = [item.study for item in studies().values() if item.is_published and item.study.has_rows]
    figures = [study for study in items if study.item.startswith("figure")]
    assert len(figures) > 15
    assert all(study.figures or study.numeric_axes or study.baselines for study in figures)
    assert {form for study in items for form in study.figures} == {*FORMS, "attributes"}


def test_print_colours_are_those_of_the_page() -> None:
    css = (Path(__file__).resolve().parents[2] / "pipeline/report/page.css").read_text(encoding="utf-8")
    light = css[: css.index("prefers-color-scheme")]
    colours = {"ink": INK, "muted": MUTED, "grid": GRID, "paper": PAPER}
    colours |= {f"series-{place}": colour for place, colour in enumerate(SERIES)}
    for name, colour in colours.items():
        assert f"--{name}: {colour};" in light


def grid_table(axes: dict[str, str], points: list[Point]) -> StudyTable:
    row = StudyRowInputs(method="m", label="l", like="ms", recipe={}, printed=None)
    study = StudyInputs(
        name="mine", title="t", paper="", item="", table=None, datasets=("parts",), metric="recall_at_1",
        axes=axes, tied=(), baselines={}, gain="percent", contrasts=(), figures=(), shows="", missing="",
        rows=(row,),
    )  # fmt: skip
    return StudyTable(study, "parts", (R1,), (), (), tuple(points), False)


def test_two_axes_give_a_heat_map_per_series() -> None:
    points = [
        Point(series, (beta, weight), Ours(10 * beta + weight, None), 50.0 if series == "a" else None)
        for series in ("a", "b")
        for beta in (1.0, 73.0)
        for weight in (0.0, 0.25, 1.0)
    ]
    table = grid_table({"loss.margin": "beta", "koleo_weight": "lambda"}, points)
    first, second = charts(table, "x")
    assert first.count("fill: var(--series-0)") == second.count("fill: var(--series-0)") == 6
    assert first.count(">50.0<") == 6
    assert second.count(">50.0<") == 0
    assert "(73, 0.25) 730.25" in second
    assert all(f">{value}<" in chart for chart in (first, second) for value in ("73", "0.25"))
    opacities = [float(part.split(";")[0].split('"')[0]) for part in second.split("opacity: ")[1:]]
    assert len(opacities) == 6
    assert all(low < high for low, high in pairwise(opacities)), "a higher mean is darker"


def test_one_axis_gives_a_line_per_series() -> None:
    points = [
        Point(series, (place,), Ours(place, 1.0), None) for series in ("a", "b") for place in (1.0, 2.0, 64.0)
    ]
    (chart,) = charts(grid_table({"dim": "D"}, points), "x")
    assert "a: 1 1.00, 2 2.00, 64 64.00; b: 1 1.00" in chart
    assert ">64<" in chart, "each value of the axis has a tick"
    narrow = [Point("a", (place,), Ours(place, 1.0), None) for place in (0.0, 0.3, 1.0)]
    (chart,) = charts(grid_table({"dim": "D"}, narrow), "x")
    assert ">0.3<" in chart
    many = [Point("a", (float(place),), Ours(0.5, 1.0), None) for place in range(30)]
    (chart,) = charts(grid_table({"dim": "D"}, many), "x")
    assert 2 < len(set(re.findall(r">(\d+)</text>", chart))) < 10
    assert charts(grid_table({}, points), "x") == []


@pytest.mark.slow
def test_the_attributes_of_a_row_are_a_figure(inputs: ReportData, tmp_path: Path) -> None:
    table = grid_table({}, [])
    row = table.study.rows[0].model_copy(update={"method": ATTRIBUTES})
    study = table.study.model_copy(update={"figures": ("attributes",), "rows": (row,)})
    write(replace(table, study=study, dataset="birds"), inputs, tmp_path)
    assert (tmp_path / "birds-attributes.svg").is_file()


def test_bars_of_several_data_sets_are_in_one_figure(study_inputs: ReportData, tmp_path: Path) -> None:
    study = study_inputs.studies[0].model_copy(update={"figures": ("bars",)})
    write_studies(replace(study_inputs, studies=(study,)), tmp_path)
    assert (tmp_path / "crt-table-8/bars.svg").is_file()
    assert (tmp_path / "crt-table-8/bars.pdf").is_file()
    tables = [study_table(study_inputs, dataset, study) for dataset in ("cub", "birds")]
    (axes,) = grouped_bars(tables).axes
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    heights = [bar.get_height() for bar in bars]
    ours = [line.cells[0].ours.value for table in tables for line in table.lines if line.cells[0].ours]
    assert heights == pytest.approx(ours)
    middles = [bar.get_x() + bar.get_width() / 2 for bar in bars]
    assert middles == pytest.approx([-0.3, -0.1, 0.1, 0.3, 0.7, 0.9, 1.1, 1.3])
    assert [line.get_ydata()[0] for line in axes.lines if line.get_marker() == "o"] == [*map(float, PRINTED)]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["cub", "birds"]
    assert len({patch.get_facecolor() for patch in axes.patches}) == 4


def test_printed_costs_of_networks_are_columns_beside_ours(
    study_inputs: ReportData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = study_inputs.methods
    names = {first: "resnet50.tv_in1k", second: "resnet18"}
    monkeypatch.setattr(
        Numbers,
        "recipe",
        lambda self, method: {"backbone": {"name": names.get(method, "vit")}, "input": {"size": 224}},
    )
    study = study_inputs.studies[0].model_copy(update={"paper": "irt", "item": "table 1", "table": None})
    costs = {"cub": {method: Cost(parameters=24_600_000, flops=8_240_000_000) for method in (first, second)}}
    table = study_table(replace(study_inputs, costs=costs), "cub", study)
    titles = [column.title for column in table.columns]
    assert titles[-3:] == ["million parameters", "GFLOPs", "ImageNet top-1"]
    printed = [
        [cell.printed.text if cell.printed else "" for cell in line.cells[-3:]] for line in table.lines
    ]
    assert printed == [["23", "8.3", "76.2"], ["", "", ""], ["", "", ""], ["", "", ""]]
    ours = [[cell.ours.value if cell.ours else None for cell in line.cells[-3:]] for line in table.lines]
    assert ours == [[24.6, 8.24, None], [24.6, 8.24, None], [None] * 3, [None] * 3]
    write_document([table], tmp_path)
    text = (tmp_path / "table.csv").read_text(encoding="utf-8")
    assert "cub GFLOPs printed" in text
    assert text.splitlines()[1].count("8.3") == 1
    printed_only = study_table(study_inputs, "cub", study.model_copy(update={"table": "2"})).lines[0]
    assert printed_only.method is None
    assert len(printed_only.cells) > 3
    assert all(cell == Cell(None, None) for cell in printed_only.cells[-3:])
    eighth = study_table(study_inputs, "cub", study.model_copy(update={"item": "table 8"}))
    assert [column.title for column in eighth.columns][-1:] == ["GFLOPs"]
    assert not any("GFLOPs" in column.title for column in table_of(study_inputs, "cub").columns)


def test_gains_are_relative_to_the_baseline(study_inputs: ReportData, tmp_path: Path) -> None:
    study = study_inputs.studies[0].model_copy(
        update={"baselines": {"K1 = 4": "K1 = 1", "K1 = 64": "K1 = 16"}}
    )
    table = study_table(study_inputs, "cub", study)
    (column,) = table.gains
    assert column == R1
    ours = [statistics.fmean(values) for values in our_recalls(study_inputs, "cub")]
    first, second = table.gains[R1]
    assert (first.label, first.baseline) == ("K1 = 4", "K1 = 1")
    assert first.ours == pytest.approx(100 * (ours[1] / ours[0] - 1))
    assert first.printed == pytest.approx(100 * (75.57 / 75.76 - 1))
    assert second.printed == pytest.approx(100 * (75.96 / 75.44 - 1))
    without = study_table(study_inputs, "birds", study).gains[R1]
    assert [gain.printed for gain in without] == [None, None]
    # the chart over the axis, then that of the gains
    assert len(charts(table, "name")) == 2
    assert f"K1 = 4 over K1 = 1 {first.ours:+.1f}" in charts(table, "name")[1]
    write(table, study_inputs, tmp_path)
    names = ["cub-2.pdf", "cub-2.svg", "cub.pdf", "cub.svg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_gains_in_points_are_below_every_column(study_inputs: ReportData) -> None:
    study = study_inputs.studies[0].model_copy(
        update={"baselines": {"K1 = 64": None, "K1 = 4": "K1 = 1"}, "gain": "points"}
    )
    table = study_table(study_inputs, "cub", study)
    assert set(table.gains) == set(table.columns)
    ours = [statistics.fmean(values) for values in our_recalls(study_inputs, "cub")]
    highest, second = table.gains[R1]
    assert highest.title == "K1 = 64 over the best other row"
    assert highest.text(highest.printed) == "+0.20", "75.96 is compared with 75.76"
    assert highest.ours == pytest.approx(ours[3] - max(ours[:3]))
    assert second.text(second.printed) == "-0.19"
    recall_at_8 = Column("recall_at_8")
    assert [gain.ours for gain in table.gains[recall_at_8]] == [None, None], "Recall@8 is not measured"
    assert len(charts(table, "name")) == 1, "the chart over the axis; none of the differences"


def test_gains_of_the_published_studies_are_those_that_crt_prints(study_inputs: ReportData) -> None:
    """The rows `Gain` of its tables 3 to 5, which pipeline/experiments/printed does not contain."""
    printed = {
        ("crt-table-3", "cub"): [4.28, 2.18, 1.51, 0.94],
        ("crt-table-3", "cars"): [0.76, 0.92, 0.29, -0.17],
        ("crt-table-4", "sop"): [-1.09, 0.26, 0.16, 0.11],
        ("crt-table-4", "inshop"): [1.68, 0.87, 0.58, 0.45],
        ("crt-table-5", "cars"): [2.01, 1.59, 1.53, 0.79, 0.88, 0.45, 3.37, 2.13, 1.47, 2.06, 1.61, 1.14,
                                  2.24, 1.94, 1.24],
    }  # fmt: skip
    catalogue = studies()
    for (name, dataset), expected in printed.items():
        study = catalogue[name].study
        rows = [row for row in printed_rows(catalogue[name]) if row.dataset == dataset]
        columns = tuple(Column(metric) for metric in rows[-1].metrics)
        lines = [
            Line(row.name, None, tuple(Cell(row.metrics.get(column.metric), None) for column in columns))
            for row in rows
        ]
        inputs = study_inputs.studies[0].model_copy(update={"baselines": study.baselines, "gain": study.gain})
        gains = gains_of(inputs, columns, lines)
        pairs = range(len(study.baselines))
        assert [gains[c][pair].printed for pair in pairs for c in columns] == pytest.approx(expected), name
