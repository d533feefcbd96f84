"""The page: all sections, no loaded resources, escaped names, unique ids, equal bytes, one file."""

import csv
import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import unseen.report.sections
from tests.report.page_reader import Element, pictures_of, read_page
from unseen.config.inputs import ReportInputs, content_of, path_of
from unseen.config.stages import ReportSettings
from unseen.evaluation.analysis.analyze import COLUMNS
from unseen.methods.settings import Cost
from unseen.report.page import CARDS, build
from unseen.report.report_data import ReportData, Sweep
from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json
from unseen.runtime.parts import trusted

SECTIONS = {section.__name__.rpartition(".")[2] for card in CARDS for section in card.sections}
IN_THE_HEADER = {"verdict", "key_numbers"}


def test_every_section_has_module_template_entry_and_test() -> None:
    folder = Path(unseen.report.sections.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert modules == {path.stem for path in folder.glob("*.html")} == SECTIONS | IN_THE_HEADER
    tests = {path.stem for path in (Path(__file__).parent / "sections").glob("test_*.py")}
    assert tests == {f"test_{name}_section" for name in modules}


def test_templates_and_style_are_package_data() -> None:
    root = Path(unseen.report.sections.__file__).resolve().parents[3]
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    packed = {
        path for pattern in settings["package-data"]["unseen"] for path in (root / "pipeline").glob(pattern)
    }
    assert {
        path for path in (root / "pipeline/report").rglob("*") if path.suffix in (".html", ".css")
    } <= packed


def test_cards_are_in_order_and_in_the_navigation(page: Element) -> None:
    cards = [section["id"] for section in page.all("section", id=None)]
    # the set has no published rows and no photos of the user, and the run covers no study
    expected = [f"set-0-{card.id}" for card in CARDS if card.id not in ("answers", "published", "studies")]
    assert cards == [*expected, "guide"]
    assert [link["href"] for link in page.first("nav").all("a")] == [f"#{card}" for card in cards]


def test_sections_of_a_user(inputs: ReportData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "def content(dataset, count: int = 3):\n    return {'count': count} if count else None\n"
    for name, card in (("first", "results"), ("second", "Mine"), ("third", "Mine"), ("absent", "Empty card")):
        (tmp_path / f"{name}_section.py").write_text(f"CARD = '{card}'\n{module}", encoding="utf-8")
        (tmp_path / f"{name}_section.html").write_text(
            "<h3>" + name + " {{ count }} {{ dataset.name }}</h3>", encoding="utf-8"
        )
    monkeypatch.syspath_prepend(tmp_path)
    blocks = {
        "a": {"module": "first_section"},
        "b": {"module": "second_section", "count": 5},
        "c": {"module": "third_section"},
        "d": {"module": "absent_section", "count": 0},
    }
    with trusted():
        settings = ReportSettings.parse({"sections": blocks})
    assert ReportSettings().model_dump().keys() == ReportSettings.model_fields.keys() - {"sections"}
    html = build(inputs, "A report", 4, 3, 24, own=settings.sections.values()).html
    page = read_page(html)
    assert page.first("section", id="set-0-results").all("h3")[-1].text() == "first 3 birds"
    own = page.first("section", id="set-0-own-2")
    assert [heading.text() for heading in own.all("h3")] == ["second 5 birds", "third 3 birds"]
    assert "#set-0-own-2" in [link["href"] for link in page.first("nav").all("a")]
    assert "Empty card" not in html


def test_two_data_sets(two_seeds_page: Element) -> None:
    assert len(two_seeds_page.all("p", **{"class": "lede"})) == 2
    assert [link.text() for link in two_seeds_page.first("nav").all("a")] == [
        "birds",
        "my-birds",
        "How to read this page",
    ]
    assert len(two_seeds_page.all("ul", **{"class": "tiles"})) == 2
    assert two_seeds_page.first("div", id="set-1").first("h2").text() == "my-birds"


def test_the_page_contains_each_picture_once(html: str, page: Element) -> None:
    pictures = pictures_of(html)
    image_classes = [image["class"] for image in page.all("img")]
    assert set(image_classes) == set(pictures)
    assert len(image_classes) > 3 * len(pictures)
    uris = re.findall(r"data:image/jpeg;base64,[\w+/=]+", html)
    assert len(uris) == len(set(uris)) >= len(pictures)


def test_class_and_file_names_are_escaped(html: str, page: Element) -> None:
    assert "<script" not in html
    assert "<img src=x>" not in html
    assert "<script>alert(1)</script>" in {image["alt"] for image in page.all("img")}
    assert 'quote " class' in {image["alt"] for image in page.all("img")}
    assert "<img src=x>.jpg" in page.first("section", id="set-0-data").text()


def test_the_page_loads_no_resource(html: str, page: Element) -> None:
    for element in page.descendants():
        for name in ("src", "href", "xlink:href", "srcset", "data", "action", "poster"):
            value = element.attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (element.tag, name, value[:80])
    assert set(re.findall(r"url\(\s*['\"]?(#|data:|.)", html)) <= {"#", "data:"}
    assert "@import" not in html
    assert "http:" not in html
    assert "https:" not in html


def test_ids_are_unique_and_references_exist(html: str, page: Element, two_seeds_page: Element) -> None:
    for tree in (page, two_seeds_page):
        ids = [element["id"] for element in tree.descendants() if "id" in element.attributes]
        assert len(ids) == len(set(ids))
        links = [element.attributes.get("href", "") for element in tree.descendants()]
        assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    ids = [element["id"] for element in page.descendants() if "id" in element.attributes]
    assert set(re.findall(r"url\(#([^)]+)\)", html)) <= set(ids)


@pytest.mark.slow
def test_same_inputs_same_bytes(html: str, inputs: ReportData) -> None:
    assert build(inputs, "A report", queries=20, neighbours=5, thumbnail=40).html == html


def test_the_charts_of_every_method_and_term(html: str) -> None:
    charts = {*re.findall(r' id="set-0-([\w-]+?)-figure_1', html)}
    assert charts == {
        *(f"{name}-{metric}" for name in ("validation", "forest") for metric in ("map_at_r", "recall_at_1")),
        *(f"{name}-{place}" for name in ("loss", "pairs") for place in range(3)),
        "energy", "gap", "drift", "spectrum", "modes", "transfer", "attributes-2", "noise-0", "noise-1",
        "sweep-0-0",
    }  # fmt: skip


@pytest.mark.slow
def test_the_stage_writes_the_page_and_the_heat_maps(
    make_project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from unseen.stages.report import run

    root = make_project(noise={"good": 0.25}).parent
    settings = ReportInputs.parse(
        {
            "run": {"datasets": ["birds"], "methods": ["good"], "seeds": [0]},
            "report": {"title": "A title", "queries": 4, "neighbours": 3, "thumbnail": 32},
            "sweeps": [],
            "like": {"good": "ms"},
            "studies": [],
            "costs": {"birds": {"good": {"parameters": 1_000_000, "flops": 2_000_000_000}}},
        }
    )
    (root / path_of("report")).parent.mkdir(parents=True)
    write_json(root / path_of("report"), content_of(settings, {}))
    monkeypatch.chdir(root)
    run()
    files = sorted(path.relative_to(root / "data/report").as_posix() for path in root.rglob("report/**/*.*"))
    positions = ["positions/birds/good.csv", "positions/birds/good.svg"]
    assert files == ["analysis.csv", "index.html", *positions, "verdict.json"]
    plots = sorted(path.relative_to(root / "data/plots").as_posix() for path in root.rglob("plots/**/*.*"))
    curves = [f"{name}/birds/good/0.csv" for name in ("recall", "spectrum")]
    assert plots == [*curves, "sweeps.json", "sweeps/none.csv"]
    page = read_page((root / "data/report/index.html").read_text(encoding="utf-8"))
    assert page.first("h1").text() == "A title"
    gallery = page.first("section", id="set-0-gallery")
    assert len(gallery.all("div", **{"class": "query"})) == 4
    assert "good reaches MAP@R: " in page.first("p", **{"class": "lede"}).text(), (
        "a single method is not compared"
    )
    verdicts = json.loads((root / "data/report/verdict.json").read_text(encoding="utf-8"))
    assert verdicts == {"birds": " ".join(page.first("p", **{"class": "lede"}).text().split())}
    assert page.first("table").all("b") == []
    assert [cell.text() for cell in page.first("tr", **{"data-cost": "good"}).all("td")][2:4] == [
        "1.00",
        "2.00",
    ]
    assert "like ms" in page.first("tr", **{"data-method": "good"}).text()
    headings = [heading.text() for heading in page.all("h3")]
    for absent in ("Attributes", "Gradient noise", "Ensembles", "Over seeds", "Paired comparison"):
        assert not any(heading.startswith(absent) for heading in headings), absent
    with (root / "data/report/analysis.csv").open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert [(row["method"], row["network"]) for row in table] == [("good", "selected"), ("good", "untrained")]
    assert [row["seed"] for row in table] == ["0", "0"], "a zero is not a missing value"
    analysis = json.loads((root / "data/analysis/birds/good/0.json").read_text(encoding="utf-8"))
    selected = analysis["networks"][0]["row"]
    assert list(table[0]) == list(COLUMNS)
    assert table[0]["map_at_r_gap"] == str(selected["map_at_r_gap"])
    assert table[1]["map_at_r_gap"] == ""
    (root / "data/analysis/birds/good/0.json").unlink()
    with pytest.raises(UserError, match=r"analysis/birds/good/0\.json is missing"):
        run()
    assert (root / "data/report/index.html").exists()


def test_the_page_is_well_formed(html: str) -> None:
    """Every element that needs an end tag has one, in order."""

    class Nesting(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag not in ("meta", "link", "img", "br", "wbr", "input"):
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open, f"</{tag}> without a start"
            assert self.open.pop() == tag, f"</{tag}> closes another element"

        def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            pass

    nesting = Nesting()
    nesting.feed(html)
    assert nesting.open == []


def test_a_run_that_is_one_study_has_the_names_of_its_rows(study_inputs: ReportData) -> None:
    inputs = replace(study_inputs, datasets=("cub",), control=study_inputs.methods[0])
    html = build(inputs, "A report", 4, 3, 24).html
    page = read_page(html)
    rows = {row.attributes["data-method"] for row in page.all("tr") if "data-method" in row.attributes}
    assert rows == {"K1 = 1", "K1 = 4", "K1 = 16", "K1 = 64"}
    assert "variant of" not in page.text()
    assert page.text().count("crt-table-8-k1-4 in run.methods") == 1, "the recipe names the method"
    twice = replace(inputs, studies=inputs.studies * 2)
    assert "crt-table-8-k1-1 has the highest" in build(twice, "A report", 4, 3, 24).verdicts["cub"]


def test_results_under_labels_have_all_parts_of_the_rows(study_inputs: ReportData) -> None:
    (study,) = study_inputs.studies
    first, second = study_inputs.methods[:2]
    cost = Cost(parameters=1, flops=2)
    inputs = replace(
        study_inputs,
        sweeps=[Sweep("cub", first, [], {"value": 1})],
        ensembles={("cub", second): {"separated_map_at_r": 0.5}},
        costs={"cub": {first: cost}},
        object_shares=[{"dataset": "cub", "method": second}, {"dataset": "cub", "method": "other"}],
        control=first,
        like={first: "crt"},
    )
    named = inputs.under_labels(study)
    assert named.methods == ("K1 = 1", "K1 = 4", "K1 = 16", "K1 = 64")
    assert [run.method for run in named.of("cub")][::2] == list(named.methods)
    assert named.sweeps == [Sweep("cub", "K1 = 1", [], {"value": 1})]
    assert named.ensembles == {("cub", "K1 = 4"): {"separated_map_at_r": 0.5}}
    assert named.costs == {"cub": {"K1 = 1": cost}}
    assert named.object_shares == [{"dataset": "cub", "method": "K1 = 4"}]
    assert named.control == "K1 = 1"
    assert named.published_name("K1 = 1") == "crt"
    assert named.published_name("K1 = 4") == "K1 = 4", "a row is no variant of itself"
    assert named.keys["K1 = 4"] == second
    assert named.studies[0].contrasts == tuple((row, "K1 = 1") for row in named.methods[1:])
    alike = study.model_copy(
        update={"rows": tuple(row.model_copy(update={"label": "CRT"}) for row in study.rows)}
    )
    assert inputs.under_labels(alike).methods == inputs.methods, "rows with one label keep their methods"
