"""Changes, skipped images and duplicates of ingest."""

from tests.report.page_reader import Element


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
