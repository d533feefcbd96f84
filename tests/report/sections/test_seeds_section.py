"""Over seeds: mean, deviation and t interval of every method."""

import statistics
from dataclasses import replace

import numpy as np

from tests.report.conftest import METHODS
from tests.report.page_reader import Element
from unseen.evaluation.statistics.seeds import over_seeds
from unseen.report.dataset import DataSet, GallerySize
from unseen.report.report_data import ReportData
from unseen.report.sections.seeds import content


def test_mean_deviation_and_t_interval(two_seeds_page: Element, two_seeds_inputs: ReportData) -> None:
    table = two_seeds_page.first("section", id="set-0-results").first("table", **{"class": "seeds"})
    assert [row["data-seeds"] for row in table.all("tr", **{"data-seeds": None})] == list(METHODS)
    for method in METHODS:
        for metric in ("recall_at_1", "map_at_r"):
            values = [run.metrics[metric] for run in two_seeds_inputs.of("birds", method)]
            average = over_seeds(np.array(values), 0.95)
            cell = table.first("tr", **{"data-seeds": method}).first("td", **{"data-metric": metric}).text()
            cut = " (cut)" if average.high > 1 or average.low < 0 else ""
            assert cell == (
                f"{100 * statistics.fmean(values):.1f} ± {100 * statistics.stdev(values):.1f}"
                f"seeds {100 * max(average.low, 0):.1f} – {100 * min(average.high, 1):.1f}{cut}"
            )


def test_both_kinds_of_intervals_are_explained(two_seeds_page: Element) -> None:
    text = two_seeds_page.first("section", id="set-0-results").text()
    table = two_seeds_page.first("table", **{"class": "seeds"}).text()
    assert "(cut)" in table, "a t interval of the synthetic run exceeds 100"
    assert "Bounds below 0 or above 100 are cut off and marked" in text
    assert "Several seeds" in two_seeds_page.first("section", id="guide").text()


def test_a_metric_that_a_method_lacks_is_a_dash(two_seeds_inputs: ReportData) -> None:
    runs = [
        replace(run, metrics={name: value for name, value in run.metrics.items() if name != "recall_at_1"})
        if run.method == "poor"
        else run
        for run in two_seeds_inputs.runs
    ]
    values = content(DataSet(replace(two_seeds_inputs, runs=runs), "birds", "x", GallerySize(4, 3, 24)))
    assert values is not None
    place = values["metrics"].index("Recall@1")
    assert {row["method"].name for row in values["rows"] if row["cells"][place]["value"] == "–"} == {"poor"}


def test_one_seed_has_no_section(birds: DataSet) -> None:
    assert content(birds) is None
