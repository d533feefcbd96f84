"""Changes, skipped images and duplicates of ingest."""

from copy import copy
from dataclasses import replace

from tests.report.page_reader import Element
from unseen.report.dataset import DataSet
from unseen.report.sections.data import content


def test_the_changes_of_ingest_are_listed(page: Element) -> None:
    text = page.first("section", id="set-0-data").text()
    duplicates = "2 images with the same pixels as another image, 1 across classes, listed below"
    for part in ("1 damaged image", "cut short", duplicates, "jpeg 64, png 2", "3 images (EXIF)"):
        assert part in text
    for part in (
        "9 files: 0.jxl, 1.jxl, 2.jxl, 3.jxl, 4.jxl, 5.jxl, 6.jxl, 7.jxl, ...",
        "1 folder: 9 = 8",
        "7 files: a.jpg, b.jpg, ...",
        "2 files: notes.txt, prices.txt",
    ):
        assert part in text


def test_what_is_left_out_of_the_averages_is_named(birds: DataSet) -> None:
    shards = copy(birds.shards)
    ingest = shards.manifest["ingest"] | {"dropped_classes": ["tit", "wren"], "skipped": []}
    shards.manifest = shards.manifest | {"duplicates": {}, "ingest": ingest}
    runs = [replace(run, metrics=run.metrics | {"lone_queries": 3}) for run in birds.report_data.runs]
    changed = replace(birds.report_data, shards={"birds": shards}, runs=runs)
    facts = dict(content(replace(birds, report_data=changed))["facts"])
    assert (facts["Duplicates"], facts["Dropped classes"]) == ("none", "tit, wren")
    assert facts["Skipped"] == "none"
    assert facts["Lone test images"].startswith("3 images without another image of the class, excluded")


def test_splits_have_their_counts(page: Element) -> None:
    table = page.first("section", id="set-0-data").first("tbody")
    rows = [[cell.text() for cell in row.children][:4] for row in table.all("tr")]
    assert rows == [["train", "30", "6", "5"], ["test", "80", "16", "5"]]


def test_duplicates_and_skipped_images_are_named(page: Element) -> None:
    section = page.first("section", id="set-0-data")
    details = {item.first("summary").text(): item for item in section.all("details")}
    across, within = details["Duplicates across classes 1"], details["Duplicates within a class 1"]
    assert across.first("li").text() == "6/1.jpg = 7/2.jpg"
    assert within.first("li").text() == "8/0.jpg = 8/3.jpg"
    assert "open" in across.attributes
    assert "open" not in within.attributes
    assert details["Skipped images 1"].first("li").text() == "<img src=x>.jpg: cut short"
