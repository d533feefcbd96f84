"""Lines of written pages."""

from tools.docs.markdown import COLUMNS, wrapped


def test_wraps_paragraphs_and_lists_but_no_table_code_or_address() -> None:
    words = "word " * 40
    unwrapped = [f"| {words}|", "```", words, "```", "https://example.org/" + "x" * COLUMNS]
    page = "\n".join([words.strip(), f"- {words.strip()}", f"  - {words.strip()}", *unwrapped, ""])
    lines = wrapped(page).split("\n")
    assert lines[6:] == [*unwrapped, ""]
    assert all(len(line) <= COLUMNS for line in lines[:6])
    assert [line[: len(line) - len(line.lstrip(" -"))] for line in lines[:6]] == [
        "",
        "",
        "- ",
        "  ",
        "  - ",
        "    ",
    ]
    assert " ".join(" ".join(lines[:2]).split()) == words.strip()
