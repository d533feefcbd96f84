"""docs/published.md is up to date."""

from pathlib import Path

from tools.docs.published import markdown
from unseen.experiments.printed.model import papers

DOCUMENT = Path(__file__).resolve().parents[3] / "docs/published.md"


def test_the_document_agrees_with_the_tables() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == markdown(), (
        "run `python -m tools.docs.published > docs/published.md`"
    )


def test_tables_are_rectangular_and_marks_are_explained() -> None:
    text = markdown()
    for section in text.split("\n### ")[1:]:
        lines = [line for line in section.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) == 1, section[:60]
        assert ("†" in section) <= ("\n- " in section), section[:60]
    assert text.count("\n### ") == sum(len(paper.tables) + bool(paper.costs) for paper in papers())
