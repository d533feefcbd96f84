"""Loss terms: one chart per method, one line per term."""

from dataclasses import replace

import pytest

from tests.report.page_reader import read_page
from unseen.report.dataset import DataSet
from unseen.report.page import template_environment
from unseen.report.pictures import Pictures
from unseen.report.sections.losses import content
from unseen.training.flat_terms import is_flat


@pytest.mark.slow
def test_every_term_of_every_method_is_drawn(birds: DataSet) -> None:
    charts = content(birds)["curves"]
    assert len(charts) == 3
    for chart in charts:
        for term in ("sum", "diversity", "pair"):
            assert f">{term}</text>" in chart
        assert "covariance" not in chart, "gradient noise is not a loss term"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[0.3936, 0.3939, 0.3941]], True),
        ([[0.3936, 0.3939, 0.3890]], False),
        ([[0.3936, 0.3939], [0.3936, 0.2]], False),
        ([[0.3936]], False),
    ],
)
def test_a_term_that_does_not_change_is_flat(values: list[list[float]], expected: bool) -> None:
    """The first values are those of GSP's zero-shot loss in the default graph: 0.1 ln 51 is chance."""
    assert is_flat([[{"zero_shot": value} for value in run] for run in values], "zero_shot") is expected


def test_the_page_names_a_flat_term(birds: DataSet) -> None:
    method = birds.methods[0].name
    rows = [
        [row | {"pair": 0.5, "diversity": 1 / (1 + place)} for place, row in enumerate(run)]
        for run in birds.histories[method]
    ]
    flat = replace(birds)
    vars(flat)["histories"] = {method: rows}
    values = content(flat)
    assert [name for name, _ in values["flat"]] == [method]
    html = template_environment(Pictures()).get_template("losses.html").render(dataset=birds, **values)
    page = read_page(html)
    note = page.first("p", **{"data-flat": method}).text()
    assert not page.first("details").all("p", **{"data-flat": method}), "it is visible before a click"
    assert f"Term pair of {method} stays within 1%" in " ".join(note.split())
