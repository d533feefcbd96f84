"""Written pages of Markdown."""

import re
import textwrap

COLUMNS = 110


def wrapped(page: str) -> str:
    """The page with lines of at most COLUMNS, except those of tables and code. List items stay indented."""
    lines: list[str] = []
    is_code = False
    for line in page.split("\n"):
        is_code ^= line.startswith("```")
        if is_code or line.startswith("|") or len(line) <= COLUMNS:
            lines.append(line)
            continue
        indent = len(re.sub(r"(\s*(?:- )?).*", r"\1", line))
        lines += textwrap.wrap(
            line, COLUMNS, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
        )
    return "\n".join(lines)
