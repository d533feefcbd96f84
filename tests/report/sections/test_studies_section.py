"""Studies: a table, a chart, the rank correlation, and the files beside the page."""

from dataclasses import replace

import pytest

from tests.report.page_reader import Element, read_page
from unseen.report.dataset import DataSet, GallerySize
from unseen.report.page import template_environment
from unseen.report.pictures import Pictures
from unseen.report.report_data import ReportData
from unseen.report.sections import studies
from unseen.report.study_cells import Column, Rank
from unseen.report.study_document import FILES
from unseen.report.study_table import study_table


def section(inputs: ReportData, dataset: str) -> Element:
    content = studies.content(DataSet(inputs, dataset, "set-0", GallerySize(1, 1, 8)))
    assert content is not None
    template = template_environment(Pictures()).get_template("studies.html")
    return read_page(template.render(dataset={"name": dataset}, **content))


@pytest.mark.slow
def test_the_section_has_a_table_a_chart_and_the_files(study_inputs: ReportData) -> None:
    for dataset, last in (("cub", "Recall@8"), ("birds", "cub: Recall@1")):
        card = section(study_inputs, dataset)
        assert card.first("h3").text() == "Number of prototypes of the first branch CRT table 8"
        heads = [head.text() for head in card.first("thead").all("th")]
        assert heads[-2:] == [last, "Recall@1 against K1 = 1"]
        assert [row.all("td")[-1].text() == "–" for row in card.first("tbody").all("tr")] == [
            True,
            *3 * [False],
        ]
        assert "the 3 comparisons are one family (Holm)" in card.text()
        assert len(card.first("tbody").all("tr")) == 4
        assert len(card.all("svg", role="img")) == 1
        names = [*FILES, f"{dataset}*.svg"]
        assert [code.text() for code in card.all("code")] == [f"studies/crt-table-8/{name}" for name in names]
        assert "Rank correlation of the printed order and ours (Spearman)" in card.text()
        assert "mean ± deviation over seeds" in card.text()
    row = section(study_inputs, "cub").first("tbody").all("tr")[0]
    ours = study_table(study_inputs, "cub", study_inputs.studies[0]).lines[0].cells[0]
    assert row.first("th").text() == "K1 = 1"
    assert row.all("span")[0].text() == "75.76"
    assert ours.ours is not None
    assert row.all("b")[0].text() == f"{ours.ours.value:.1f}"


def test_the_small_numbers_of_a_heat_map_are_explained_where_the_paper_prints_them(
    study_inputs: ReportData,
) -> None:
    assert "the small number is" not in section(study_inputs, "cub").text(), "one axis"
    study = study_inputs.studies[0].model_copy(
        update={"axes": study_inputs.studies[0].axes | {"batch.classes": "C"}}
    )
    inputs = replace(study_inputs, studies=(study,))
    explained = {name: "the small number is" in section(inputs, name).text() for name in ("cub", "birds")}
    assert explained == {"cub": True, "birds": False}


def test_a_metric_of_order_one_is_compared_over_seeds_and_ensembles_are_not_compared(
    study_inputs: ReportData,
) -> None:
    (study,) = study_inputs.studies
    metric = study.metric
    assert "in points" in section(study_inputs, "cub").text()
    study = study.model_copy(update={"metric": "embedding_density"})
    inputs = replace(study_inputs, studies=(study,))
    analysed = {
        (dataset, row.method): [{"row": {"embedding_density": value + 0.01 * number}} for value in (0.5, 0.6)]
        for number, row in enumerate(study.rows)
        for dataset in ("cub", "birds")
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReportData, "analysed", lambda self, dataset, method: analysed[dataset, method])
        card = section(inputs, "birds")
    assert "with its interval and the verdict of the rule for better, over the seeds" in card.text()
    assert "in points" not in card.first("table").text()
    assert [row.all("td")[-1].text() for row in card.first("tbody").all("tr")][1:] == [
        f"+0.0{number}0+0.0{number}0 to +0.0{number}0 higher, p < 0.001" for number in (1, 2, 3)
    ]
    numbers = {f"separated_{metric}": 0.5, f"separated_{metric}_std": 0.1}
    ensembles = {("birds", row.method): numbers for row in study.rows}
    card = section(replace(study_inputs, ensembles=ensembles), "birds")
    assert "The rows have no verdict: their numbers are means over ensembles" in card.text()


def test_gains_are_rows_below_the_table(study_inputs: ReportData) -> None:
    study = study_inputs.studies[0].model_copy(update={"baselines": {"K1 = 64": None}, "gain": "points"})
    rows = section(replace(study_inputs, studies=(study,)), "cub").first("tbody").all("tr")
    assert rows[-1].first("th").text() == "K1 = 64 over the best other row"
    assert [span.text() for span in rows[-1].all("span")] == ["+0.20", "+0.08", "+0.03", "-0.47"]


@pytest.mark.slow
def test_the_search_of_every_row_is_beside_the_table(study_inputs: ReportData, inputs: ReportData) -> None:
    rows = study_inputs.studies[0].rows
    sweeps = [replace(inputs.sweeps[0], dataset="birds", method=row.method) for row in rows]
    card = section(replace(study_inputs, sweeps=sweeps), "birds")
    lines = card.all("tbody")[1].all("tr")
    assert [line.first("th").text() for line in lines] == [row.label for row in rows]
    assert [cell.text() for cell in lines[0].all("td")] == ["4", "transport_ratio 0.3", "34.0"]
    # a search of some rows alone is no comparison of the rows
    assert len(section(replace(study_inputs, sweeps=sweeps[1:]), "birds").all("tbody")) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "is_bold"), [(4, False), (5, True)])
def test_a_rank_correlation_of_few_rows_is_not_bold(
    study_inputs: ReportData, monkeypatch: pytest.MonkeyPatch, rows: int, is_bold: bool
) -> None:
    ranks = (Rank(Column("recall_at_1"), 0.75, rows),)
    monkeypatch.setattr("unseen.report.study_table.rank_correlations", lambda *_: ranks)
    card = section(study_inputs, "cub")
    assert f"Recall@1 +0.75 ({rows} rows)" in " ".join(card.text().split())
    assert ("+0.75" in [mark.text() for mark in card.all("b")]) is is_bold


def test_a_run_without_studies_has_no_section(birds: DataSet) -> None:
    assert studies.content(birds) is None
