"""The page against its inputs: values, verdicts, galleries, escaping, nothing loaded, same bytes."""

import hashlib
import json
import re
import statistics
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.data.shards import Shards
from pipeline.report.gallery import choose
from pipeline.report.inputs import Inputs, read_inputs
from pipeline.report.page import build
from pipeline.runtime.errors import UserError
from tests.report.page_reader import Element, read_page

METHODS = ("good", "poor", "fair")


def page_of(root: Path, datasets: tuple[str, ...] = ("birds",), seeds: tuple[int, ...] = (0,), sweeps: tuple[str, ...] = ()) -> str:
    return build(read_inputs(root, datasets, METHODS, seeds, sweeps), "A report", queries=8, neighbours=5, thumbnail=40)


@pytest.fixture(scope="module")
def html(project: Path) -> str:
    return page_of(project)


@pytest.fixture(scope="module")
def page(html: str) -> Element:
    return read_page(html)


def test_numbers_of_the_table_are_those_of_the_metrics_files(page: Element, project: Path) -> None:
    rows = page.all("tr", **{"data-network": None})
    assert len(rows) == 9
    prefix = {"selected": "", "last": "last_", "untrained": "untrained_"}
    seen = set()
    for row in rows:
        metrics = json.loads((project / f"metrics/birds/{row['data-method']}/0.json").read_text())
        for cell in row.all("td"):
            name = prefix[row["data-network"]] + cell["data-metric"]
            low, high = (f"{100 * metrics[f'{name}_{end}']:.1f}" for end in ("low", "high"))
            assert cell.text() == f"{100 * metrics[name]:.1f}{low} – {high}"
            seen.add(cell["data-metric"])
    assert seen == {"recall_at_1", "recall_at_2", "recall_at_4", "r_precision", "map_at_r", "map"}


def test_bold_only_where_the_best_interval_is_clear(page: Element, project: Path) -> None:
    metrics = {m: json.loads((project / f"metrics/birds/{m}/0.json").read_text()) for m in METHODS}
    for row in page.all("tr", **{"data-network": None}):
        for cell in row.all("td"):
            name, method = cell["data-metric"], row["data-method"]
            others = [metrics[m][f"{name}_high"] for m in METHODS if m != method]
            clear = row["data-network"] == "selected" and metrics[method][f"{name}_low"] > max(others)
            assert bool(cell.all("b")) == clear, (method, name)
    assert metrics["good"]["map_at_r_low"] > metrics["fair"]["map_at_r_high"], "the made-up run has a clear winner"
    lede = page.first("p", **{"class": "lede"}).text()
    assert "no lead is certain. The MAP@R of good is the highest," in lede, "seven classes prove nothing"
    assert "whether it is ahead of fair and poor on the same queries stays open" in lede


def test_worst_queries_come_first(page: Element, project: Path) -> None:
    for method in METHODS:
        table = pq.read_table(project / f"evaluation/birds/{method}/0/queries.parquet")
        ap = dict(zip(table["row_id"].to_pylist(), table["ap_at_r"].to_pylist(), strict=True))
        gallery = page.first("details", **{"data-method": method})
        shown = [int(query["data-row"]) for query in gallery.all("div", **{"class": "query"})]
        assert len(shown) == len(set(shown)) == 8
        worst = [ap[row] for row in shown[:4]]
        assert worst == sorted(ap.values())[:4]
        middle = [ap[row] for row in shown[4:6]]
        assert sorted(ap.values())[16] <= min(middle)
        assert max(middle) <= sorted(ap.values())[18]


def test_marks_say_whether_the_class_is_right(page: Element, project: Path) -> None:
    shards = Shards(project / "shards/birds")
    right = wrong = 0
    for method in METHODS:
        found = pq.read_table(project / f"evaluation/birds/{method}/0/neighbours.parquet").to_pydict()
        for query in page.first("details", **{"data-method": method}).all("div", **{"class": "query"}):
            row = int(query["data-row"])
            place = found["row_id"].index(row)
            matches = query.all("li")
            assert [int(match["data-row"]) for match in matches] == found["neighbours"][place][:5]
            for match, similarity in zip(matches, found["similarities"][place], strict=False):
                same = shards.labels[int(match["data-row"])] == shards.labels[row]
                assert match["class"] == f"match {'right' if same else 'wrong'}"
                mark = match.first("span", **{"class": None})
                assert (mark["title"], mark.text()) == ("same class" if same else "another class", f"{similarity:.2f}")
                assert match.first("img")["alt"] == shards.class_names[shards.labels[int(match["data-row"])]]
                right, wrong = right + bool(same), wrong + (not same)
    assert min(right, wrong) > 5


