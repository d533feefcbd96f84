"""Attributes of the methods with prototypes."""

from dataclasses import replace

import pytest

from tests.report.page_reader import Element
from unseen.report.dataset import DataSet
from unseen.report.sections.attributes import content


@pytest.mark.slow
def test_transfer_and_attributes_of_the_method_with_prototypes(page: Element) -> None:
    section = page.first("section", id="set-0-geometry")
    labels = [svg["aria-label"] for svg in section.all("svg", **{"aria-label": None})]
    assert [label for label in labels if "Mean attributes of 10 test classes of fair" in label]
    assert [
        label for label in labels if "Zero-shot transfer of attributes" in label and "fair, cosine" in label
    ]


def test_without_prototypes_there_is_no_section(birds: DataSet) -> None:
    other_methods = replace(birds, report_data=replace(birds.report_data, methods=("good", "poor")))
    assert content(other_methods) is None
