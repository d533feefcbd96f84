"""docs/studies.md is the page that the code writes, and the command prints the same studies. How many items
are whole by one command, and how many quoted methods train, is counted."""

import re

import pytest

from tools.docs.studies import markdown
from unseen.cli.study import coverage, listing, states
from unseen.experiments.catalogue import entries, missing, printed, printed_key, state_of, studies
from unseen.experiments.printed.model import quoted_methods
from unseen.runtime.stage import ROOT


@pytest.fixture(autouse=True)
def _root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_the_page_is_the_one_that_the_code_writes() -> None:
    assert (ROOT / "docs/studies.md").read_text(encoding="utf-8") == markdown()


@pytest.mark.slow
def test_page_and_list_contain_every_study_with_its_state() -> None:
    page, lines = markdown(), listing().splitlines()
    for item, line in zip(studies().values(), lines, strict=False):
        assert line.split()[0] == item.name
        assert state_of(item) in line.split()
        if item.study.source:
            assert f"{item.study.item}: {item.study.title} |" in page
    assert [line.name for line in states()] == list(studies())


def test_an_item_without_trainings_has_a_reason_or_a_command() -> None:
    for line in states():
        if line.state in ("unavailable", "command", "partial"):
            assert line.note, line.name
        if line.state in ("complete", "partial"):
            assert int(line.rows) > 0, line.name


NOT_WHOLE = {"gsp-poolings"}
AS_PRINTED = {  # quoted rows or columns without a recipe
    *(f"crt-table-{number}" for number in (3, 4)),
    *(f"multihead-table-{number}" for number in (1, 2, 3)),
    *(f"irt-table-{number}" for number in (1, 2, 8)),
}
CHOSEN = {
    *("multihead-figure-1", "multihead-figure-8", "gsp-figure-3b", "gsp-figure-7-right", "irt-figure-2"),
}


def test_the_items_that_are_not_whole_have_a_reason() -> None:
    lines = [line for line in states() if line.paper and line.state != "unavailable"]
    assert {line.name for line in lines if line.reason} == NOT_WHOLE
    assert {line.name for line in lines if line.state == "partial"} == NOT_WHOLE
    assert {line.name for line in lines if line.as_printed} == AS_PRINTED
    assert all(f"stay as printed: {line.as_printed}" in line.note for line in lines if line.as_printed)
    assert {item.name for item in studies().values() if item.study.chosen} == CHOSEN
    page = markdown()
    assert all(f"| {line.item} | {line.reason} |" in page for line in lines if line.reason)


@pytest.mark.parametrize("name", [name for name, item in studies().items() if item.study.table])
def test_a_whole_table_has_all_rows_and_data_sets_in_its_study(name: str) -> None:
    item = studies()[name]
    trained = {entry.printed for entry in entries(item)}
    rows = printed(item)
    of_paper = [row for row in rows if row.method or not row.quoted]
    has_rows = all(printed_key(row.method, row.recipe) in trained for row in of_paper)
    has_sets = {row.dataset for row in rows} <= set(item.study.datasets)
    assert (has_rows and has_sets) or missing(item)


def test_page_list_and_readme_state_the_counts() -> None:
    trained = quoted_methods()
    results = [line for line in states() if line.paper and line.state != "unavailable"]
    whole = len(results) - len(NOT_WHOLE)
    counts = [whole, len(results), whole - len(AS_PRINTED | CHOSEN), sum(trained.values()), len(trained)]
    assert [int(number) for number in re.findall(r"\d+", coverage())] == counts == [45, 46, 32, 10, 34]
    assert coverage() in listing()
    assert coverage() in markdown()
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "shows 45 of the 46 tables and figures with results" in readme
    assert (
        "trains the methods of four papers, their controls and 10 of the 34 methods that they quote" in readme
    )
    assert {name for name in trained if trained[name]} == {
        *("MS", "Proxy-Anchor", "IRT_R", "ProxyNCA++", "XBM", "NSoftmax"),
        *("SoftTriple", "Margin", "FastAP", "Proxy-NCA"),
    }