def test_the_gallery_of_the_leading_method_is_open(page: Element) -> None:
    assert [d["data-method"] for d in page.all("details", **{"data-method": None}) if "open" in d.attributes] == ["good"]


def test_random_queries_are_the_same_for_every_method(project: Path) -> None:
    tables = [pq.read_table(project / f"evaluation/birds/{method}/0/queries.parquet") for method in METHODS]
    drawn = [dict(choose(table, 8))["Drawn at random"].tolist() for table in tables]
    order = np.random.default_rng(0).permutation(len(tables[0])).tolist()
    for table, positions in zip(tables, drawn, strict=True):
        shown = {p for title, group in choose(table, 8) if title != "Drawn at random" for p in group.tolist()}
        assert positions == [p for p in order if p not in shown][:2]


def test_class_and_file_names_are_escaped(html: str, page: Element) -> None:
    assert "<script" not in html
    assert "<img src=x>" not in html
    assert "<script>alert(1)</script>" in {image["alt"] for image in page.all("img")}
    assert 'quote " class' in {image["alt"] for image in page.all("img")}
    assert "<img src=x>.jpg" in page.first("section", id="set-0-data").text()


def test_nothing_is_loaded_from_anywhere(html: str, page: Element) -> None:
    for element in page.descendants():
        for name in ("src", "href", "xlink:href", "srcset", "data", "action", "poster"):
            value = element.attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (element.tag, name, value[:80])
    assert set(re.findall(r"url\(\s*['\"]?(.)", html)) <= {"#"}
    assert "@import" not in html
    assert "http:" not in html
    assert "https:" not in html


