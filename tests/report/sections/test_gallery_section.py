"""Galleries: the worst queries are first, correct and incorrect matches are marked, files and classes are
named."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from tests.report.conftest import LONG, METHODS
from tests.report.page_reader import Element
from unseen.data.shards import Shards
from unseen.report.sections.gallery import choose


def queries_of(page: Element, method: str) -> list[Element]:
    return page.first("details", **{"data-method": method}).all("div", **{"class": "query"})


def test_worst_queries_come_first(page: Element, project: Path) -> None:
    for method in METHODS:
        table = pq.read_table(project / f"evaluation/birds/{method}/0/queries.parquet")
        ap = dict(zip(table["row_id"].to_pylist(), table["ap_at_r"].to_pylist(), strict=True))
        rows = [int(query["data-row"]) for query in queries_of(page, method)]
        assert len(rows) == len(set(rows)) == 20
        assert [ap[row] for row in rows[:10]] == sorted(ap.values())[:10]
        median = [ap[row] for row in rows[10:15]]
        assert sorted(ap.values())[37] <= min(median)
        assert max(median) <= sorted(ap.values())[41]


def test_marks_show_whether_the_class_is_correct(page: Element, project: Path) -> None:
    shards = Shards(project / "shards/birds")
    correct = incorrect = 0
    for method in METHODS:
        table = pq.read_table(project / f"evaluation/birds/{method}/0/neighbours.parquet").to_pydict()
        for query in queries_of(page, method):
            row = int(query["data-row"])
            place = table["row_id"].index(row)
            matches = [item for item in query.all("li") if item["class"] != "missing"]
            assert [int(match["data-row"]) for match in matches] == table["neighbours"][place][:5]
            for match, similarity in zip(matches, table["similarities"][place], strict=False):
                label = shards.labels[int(match["data-row"])]
                is_correct = label == shards.labels[row]
                assert match["class"] == f"match {'right' if is_correct else 'wrong'}"
                mark = match.first("span", **{"class": "mark"})
                title = "same class" if is_correct else "another class"
                assert (mark["title"], mark.text()) == (title, f"{similarity:.2f}")
                assert match.first("img")["alt"] == shards.class_names[label]
                correct, incorrect = correct + bool(is_correct), incorrect + (not is_correct)
    assert min(correct, incorrect) > 5


def test_a_query_without_a_right_match_shows_one(page: Element, project: Path) -> None:
    shards = Shards(project / "shards/birds")
    gallery = set(shards.rows("test").tolist())
    ranked = beyond = 0
    for method in METHODS:
        table = pq.read_table(project / f"evaluation/birds/{method}/0/neighbours.parquet").to_pydict()
        for query in queries_of(page, method):
            row = int(query["data-row"])
            place = table["row_id"].index(row)
            right = [
                match for match in table["neighbours"][place] if shards.labels[match] == shards.labels[row]
            ]
            missing = [int(item["data-row"]) for item in query.all("li", **{"class": "missing"})]
            if set(right) & set(table["neighbours"][place][:5]):
                assert missing == []
            elif right:
                assert missing == right[:1]
                ranked += 1
            else:
                assert len(missing) == 1
                assert missing[0] in gallery - {row}
                assert shards.labels[missing[0]] == shards.labels[row]
                beyond += 1
    assert ranked + beyond > 0


def test_the_gallery_of_the_best_method_is_open(page: Element) -> None:
    galleries = page.all("details", **{"data-method": None})
    assert [gallery["data-method"] for gallery in galleries if "open" in gallery.attributes] == ["good"]


def test_only_the_worst_queries_are_open(page: Element) -> None:
    gallery = page.first("details", **{"data-method": "good"})
    assert [heading.text() for heading in gallery.all("h4")] == ["Worst queries"]
    groups = gallery.all("details", **{"class": "group"})
    assert [group.first("summary").text() for group in groups] == [
        "More worst queries 7",
        "Median queries 5",
        "Random queries 5",
    ]
    assert not [group for group in groups if "open" in group.attributes]


def test_random_queries_are_the_same_for_every_method(project: Path) -> None:
    tables = [pq.read_table(project / f"evaluation/birds/{method}/0/queries.parquet") for method in METHODS]
    order = np.random.default_rng(0).permutation(len(tables[0])).tolist()
    for table in tables:
        groups = {title: positions.tolist() for title, positions in choose(table, 8)}
        random = groups.pop("Random queries")
        random_positions = {position for positions in groups.values() for position in positions}
        others = [position for position in order if position not in random_positions]
        assert random == others[:2]
        mapped = [int(table["row_id"][position].as_py()) for position in (others[7], order[0], others[3])]
        with_maps = [position for position in (others[7], order[0], others[3]) if position in others]
        assert dict(choose(table, 8, mapped))["Random queries"].tolist() == with_maps[:2]


def test_every_picture_and_every_query_names_its_file(page: Element, project: Path) -> None:
    shards = Shards(project / "shards/birds")
    for query in queries_of(page, "poor"):
        source = shards.sources[int(query["data-row"])]
        path = query.first("span", **{"class": "path"})
        assert query.first("img")["title"] == path["title"] == path.text() == source
        for match in query.all("li"):
            assert match.first("img")["title"] == shards.sources[int(match["data-row"])]


def test_captions_show_the_part_of_a_class_name_that_differs(page: Element) -> None:
    captions = page.all("b", title=LONG)
    assert captions
    assert {caption.text() for caption in captions} == {"Kleiber und Verwandte aus dem Süden"}
    spans = page.all("span", **{"class": "class", "title": LONG})
    assert spans
    assert {span.text() for span in spans} == {"Kleiber…aus dem Süden"}
