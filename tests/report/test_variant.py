"""A variant and its parent: all parts of the page, with a hyphen in the name."""

import re
from dataclasses import replace

import pytest

from tests.report.page_reader import Element
from unseen.report.recipes import changes_of
from unseen.report.report_data import ReportData


def test_a_variant_has_rows_curves_gallery_and_paired_comparisons(papers_page: Element) -> None:
    rows = papers_page.all("tr", **{"data-method": "gsp-soft"})
    assert [row["data-network"] for row in rows] == ["selected", "last", "features"]
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


def test_the_recipe_of_a_variant_lists_its_changes(papers_page: Element, papers_inputs: ReportData) -> None:
    changes = [("pooling.epsilon", "1", "5"), ("training.iterations", "70", "20,000")]
    assert changes_of(papers_inputs, "cub", "gsp-soft") == changes
    assert changes_of(papers_inputs, "cub", "gsp") == []
    of_other_kind = replace(papers_inputs, like={**papers_inputs.like, "ms": "gsp"})
    assert ("pooling.epsilon", "not set", "5") in (changes_of(of_other_kind, "cub", "ms") or [])
    recipe = papers_page.first("details", id="set-0-recipe-2")
    assert recipe.first("summary").text().startswith("gsp-soft like gsp, ")
    assert recipe.first("h4").text() == "Changes to gsp"
    facts = [[value.text() for value in recipe.first("dl").all(tag)] for tag in ("dt", "dd")]
    assert facts == [
        [key for key, *_ in changes],
        [f"{variant_value} (gsp: {parent_value})" for _, variant_value, parent_value in changes],
    ]


def test_names_with_hyphens_give_valid_ids(papers_page: Element, two_seeds_page: Element) -> None:
    for page in (papers_page, two_seeds_page):
        ids = [element["id"] for element in page.descendants() if "id" in element.attributes]
        assert len(ids) == len(set(ids))
        assert all(re.fullmatch(r"[A-Za-z][\w.-]*", identifier) for identifier in ids)


@pytest.mark.parametrize("method", ["ms", "gsp"])
def test_published_methods_are_not_variants(papers_page: Element, method: str) -> None:
    row = papers_page.first("tr", **{"data-method": method, "data-network": "selected"})
    assert "like" not in row.first("th").text()
