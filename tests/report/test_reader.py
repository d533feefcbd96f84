"""What a reader must find on the page: the file behind a picture, the network behind a number, how far a choice or a search can be trusted."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.data.shards import Shards
from pipeline.report import figures
from pipeline.report.inputs import Inputs, read_inputs
from pipeline.report.networks import few_validation_classes, networks, seeds_differ
from pipeline.report.page import build
from pipeline.report.summary import Results, Value
from pipeline.runtime.files import write_json
from tests.report.conftest import LONG
from tests.report.page_reader import Element, read_page

METHODS = ("good", "poor", "fair")


@pytest.fixture(scope="module")
def inputs(project: Path) -> Inputs:
    return read_inputs(project, ("birds",), METHODS, (0,))


@pytest.fixture(scope="module")
def page(inputs: Inputs) -> Element:
    return read_page(build(inputs, "A report", queries=20, neighbours=5, thumbnail=24))


def test_every_picture_names_its_file_and_every_query_shows_it(page: Element, project: Path) -> None:
    shards = Shards(project / "shards/birds")
    gallery = page.first("details", **{"data-method": "poor"})
    for query in gallery.all("div", **{"class": "query"}):
        source = shards.sources[int(query["data-row"])]
        assert query.first("img")["title"] == query.first("span", **{"class": "path"})["title"] == source
        assert query.first("span", **{"class": "path"}).text() == source
        for match in query.all("li"):
            assert match.first("img")["title"] == shards.sources[int(match["data-row"])]


def test_captions_show_what_tells_a_class_from_the_others(page: Element) -> None:
    label = "Kleiber und Verwandte aus dem Süden"
    asked = page.all("b", title=LONG)
    assert asked
    assert {b.text() for b in asked} == {label}
    wrong = page.all("span", **{"class": "class", "title": LONG})
    assert wrong
    assert {span.text() for span in wrong} == {"Kleiber…aus dem Süden"}


def test_only_the_worst_queries_are_unfolded(page: Element) -> None:
    gallery = page.first("details", **{"data-method": "good"})
    assert [heading.text() for heading in gallery.all("h4")] == ["Worst queries"]
    groups = gallery.all("details", **{"class": "group"})
    assert [group.first("summary").text() for group in groups] == ["Around the median 5", "Drawn at random 5"]
    assert not [group for group in groups if "open" in group.attributes]


def test_the_network_of_each_method_stands_near_the_top(page: Element, inputs: Inputs) -> None:
    lines = [line.text() for line in page.first("ul", **{"class": "networks"}).all("li")]
    assert lines == [
        "good and fair: test_resnet from random weights, 12 dimensions, 64 px input",
        "poor: test_resnet pretrained, 12 dimensions, 64 px input",
    ]
    alike = replace(inputs, methods=("good", "fair"))
    assert [network.methods for network in networks(alike, "birds")] == ["all 2 methods"]


def test_rows_of_the_network_before_training_are_named_by_how_it_began(page: Element) -> None:
    labels = {row["data-method"]: row.first("th").text() for row in page.all("tr", **{"data-network": "untrained"})}
    assert labels == {"good": "before training", "poor": "pretrained, before fine-tuning", "fair": "before training"}
    geometry = page.first("section", id="set-0-geometry").first("table")
    assert [row.first("th").text() for row in geometry.all("tr", **{"class": "beside"})] == list(labels.values())
    for element in page.descendants():
        assert "untrained" not in "".join(part for part in element.parts if isinstance(part, str)).replace("files call it untrained", "")


def test_few_validation_classes_are_said_beside_results_and_training(page: Element, inputs: Inputs) -> None:
    said = "The selected iterate was chosen by MAP@R on only 2 classes held out of training"
    for section in ("results", "training"):
        assert said in page.first("section", id=f"set-0-{section}").text()

    def held_out(*counts: int) -> str:
        classes = inputs.shards["birds"].manifest["counts"]["train"]["classes"]
        runs = [replace(run, recipe=run.recipe | {"classes": classes - count}) for run, count in zip(inputs.runs, counts, strict=True)]
        return few_validation_classes(replace(inputs, runs=runs), "birds")

    assert held_out(10, 10, 12) == ""
    assert "on only 9 to 12 classes" in held_out(9, 10, 12)
    untouched = replace(inputs, runs=[replace(run, history=run.history[:1]) for run in inputs.runs])
    assert few_validation_classes(untouched, "birds") == "", "nothing was chosen"


def test_curves_of_seeds_are_told_apart_where_seeds_draw_their_validation_classes(make_project: Callable[..., Path]) -> None:
    inputs = read_inputs(make_project(noise={"good": 0.25}, seeds=(0, 1)), ("birds",), ("good",), (0, 1))
    note = "Each seed holds out other classes"
    page = read_page(build(inputs, "A report", 4, 3, 24))
    assert note in page.first("section", id="set-0-training").text()
    own = [replace(run, recipe=run.recipe | {"recipe": run.recipe["recipe"] | {"batch": {"sampling": "tuples"}}}) for run in inputs.runs]
    assert not seeds_differ(replace(inputs, runs=own), "birds"), "the data set says which classes validate"
    assert not seeds_differ(replace(inputs, seeds=(0,)), "birds")


def test_an_approximate_index_says_what_it_finds(make_project: Callable[..., Path]) -> None:
    root = make_project(noise={"good": 0.25})
    path = root / "metrics/birds/good/0.json"
    found = {"approximate_map_at_r": 0.75, "approximate_search_recall_at_1": 0.99, "approximate_search_recall_at_10": 0.925}
    write_json(path, json.loads(path.read_text()) | found)
    page = read_page(build(read_inputs(root, ("birds",), ("good",), (0,)), "A report", 4, 3, 24))
    row = page.first("tr", **{"data-network": "approximate"})
    assert row.first("th").text() == "by approximate indexfinds 92.5% of the exact 10 nearest"
    assert row.first("td", **{"data-metric": "map_at_r"}).text() == "75.0"


def test_duplicates_and_skipped_images_are_named(page: Element) -> None:
    section = page.first("section", id="set-0-data")
    assert "2 images with the pixels of another, 1 across classes, named below" in section.text()
    across, within = (details for details in section.all("details") if "Duplicates" in details.first("summary").text())
    assert (across.first("summary").text(), across.first("li").text()) == ("Duplicates across classes 1", "6/1.jpg = 7/2.jpg")
    assert (within.first("summary").text(), within.first("li").text()) == ("Duplicates within a class 1", "8/0.jpg = 8/3.jpg")
    assert "open" in across.attributes
    assert "open" not in within.attributes
    skipped = next(details for details in section.all("details") if "Skipped" in details.first("summary").text())
    assert skipped.first("li").text() == "<img src=x>.jpg: cut short"


def ticks(svg: str) -> list[float]:
    return [float(text) for text in re.findall(r">(-?\d+(?:\.\d+)?)</text>", svg.replace("−", "-"))]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_no_axis_of_percentages_leaves_0_to_100(share: float) -> None:
    """Where all is at one end, an axis of its own choice goes on beyond it."""
    rows = [{"iteration": float(step), "recall_at_1": share} for step in (1000, 2000, 3000)]
    curves = [tick for tick in ticks(figures.validation({"a": [rows]}, {"a": 0}, "recall_at_1", "x")) if tick < 1000]
    values = {"a": {"selected": {"recall_at_1": Value(share, share, share)}}}
    drawn = ticks(figures.forest(Results(("a",), ("recall_at_1",), values, 1), "recall_at_1", "x"))
    trials = [{"trial": place, "dim": f"of {place}", "best_map_at_r": share} for place in range(3)]
    swept = ticks(figures.sweep(trials, "dim", "best_map_at_r", {"trial": 1, "metric": "map_at_r"}, "x"))
    for axis in (curves, drawn, swept):
        assert len(axis) > 1
        assert 0 <= min(axis) <= max(axis) <= 100
