"""docs/studies.md is the page that the code writes, and the command prints the same studies."""

import pytest

from tools.docs.studies import markdown
from unseen.cli.study import listing, states
from unseen.experiments.catalogue import studies
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
        assert item.study.state in line.split()
        if item.is_published:
            assert f"{item.study.item}: {item.study.title} |" in page
    assert [line.name for line in states()] == list(studies())


def test_an_item_without_trainings_has_a_reason_or_a_command() -> None:
    for line in states():
        if line.state in ("unavailable", "command", "partial"):
            assert line.note, line.name
        if line.state in ("complete", "partial"):
            assert int(line.rows) > 0, line.name
