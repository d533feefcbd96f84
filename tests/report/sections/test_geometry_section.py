"""The table of the analysis."""

from dataclasses import replace

import pytest

from tests.report.page_reader import Element
from unseen.report.dataset import DataSet
from unseen.report.sections.geometry import content


def test_every_method_has_a_row_before_and_after_training(page: Element, birds: DataSet) -> None:
    table = page.first("section", id="set-0-geometry").first("table")
    initial_labels = ["before training", "pretrained, before fine-tuning", "before training"]
    assert [row.first("th").text() for row in table.all("tr", **{"class": "beside"})] == initial_labels
    density = birds.analysis.means["good", "selected"]["embedding_density"]
    assert table.first("tbody").all("td")[0].text() == f"{density:.3f}"


@pytest.mark.slow
def test_floored_singular_values_are_reported(birds: DataSet) -> None:
    assert content(birds)["floored"] == ""
    entries = [
        entry | {"row": entry["row"] | {"floored_singular_values": int(entry["row"]["method"] == "poor")}}
        for entry in birds.report_data.analysis
    ]
    changed = replace(birds, report_data=replace(birds.report_data, analysis=entries))
    assert content(changed)["floored"].startswith("Singular values of poor are below")
