"""Pages of HTML that work offline: templates, and the style that all pages share."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

FOLDER = Path(__file__).parent


def environment(*folders: Path) -> Environment:
    """The templates of some folders and of this one, whose base.html is the frame of a page. Values are
    escaped, and a missing one is an error."""
    return Environment(
        loader=FileSystemLoader((*folders, FOLDER)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def style() -> Markup:
    """The style of all pages."""
    return Markup((FOLDER / "page.css").read_text(encoding="utf-8"))
