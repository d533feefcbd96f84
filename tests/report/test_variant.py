"""A variant beside the method that it is like: everything that a method has, under a name with a hyphen."""

import re

import pytest

from pipeline.report.recipes import changes_of
from pipeline.report.report_data import ReportData
from tests.report.page_reader import Element


def test_it_has_rows_curves_gallery_and_paired_comparisons(papers_page: Element) -> None:
    rows = papers_page.all("tr", **{"data-method": "gsp-soft"})
    assert [row["data-network"] for row in rows] == ["selected", "last", "untrained"]
    assert "like gsp" in rows[0].first("th").text()
    pairs = [row["data-pair"] for row in papers_page.all("tr", **{"data-pair": None})]
    assert pairs == ["gsp-soft gsp", "gsp-soft ms", "gsp ms"]
    gallery = papers_page.first("details", **{"data-method": "gsp-soft"})
    assert len(gallery.all("div", **{"class": "query"})) == 4
    labels = [svg["aria-label"] for svg in papers_page.all("svg", **{"aria-label": None})]
    for text in (
        "one line per run of ms, gsp, gsp-soft",
        "Loss of gsp-soft",
        "Cosine similarities of gsp-soft",
    ):
        assert any(text in label for label in labels), text


def test_its_recipe_names_what_it_changes(papers_page: Element, papers_inputs: ReportData) -> None:
    changes = [("pooling.epsilon", "1", "5"), ("training.iterations", "70", "20,000")]
    assert changes_of(papers_inputs, "cub", "gsp-soft") == changes
    assert changes_of(papers_inputs, "cub", "gsp") == []
    recipe = papers_page.first("details", id="set-0-recipe-2")
    assert recipe.first("summary").text().startswith("gsp-soft like gsp, ")
    assert recipe.first("h4").text() == "Changes to gsp"
    facts = [[value.text() for value in recipe.first("dl").all(tag)] for tag in ("dt", "dd")]
    assert facts == [[key for key, *_ in changes], [f"{own} (gsp: {other})" for _, own, other in changes]]


def test_names_with_hyphens_leave_ids_valid(papers_page: Element, two_seeds_page: Element) -> None:
    for page in (papers_page, two_seeds_page):
        ids = [element["id"] for element in page.descendants() if "id" in element.attributes]
        assert len(ids) == len(set(ids))
        assert all(re.fullmatch(r"[A-Za-z][\w.-]*", identifier) for identifier in ids)


@pytest.mark.parametrize("method", ["ms", "gsp"])
def test_published_methods_are_no_variants(papers_page: Element, method: str) -> None:
    row = papers_page.first("tr", **{"data-method": method, "data-network": "selected"})
    assert "like" not in row.first("th").text()