def test_ids_are_unique_and_references_lead_somewhere(html: str, page: Element) -> None:
    ids = [element["id"] for element in page.descendants() if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    wanted = {element["href"][1:] for element in page.descendants() if element.attributes.get("href", "").startswith("#")}
    wanted |= set(re.findall(r"url\(#([^)]+)\)", html))
    assert wanted <= set(ids)


def test_same_inputs_same_bytes(html: str, project: Path) -> None:
    assert page_of(project) == html


def test_provenance_names_the_files_behind_a_number(page: Element, project: Path) -> None:
    section = page.first("section", id="set-0-provenance").text()
    metrics = json.loads((project / "metrics/birds/good/0.json").read_text())
    for path in ("models/birds/good/0/weights.safetensors", "models/birds/poor/0/last.safetensors", "embeddings/birds/fair/0/test.arrow"):
        assert hashlib.sha256((project / path).read_bytes()).hexdigest() in section, path
    assert metrics["protocol"] in section
    assert Shards(project / "shards/birds").fingerprint in section
    assert "equal similarities in ascending order of row id" in section
    assert "backbone.nametest_resnet" in section
    assert "training.patiencenull" in section


def test_what_ingest_did_is_told(page: Element) -> None:
    text = page.first("section", id="set-0-data").text()
    for part in ("1 damaged image", "cut short", "2 images with the pixels of another, 1 across classes", "jpeg 64, png 2", "3 images (EXIF)"):
        assert part in text


def test_curves_of_every_term_and_method(html: str) -> None:
    drawn = {*re.findall(r' id="set-0-([\w-]+?)-figure_1', html)}
    assert drawn == {
        *(f"{name}-{metric}" for name in ("validation", "forest") for metric in ("map_at_r", "recall_at_1")),
        *(f"{name}-{place}" for name in ("loss", "pairs") for place in range(3)),
        "energy", "gap", "drift", "spectrum", "modes", "transfer", "attributes-2", "noise-0", "noise-1",
    }  # fmt: skip
    assert html.count(">diversity</text>") == 3


def test_several_seeds_data_sets_and_a_sweep(make_project: Callable[..., Path]) -> None:
    root = make_project(("birds", "cars"), {"good": 0.25, "poor": 1.2, "fair": 0.9}, (0, 1), ("good",))
    page = read_page(page_of(root, ("birds", "cars"), (0, 1), ("good",)))
    row = page.first("tr", **{"data-method": "poor", "data-network": "selected"})
    values = [json.loads((root / f"metrics/birds/poor/{seed}.json").read_text())["map_at_r"] for seed in (0, 1)]
    cell = row.first("td", **{"data-metric": "map_at_r"}).text()
    assert cell.startswith(f"{100 * statistics.fmean(values):.1f} ± {100 * statistics.stdev(values):.1f}")
    assert len(page.all("p", **{"class": "lede"})) == 2
    assert {row.first("th").text() for row in page.first("section", id="set-1-provenance").all("tr")[1:]} >= {"good, seed 0", "fair, seed 1"}

    sweep = page.first("section", id="set-0-sweep")
    assert [[cell.text() for cell in row.children if cell.tag in ("td", "th")] for row in sweep.first("tbody").all("tr")] == [
        ["0", "0.6", "60", "21.0", "50.0", "30.0", "21.0", "whole"],
        ["1", "0.1", "30", "12.5", "50.0", "30.0", "12.5", "stopped early"],
        ["2", "0.3", "60", "34.0", "50.0", "30.0", "30.0", "whole"],
        ["3", "0.9", "0", "–", "–", "–", "–", "failed"],
    ]
    assert [b.text() for b in sweep.all("b")] == ["0.3", "60", "34.0", "50.0", "30.0", "30.0", "whole"]
    assert "dvc exp run -S 'methods.good.pooling.transport_ratio=0.3'" in sweep.text()


def test_what_is_missing_or_cut_short_is_named(make_project: Callable[..., Path]) -> None:
    root = make_project(noise={"good": 0.25})

    def read() -> Inputs:
        return read_inputs(root, ("birds",), ("good",), (0,))

    assert len(read().runs) == 1
    (root / "metrics/birds/good/0.json").write_text('{"queries": 3,')
    with pytest.raises(UserError, match=r"metrics/birds/good/0\.json:1 is not valid JSON"):
        read()
    for missing in ("metrics/birds/good/0.json", "history/birds/good/0.csv", "models/birds/good/0/last.safetensors", "analysis/analysis.json"):
        path = root / missing
        kept = path.read_bytes()
        path.unlink()
        with pytest.raises(UserError, match=re.escape(missing) + r" is missing|is not valid JSON"):
            read()
        path.write_bytes(b"{}" if missing.startswith("metrics") else kept)
    (root / "evaluation/birds/good/0/queries.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(UserError, match=r"queries\.parquet is not a whole Parquet file"):
        read()


def test_the_stage_writes_one_file(make_project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from stages.report import run

    root = make_project(noise={"good": 0.25}).parent
    params = "run: {datasets: [birds], methods: [good], seeds: [0], sweeps: []}\nreport: {title: A title, queries: 4, neighbours: 3, thumbnail: 32}\n"
    (root / "params.yaml").write_text(params, encoding="utf-8")
    monkeypatch.chdir(root)
    run()
    assert [path.name for path in (root / "data/report").iterdir()] == ["index.html"]
    page = read_page((root / "data/report/index.html").read_text(encoding="utf-8"))
    assert page.first("h1").text() == "A title"
    assert len(page.all("div", **{"class": "query"})) == 4
    assert "good reaches MAP@R" in page.first("p", **{"class": "lede"}).text(), "one method is not best of anything"
    assert page.first("table").all("b") == []
    (root / "data/analysis/analysis.json").unlink()
    with pytest.raises(UserError, match=r"analysis\.json is missing"):
        run()
    assert (root / "data/report/index.html").exists()


def test_the_page_is_well_formed(html: str) -> None:
    """Every element that needs an end has one, in order."""

    class Nesting(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag not in ("meta", "link", "img", "br", "wbr"):
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open, f"</{tag}> without a start"
            assert self.open.pop() == tag, f"</{tag}> closes something else"

        def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            pass

    nesting = Nesting()
    nesting.feed(html)
    assert nesting.open == []
